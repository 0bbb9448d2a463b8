//! Bugs of the experts and of their sum (K17).

use ndarray::{ArrayView2, ArrayViewMut2, Zip};
use reference::{Correct, Steps};
use statrs::function::erf::erf;
use std::f64::consts::FRAC_1_SQRT_2;

/// `silu(up) * gate`.
pub struct SwappedGate;

impl Steps for SwappedGate {
    fn activate(&self, mut gate: ArrayViewMut2<'_, f32>, up: ArrayView2<'_, f32>) {
        let mut active = up.to_owned();
        Correct.activate(active.view_mut(), gate.view());
        gate.assign(&active);
    }
}

/// GELU for SiLU, the exact one.
pub struct Gelu;

impl Steps for Gelu {
    fn activate(&self, gate: ArrayViewMut2<'_, f32>, up: ArrayView2<'_, f32>) {
        Zip::from(gate).and(up).for_each(|gate, up| {
            let share = 0.5 * (1.0 + erf(f64::from(*gate) * FRAC_1_SQRT_2));
            *gate *= share as f32 * up;
        });
    }
}

/// No shared expert in the sum.
pub struct SharedMissing;

impl Steps for SharedMissing {
    fn add_shared(&self, _sum: ArrayViewMut2<'_, f32>, _shared: ArrayView2<'_, f32>) {}
}
