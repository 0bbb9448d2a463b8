//! Bugs of the matrix product.

use super::Step;
use ndarray::{ArrayView2, ArrayViewMut2};
use reference::steps::Matrix;
use reference::{Correct, Steps};

/// Every product, and other steps.
macro_rules! products_and {
    ($($step:expr),*) => {
        &[
            Step::Product(Matrix::Q),
            Step::Product(Matrix::K),
            Step::Product(Matrix::V),
            Step::Product(Matrix::O),
            Step::Product(Matrix::Router),
            Step::Product(Matrix::ExpertGate),
            Step::Product(Matrix::ExpertUp),
            Step::Product(Matrix::ExpertDown),
            Step::Product(Matrix::SharedGate),
            Step::Product(Matrix::SharedUp),
            Step::Product(Matrix::SharedDown),
            Step::Product(Matrix::Head),
            $($step),*
        ]
    };
}
pub(crate) use products_and;

/// Every product.
pub const ALL: &[Step] = products_and![];

/// Bits of an f32's mantissa that TF32 does not have.
const DROPPED_BITS: u32 = 13;

/// Both operands of every product rounded to TF32: f32's exponent, 10 bits of mantissa.
pub struct Tf32;

impl Steps for Tf32 {
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        Correct.product(which, x.mapv(tf32).view(), w.mapv(tf32).view(), out);
    }
}

/// What becomes of each number that one matrix makes.
pub struct After {
    /// The matrix.
    pub which: Matrix,
    /// From the right number to the wrong one.
    pub then: fn(f32) -> f32,
}

impl Steps for After {
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        mut out: ArrayViewMut2<'_, f32>,
    ) {
        Correct.product(which, x, w, out.view_mut());
        if which == self.which {
            out.mapv_inplace(self.then);
        }
    }
}

/// The nearest bf16.
pub fn bf16(value: f32) -> f32 {
    half::bf16::from_f32(value).to_f32()
}

/// The nearest f16.
pub fn f16(value: f32) -> f32 {
    half::f16::from_f32(value).to_f32()
}

/// The nearest TF32, ties to even; what is not finite stays as it is.
fn tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    let odd = (bits >> DROPPED_BITS) & 1;
    let half = (1 << (DROPPED_BITS - 1)) - 1;
    f32::from_bits((bits + half + odd) & !((1 << DROPPED_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::tf32;

    #[test]
    fn a_tie_goes_to_the_even_mantissa_of_ten_bits() {
        let ulp = 2_f32.powi(-10);
        assert_eq!(tf32(1.0 + ulp), 1.0 + ulp);
        assert_eq!(tf32(1.0 + 0.5 * ulp), 1.0);
        assert_eq!(tf32(1.0 + 1.5 * ulp), 1.0 + 2.0 * ulp);
        assert_eq!(tf32(1.0 + 0.51 * ulp), 1.0 + ulp);
        assert_eq!(tf32(-1.0 - 0.49 * ulp), -1.0);
        assert_eq!(tf32(1e-30 * (1.0 + f32::EPSILON)), tf32(1e-30));
        assert_eq!(tf32(-f32::INFINITY), -f32::INFINITY);
    }
}
