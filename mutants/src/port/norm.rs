//! Bugs of the norms (K7, K9).

use mlx_rs::{Array, Dtype, ops};
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

/// An epsilon of 1e-4 at least, in every norm.
pub struct EpsilonFloored;

impl Steps for EpsilonFloored {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        Correct.norm(x, weight, eps.max(1e-4))
    }
}

/// Values divided by the largest of them first, so that the epsilon counts by its square, in every norm.
pub struct EpsilonAfterRescale;

impl Steps for EpsilonAfterRescale {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        let wide = x.as_dtype(Dtype::Float32)?;
        let largest = wide.abs()?.max_axis(-1, true)?;
        // a row of zeros stays one
        let divisor = ops::maximum(&largest, Array::from_f32(f32::MIN_POSITIVE))?;
        Correct.norm(&wide.divide(divisor)?, weight, eps)?.as_dtype(x.dtype())
    }
}

/// One mean square for all heads of a token, where each head has its own.
pub struct OverAllHeads;

impl Steps for OverAllHeads {
    fn norm_then_rotate(
        &self,
        x: &Array,
        weight: &Array,
        eps: f32,
        rope: Option<Rope<'_>>,
    ) -> Op<(Array, Array)> {
        let wide = x.as_dtype(Dtype::Float32)?;
        let mean = wide.multiply(&wide)?.mean_axes(&[2, 3], true)?;
        let unit = wide.multiply(mean.add(Array::from_f32(eps))?.rsqrt()?)?;
        place(unit.multiply(weight.as_dtype(Dtype::Float32)?)?.as_dtype(x.dtype())?, rope)
    }
}

/// Queries and keys as they are projected.
pub struct HeadNormMissing;

impl Steps for HeadNormMissing {
    fn norm_then_rotate(
        &self,
        x: &Array,
        _weight: &Array,
        _eps: f32,
        rope: Option<Rope<'_>>,
    ) -> Op<(Array, Array)> {
        place(x.clone(), rope)
    }
}

/// What comes after the per-head norm: `[1, T, N, D]` as it is, and turned, as attention takes it.
fn place(normed: Array, rope: Option<Rope<'_>>) -> Op<(Array, Array)> {
    let heads = normed.swap_axes(1, 2)?;
    let placed = rope.map_or_else(|| Ok(heads.clone()), |rope| Correct.rotate(&heads, rope))?;
    Ok((normed, placed))
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
