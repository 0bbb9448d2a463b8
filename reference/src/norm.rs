//! RMSNorm (K7) and the norm of queries and keys (K9).

use crate::product;
use ndarray::ArrayViewMut2;

/// `w * x / sqrt(mean(x^2) + eps)` of each row: `rows [n, width]`, `weight [width]`, in f32 (K7).
pub(crate) fn rms_norm(mut rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
    for mut row in rows.rows_mut() {
        rms_norm_row(row.as_slice_mut().expect("rows are contiguous"), weight, eps);
    }
}

/// RMSNorm of each head of each row: `rows [n, heads * D]`, `weight [D]` shared by all heads (K9).
pub(crate) fn qk_norm(mut rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
    for mut row in rows.rows_mut() {
        let row = row.as_slice_mut().expect("rows are contiguous");
        for head in row.chunks_exact_mut(weight.len()) {
            rms_norm_row(head, weight, eps);
        }
    }
}

fn rms_norm_row(row: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(row.len(), weight.len(), "one weight per value");
    let mean = product::sum(row, |x| x * x) / row.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    for (x, w) in row.iter_mut().zip(weight) {
        *x = *x * scale * w;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, arr2};

    #[test]
    fn rms_norm_of_three_and_four_by_hand() {
        // mean(x^2) = 12.5 and eps = 12.5: divided by 5
        let mut rows = arr2(&[[3.0, 4.0], [-3.0, 4.0]]);
        rms_norm(rows.view_mut(), &[10.0, 0.5], 12.5);
        let distance = &rows - &arr2(&[[6.0, 0.4], [-6.0, 0.4]]);
        assert!(distance.iter().all(|d| d.abs() <= 1e-6), "{rows}");
    }

    #[test]
    fn rms_norm_is_close_to_f64() {
        let width = 2560;
        let x: Vec<f32> = (0..width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 13.0).collect();
        let w: Vec<f32> = (0..width).map(|i| (i % 7) as f32 / 3.0 - 0.5).collect();
        let mut rows = Array2::from_shape_vec((1, width), x.clone()).unwrap();
        rms_norm(rows.view_mut(), &w, 1e-6);
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
        for i in 0..width {
            let exact = f64::from(w[i]) * f64::from(x[i]) / (mean + 1e-6).sqrt();
            assert!((f64::from(rows[[0, i]]) - exact).abs() <= 3e-7 * exact.abs(), "column {i}");
        }
    }

    #[test]
    fn the_qk_norm_is_over_each_head_alone() {
        // two heads of two values; mean squares 12.5 and 50, eps 12.5 and the same weights
        let mut rows = arr2(&[[3.0, 4.0, 6.0, 8.0]]);
        qk_norm(rows.view_mut(), &[5.0, 10.0], 12.5);
        let second = 62.5_f32.sqrt();
        let distance = &rows - &arr2(&[[3.0, 8.0, 30.0 / second, 80.0 / second]]);
        assert!(distance.iter().all(|d| d.abs() <= 1e-5), "{rows}");
    }

    #[test]
    fn a_row_of_zeros_stays_zero() {
        let mut rows = Array2::zeros((1, 4));
        rms_norm(rows.view_mut(), &[1.0; 4], 1e-6);
        assert_eq!(rows, Array2::<f32>::zeros((1, 4)));
    }
}
