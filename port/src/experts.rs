//! The experts: sorted gather over the routed ones, and the one that every token passes (K17).
//!
//! Inputs: the MoE's input `[1, T, H]`, ids. Outputs: each expert's output, unweighted. Absent on purpose:
//! weights and sums ([`crate::Steps::combine`]).

use crate::engine::Op;
use crate::steps::Steps;
use crate::weights::{ExpertWeights, SharedWeights};
use mlx_rs::{Array, ops};

/// What the routed experts made of T tokens.
#[derive(Debug)]
pub struct Routed {
    /// `[1, T, k, H]`, in order of `ids`
    pub outputs: Array,
    /// The ids that the gather used, brought back into executed order, `[1, T, k]` u32.
    pub ids: Array,
}

/// The outputs of each token's k experts (K17). `x`: `[1, T, H]`, `ids`: `[1, T, k]` u32.
///
/// The T*k rows are sorted by expert, so that one expert's rows lie together and its weights are read once;
/// the outputs are brought back into the order of `ids`.
pub fn routed<S: Steps + ?Sized>(steps: &S, experts: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
    let (k, hidden) = (ids.dim(2), x.dim(2));
    let flat = ids.reshape(&[-1])?;
    let order = ops::argsort_axis(&flat, 0)?;
    let back = ops::argsort_axis(&order, 0)?;
    let sorted = flat.take_axis(&order, 0)?;
    let token = order.floor_divide(Array::from_slice(&[k.unsigned_abs()], &[]))?;
    let rows = x.reshape(&[-1, 1, hidden])?.take_axis(token, 0)?;

    let gate = steps.expert_product(&rows, &experts.gate, &sorted)?;
    let up = steps.expert_product(&rows, &experts.up, &sorted)?;
    let down = steps.expert_product(&steps.activate(&gate, &up)?, &experts.down, &sorted)?;

    let shape = [x.dim(0), x.dim(1), k, hidden];
    let outputs = down.take_axis(&back, 0)?.reshape(&shape)?;
    let ids = sorted.take_axis(&back, 0)?.reshape(ids.shape())?;
    Ok(Routed { outputs, ids })
}

/// Each row times its own expert's matrix: the one place that knows where MLX can gather. `rows`: `[R, 1,
/// K]`, `stack`: `[E, N, K]`, `sorted`: `[R]` u32, ascending. Output: `[R, 1, N]` in the dtype of `rows`.
///
/// On the CPU `gather_mm` takes f32 only: the stack was widened at load, the rows are widened here, and the
/// result is rounded back. On Metal everything has the working dtype, and both conversions do nothing.
pub fn expert_product(rows: &Array, stack: &Array, sorted: &Array) -> Op {
    let wide = rows.as_dtype(stack.dtype())?;
    ops::gather_mm(wide, stack.swap_axes(-1, -2)?, None, sorted, true)?.as_dtype(rows.dtype())
}

/// What the shared expert made of T tokens.
#[derive(Debug)]
pub struct Shared {
    /// `[1, T, S]`
    pub gate: Array,
    /// `[1, T, S]`
    pub up: Array,
    /// `silu(gate) * up`, `[1, T, S]`
    pub active: Array,
    /// `[1, T, H]`
    pub output: Array,
}

/// The shared expert (K17). `x`: `[1, T, H]`.
pub fn shared<S: Steps + ?Sized>(steps: &S, weights: &SharedWeights, x: &Array) -> Op<Shared> {
    let (gate, up) = (steps.linear(x, &weights.gate)?, steps.linear(x, &weights.up)?);
    let active = steps.activate(&gate, &up)?;
    let output = steps.linear(&active, &weights.down)?;
    Ok(Shared { gate, up, active, output })
}
