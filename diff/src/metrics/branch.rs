//! How far a row of one side is from the other's.

use ndarray::{ArrayView1, Zip};

/// Relative L2 error of one row, `||port - reference|| / ||reference||`, `[H]` f32 rows, f64 sums.
///
/// Of a reference row of norm zero: 0 if the port's row is exactly equal, else infinity. NaN if either row
/// holds a NaN, or an infinity, equal or not: equal infinities are no evidence. Panics on different lengths.
pub fn relative_error(reference: ArrayView1<'_, f32>, port: ArrayView1<'_, f32>) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    Zip::from(reference).and(port).for_each(|&r, &p| {
        let (r, p) = (f64::from(r), f64::from(p));
        difference += (p - r) * (p - r);
        norm += r * r;
    });
    if difference == 0.0 && norm == 0.0 { 0.0 } else { difference.sqrt() / norm.sqrt() }
}
