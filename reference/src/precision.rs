//! Where a bf16 runtime stores a tensor, its emulation rounds (kolibri-1.md, bf16 emulation). Activations
//! only: weights that are packed or FP8 are multiplied as the f32 values that they stand for.

use crate::workers::Workers;
use half::bf16;
use ndarray::{Array2, ArrayViewMut2};
use spec::Precision;

/// Stores rows: as they are in f32, rounded to the nearest bf16, ties to even, in its emulation.
pub(crate) fn store(precision: Precision, mut rows: ArrayViewMut2<'_, f32>) {
    match precision {
        Precision::F32 => {}
        Precision::Bf16 => rows.mapv_inplace(|value| bf16::from_f32(value).to_f32()),
    }
}

/// [`store`] on all workers.
pub(crate) fn store_all(precision: Precision, rows: &mut Array2<f32>, workers: &Workers) {
    if precision == Precision::Bf16 {
        workers.by_rows(rows, |_, rows| store(precision, rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    #[test]
    fn ties_round_to_the_even_bf16() {
        // a bf16 has 8 bits of significand: between 1 and 1 + 2^-7 lies the tie 1 + 2^-8
        let ulp = 2_f32.powi(-7);
        let mut rows = arr2(&[[1.0 + ulp / 2.0, 1.0 + 1.5 * ulp, 1.0 + 0.51 * ulp, -1.0 - ulp / 2.0]]);
        store(Precision::Bf16, rows.view_mut());
        assert_eq!(rows, arr2(&[[1.0, 1.0 + 2.0 * ulp, 1.0 + ulp, -1.0]]));
    }

    #[test]
    fn f32_is_stored_as_it_is() {
        let mut rows = arr2(&[[1.0 + f32::EPSILON]]);
        store(Precision::F32, rows.view_mut());
        assert_eq!(rows[[0, 0]], 1.0 + f32::EPSILON);
    }
}
