//! Rotary position embedding (K10): half-split layout, absolute positions.

use ndarray::{Array2, ArrayViewMut2};

/// Cosines and sines of every position and pair.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// `cos(angle)`, `[T, D/2]`.
    pub cos: Array2<f32>,
    /// `sin(angle)`, `[T, D/2]`.
    pub sin: Array2<f32>,
}

impl RopeTable {
    /// Positions `0..tokens`; `inv_freq` is `[D/2]`. Each angle is one f32 product, `f32(position) *
    /// inv_freq[j]`, and cosine and sine are of that f32.
    pub fn new(tokens: usize, inv_freq: &[f32]) -> Self {
        let angle = |(position, j): (usize, usize)| position as f32 * inv_freq[j];
        let shape = (tokens, inv_freq.len());
        Self {
            cos: Array2::from_shape_fn(shape, |at| angle(at).cos()),
            sin: Array2::from_shape_fn(shape, |at| angle(at).sin()),
        }
    }
}

/// `1 / theta^(2j/D)` for `j` in `0..D/2`: exponent, power and quotient each rounded to f32 (K10). The power
/// of the rounded exponent is taken in f64, so that rounding it gives the nearest f32 on every platform.
pub(crate) fn inv_freq(theta: f64, head_dim: usize) -> Vec<f32> {
    let exponent = |j: usize| (2 * j) as f32 / head_dim as f32;
    let power = |exponent: f32| f64::from(theta as f32).powf(f64::from(exponent)) as f32;
    (0..head_dim / 2).map(|j| 1.0 / power(exponent(j))).collect()
}

/// Rotates each head's pairs `(j, j + D/2)`: `rows [n, heads * D]`, positions `first..first + n` (K10).
pub(crate) fn rotate(mut rows: ArrayViewMut2<'_, f32>, first: usize, table: &RopeTable) {
    let half = table.cos.ncols();
    for (i, mut row) in rows.rows_mut().into_iter().enumerate() {
        let (cos, sin) = (table.cos.row(first + i), table.sin.row(first + i));
        let row = row.as_slice_mut().expect("rows are contiguous");
        for head in row.chunks_exact_mut(2 * half) {
            let (low, high) = head.split_at_mut(half);
            for j in 0..half {
                let (a, b) = (low[j], high[j]);
                low[j] = a * cos[j] - b * sin[j];
                high[j] = b * cos[j] + a * sin[j];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    #[test]
    fn frequencies_are_close_to_f64() {
        for (theta, head_dim) in [(10000.0, 128), (10000.0, 16), (500.0, 6)] {
            let ours = inv_freq(theta, head_dim);
            assert_eq!(ours.len(), head_dim / 2);
            for (j, &ours) in ours.iter().enumerate() {
                let exact = theta.powf(-2.0 * j as f64 / head_dim as f64);
                assert!((f64::from(ours) - exact).abs() <= 1e-6 * exact, "theta {theta}, pair {j}");
            }
        }
        assert_eq!(inv_freq(10000.0, 4), [1.0, 0.01]);
    }

    #[test]
    fn frequencies_of_a_head_that_is_no_power_of_two_are_rounded_three_times() {
        // theta 10000, worked to 60 decimal digits, with exponent, power and quotient each rounded to f32
        let of_12 = [0x3f800000, 0x3e5c9d35, 0x3d3e1e95, 0x3c23d70a, 0x3b0d3169, 0x39f35a5c];
        let of_96 = [
            0x3f800000, 0x3f534db0, 0x3f2e6928, 0x3f0ff59a, 0x3eeda63c, 0x3ec42822, 0x3ea1e89b, 0x3e85a3da,
            0x3e5c9d35, 0x3e361887, 0x3e164d7a, 0x3df81eef, 0x3dcccccd, 0x3da90af3, 0x3d8b8754, 0x3d6655c2,
            0x3d3e1e95, 0x3d1cece9, 0x3d0186e3, 0x3cd5d2f6, 0x3cb07dc6, 0x3c91ad39, 0x3c707bf6, 0x3c467f28,
            0x3c23d70a, 0x3c073bf8, 0x3bdf3ee9, 0x3bb8449c, 0x3b98187a, 0x3b7b14a3, 0x3b4f3e38, 0x3b2b0f2e,
            0x3b0d3169, 0x3ae91528, 0x3ac0632e, 0x3a9ecc1d, 0x3a83126f, 0x3a585ff2, 0x3a3298ba, 0x3a136a16,
            0x39f35a5c, 0x39c8dd4f, 0x39a5cb60, 0x3988d8f2, 0x3961e8a7, 0x393a7753, 0x3919e8f2, 0x38fe1363,
        ];
        let bits =
            |head_dim| -> Vec<u32> { inv_freq(10000.0, head_dim).iter().map(|x| x.to_bits()).collect() };
        assert_eq!(bits(12), of_12);
        assert_eq!(bits(96), of_96);
    }

    #[test]
    fn position_zero_is_not_rotated() {
        let mut rows = arr2(&[[1.0, 2.0, 3.0, 4.0]]);
        rotate(rows.view_mut(), 0, &RopeTable::new(1, &[1.0, 0.01]));
        assert_eq!(rows, arr2(&[[1.0, 2.0, 3.0, 4.0]]));
    }

    #[test]
    fn pairs_are_half_a_head_apart_and_turn_by_their_own_angle() {
        // two heads of four; position 3; pairs (0, 2) by 3 rad and (1, 3) by 0.03 rad
        let start = [1.0_f32, 2.0, 3.0, 4.0, -1.0, 0.5, 0.25, -2.0];
        let mut rows = Array2::from_shape_vec((1, 8), start.into()).unwrap();
        rotate(rows.view_mut(), 3, &RopeTable::new(4, &[1.0, 0.01]));
        for head in [0, 4] {
            for (j, angle) in [(0, 3.0_f64), (1, 0.03)] {
                let (a, b) = (f64::from(start[head + j]), f64::from(start[head + j + 2]));
                let exact = [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()];
                let ours = [rows[[0, head + j]], rows[[0, head + j + 2]]];
                for (ours, exact) in ours.into_iter().zip(exact) {
                    assert!((f64::from(ours) - exact).abs() <= 1e-6, "head {head}, pair {j}");
                }
            }
        }
    }

    #[test]
    fn a_rotation_keeps_the_product_of_equal_distances() {
        // q·k depends on the distance of their positions only
        let table = RopeTable::new(40, &inv_freq(10000.0, 8));
        let at = |values: [f32; 8], position: usize| {
            let mut rows = Array2::from_shape_vec((1, 8), values.into()).unwrap();
            rotate(rows.view_mut(), position, &table);
            rows.into_raw_vec_and_offset().0
        };
        let q = [0.3, -1.0, 0.7, 0.2, 0.9, -0.4, 0.1, 0.8];
        let k = [1.0, 0.2, -0.5, 0.6, -0.3, 0.4, 0.8, -0.9];
        let dot = |i: usize, j: usize| -> f32 { at(q, i).iter().zip(at(k, j)).map(|(a, b)| a * b).sum() };
        assert!((dot(7, 2) - dot(37, 32)).abs() <= 1e-5);
        assert!((dot(7, 2) - dot(7, 3)).abs() > 1e-2);
    }
}
