//! The same norm otherwise (K7).

use mlx_rs::{Array, Dtype, fast};
use port::engine::Op;
use port::{Correct, Steps};

/// `x / sqrt(mean(x^2) + eps) * w`, each step an operation of its own, in f32, rounded once.
pub struct Divided;

impl Steps for Divided {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        unit(x, eps)?.multiply(weight.as_dtype(Dtype::Float32)?)?.as_dtype(x.dtype())
    }
}

/// As [`Divided`], rounded to the rows' dtype before the weight multiplies as well as after.
pub struct RoundedBeforeWeight;

impl Steps for RoundedBeforeWeight {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        unit(x, eps)?.as_dtype(x.dtype())?.multiply(weight)
    }
}

/// MLX's kernel in the rows' own dtype: in bf16 it rounds before it multiplies by the weight.
pub struct InWorkingDtype;

impl Steps for InWorkingDtype {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        fast::rms_norm(x, Some(weight), eps)
    }
}

/// The residual with its operands exchanged.
pub struct BranchFirst;

impl Steps for BranchFirst {
    fn residual(&self, h: &Array, branch: &Array) -> Op {
        Correct.residual(branch, h)
    }
}

/// `x / sqrt(mean(x^2) + eps)` in f32.
fn unit(x: &Array, eps: f32) -> Op {
    let wide = x.as_dtype(Dtype::Float32)?;
    let mean = wide.multiply(&wide)?.mean_axis(-1, true)?;
    wide.divide(mean.add(Array::from_f32(eps))?.sqrt()?)
}
