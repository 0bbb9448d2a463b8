//! Sums: the matrix product and the sum over a slice. Every element is one sum in a fixed order.
//!
//! The product is ndarray's, which without its `blas` feature is matrixmultiply: pure Rust, one fused
//! multiply-add after another over 256 terms at a time, then those sums one after another. That order
//! depends on neither the number of rows or columns in the call nor the strides. It does depend on the
//! CPU's instructions (fused or not), so bits may differ between machines.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis};

/// `out = x · wᵀ`: `x [m, in]`, `w [out, in]`, `out [m, out]`, by the calling thread.
pub(crate) fn into(x: ArrayView2<'_, f32>, w: ArrayView2<'_, f32>, mut out: ArrayViewMut2<'_, f32>) {
    general_mat_mul(1.0, &x, &w.t(), 0.0, &mut out);
}

/// `sum(term(value))` in f32 over eight interleaved lanes, then the lanes: `((0+4)+(2+6)) + ((1+5)+(3+7))`.
/// Eight short sums lose less than one long one.
pub(crate) fn sum(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; 8];
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        for (lane, &value) in lanes.iter_mut().zip(block) {
            *lane += term(value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane += term(value);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// Cuts a view along `axis` into pieces of `size`; the last takes what is left.
pub(crate) fn split(view: ArrayViewMut2<'_, f32>, axis: Axis, size: usize) -> Vec<ArrayViewMut2<'_, f32>> {
    let mut pieces = Vec::new();
    let mut rest = view;
    while rest.len_of(axis) > size {
        let (piece, after) = rest.split_at(axis, size);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Correct, Matrix};
    use crate::workers::Workers;
    use ndarray::{Array2, Axis, concatenate, s};
    use rstest::rstest;

    /// A fixed matrix of values in [-1, 1).
    fn matrix(rows: usize, columns: usize, seed: u32) -> Array2<f32> {
        let mut state = seed;
        Array2::from_shape_simple_fn((rows, columns), || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
    }

    fn product(x: ArrayView2<'_, f32>, w: ArrayView2<'_, f32>) -> Array2<f32> {
        let mut out = Array2::zeros((x.nrows(), w.nrows()));
        into(x, w, out.view_mut());
        out
    }

    fn same_bits(a: &Array2<f32>, b: &Array2<f32>) -> bool {
        a.dim() == b.dim() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
    }

    #[rstest]
    #[case(3, 1, 5)]
    #[case(17, 257, 31)]
    #[case(9, 2560, 70)]
    #[case(5, 6144, 33)]
    fn a_product_is_close_to_f64(#[case] m: usize, #[case] k: usize, #[case] n: usize) {
        let (x, w) = (matrix(m, k, 1), matrix(n, k, 2));
        let exact = x.mapv(f64::from).dot(&w.mapv(f64::from).t());
        let ours = product(x.view(), w.view()).mapv(f64::from);
        let distance = (&ours - &exact).mapv(|d| d * d).sum().sqrt();
        let size = exact.mapv(|d| d * d).sum().sqrt();
        assert!(distance <= 1e-6 * size, "relative L2 {:.2e}", distance / size);
    }

    #[rstest]
    #[case(37, 96, 53)]
    #[case(67, 257, 1031)]
    #[case(19, 1000, 131)]
    fn no_bit_depends_on_which_rows_and_columns_are_asked_for(
        #[case] m: usize,
        #[case] k: usize,
        #[case] n: usize,
    ) {
        let (x, w) = (matrix(m, k, 3), matrix(n, k, 4));
        let whole = product(x.view(), w.view());
        for rows in [1, 2, 3, 7, 8, 9, 17] {
            let parts: Vec<_> =
                x.axis_chunks_iter(Axis(0), rows).map(|part| product(part, w.view())).collect();
            let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
            assert!(same_bits(&concatenate(Axis(0), &views).unwrap(), &whole), "{rows} rows");
        }
        for columns in [1, 5, 8, 13, 64, 130] {
            let parts: Vec<_> =
                w.axis_chunks_iter(Axis(0), columns).map(|part| product(x.view(), part)).collect();
            let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
            assert!(same_bits(&concatenate(Axis(1), &views).unwrap(), &whole), "{columns} columns");
        }
    }

    #[test]
    fn no_bit_depends_on_strides() {
        let (x, w) = (matrix(21, 300, 5), matrix(45, 300, 6));
        let whole = product(x.view(), w.view());
        // heads are columns of a wider matrix, here columns 7..307 of 400
        let mut wide = matrix(21, 400, 7);
        wide.slice_mut(s![.., 7..307]).assign(&x);
        assert!(same_bits(&product(wide.slice(s![.., 7..307]), w.view()), &whole));
        let transposed = w.t().as_standard_layout().into_owned();
        assert!(same_bits(&product(x.view(), transposed.t()), &whole));
        let mut out = matrix(21, 90, 8);
        into(x.view(), w.view(), out.slice_mut(s![.., 30..75]));
        assert!(same_bits(&out.slice(s![.., 30..75]).to_owned(), &whole));
    }

    #[test]
    fn tiles_on_threads_make_the_bits_of_one_call() {
        let (x, w) = (matrix(300, 65, 9), matrix(1100, 65, 10));
        let whole = product(x.view(), w.view());
        for threads in [1, 2, 3] {
            let workers = Workers::new(Some(threads)).unwrap();
            let tiled = workers.product(&Correct, Matrix::Q, x.view(), w.view());
            assert!(same_bits(&tiled, &whole), "{threads} threads");
        }
    }

    #[rstest]
    fn a_sum_is_close_to_f64(#[values(1, 7, 8, 9, 513, 2560, 6144)] len: usize) {
        let values = matrix(1, len, 11).into_raw_vec_and_offset().0;
        let exact: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        let ours = f64::from(sum(&values, |v| v * v));
        assert!((ours - exact).abs() <= 1e-6 * exact, "{ours} and {exact}");
    }

    #[test]
    fn split_covers_everything_once() {
        let mut all = Array2::zeros((7, 5));
        for (i, rows) in split(all.view_mut(), Axis(0), 3).into_iter().enumerate() {
            for (j, mut piece) in split(rows, Axis(1), 2).into_iter().enumerate() {
                piece += (10 * i + j + 1) as f32;
            }
        }
        assert_eq!(all.row(0).to_vec(), [1.0, 1.0, 2.0, 2.0, 3.0]);
        assert_eq!(all.column(4).to_vec(), [3.0, 3.0, 3.0, 13.0, 13.0, 13.0, 23.0]);
    }
}
