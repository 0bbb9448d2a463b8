//! Bugs of the norms (K7, K9).

use mlx_rs::{Array, Dtype};
use port::attention::Rope;
use port::engine::Op;
use port::{Correct, Steps};

/// `1 + w` for `w`, in every norm.
pub struct OnePlusWeight;

impl Steps for OnePlusWeight {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        let weight = weight.add(Array::from_f32(1.0))?.as_dtype(weight.dtype())?;
        Correct.norm(x, &weight, eps)
    }
}

/// Squares and their mean rounded to bf16 in a bf16 port, in every norm.
pub struct StatisticsRounded;

impl Steps for StatisticsRounded {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        if x.dtype() == Dtype::Float32 {
            return Correct.norm(x, weight, eps);
        }
        let eps = Array::from_f32(eps).as_dtype(x.dtype())?;
        let mean = x.multiply(x)?.mean_axis(-1, true)?;
        x.multiply(mean.add(eps)?.rsqrt()?)?.multiply(weight)
    }
}

/// Ten times the epsilon, in every norm.
pub struct EpsilonTenfold;

impl Steps for EpsilonTenfold {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        Correct.norm(x, weight, 10.0 * eps)
    }
}

/// The per-head norm after the rotation, in layers that rotate.
pub struct HeadNormAfterRope;

impl Steps for HeadNormAfterRope {
    fn norm_then_rotate(
        &self,
        x: &Array,
        weight: &Array,
        eps: f32,
        rope: Option<Rope<'_>>,
    ) -> Op<(Array, Array)> {
        let Some(rope) = rope else { return Correct.norm_then_rotate(x, weight, eps, None) };
        let turned = self.rotate(&x.swap_axes(1, 2)?, rope)?;
        let placed = self.norm(&turned, weight, eps)?;
        Ok((placed.swap_axes(1, 2)?, placed))
    }
}
