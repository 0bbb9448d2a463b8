//! The experts: a gather over the routed ones, and the one that every token passes (K17).
//!
//! Inputs: the MoE's input `[B, T, H]`, ids. Outputs: each expert's output, unweighted. Absent on purpose:
//! weights and sums ([`crate::Steps::combine`]).

use crate::engine::{Op, dim};
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

/// Rows from which on they are sorted by expert. Below, most experts have one row or none, and sorting costs
/// more than it saves.
pub const SORTED_FROM: usize = 64;

/// The outputs of each token's k experts (K17). `x`: `[B, T, H]`, `ids`: `[B, T, k]` u32.
///
/// From [`SORTED_FROM`] rows on the B*T*k rows are sorted by expert, so that one expert's rows lie together
/// and its weights are read once; the outputs are brought back into the order of `ids`.
pub fn routed<S: Steps + ?Sized>(steps: &S, experts: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
    let (k, hidden) = (ids.dim(2), x.dim(2));
    let flat = ids.reshape(&[-1])?;
    let shape = [x.dim(0), x.dim(1), k, hidden];
    let token_of = |slots: &Array| slots.floor_divide(Array::from_slice(&[k.unsigned_abs()], &[]));
    let rows = |slots: &Array| x.reshape(&[-1, 1, hidden])?.take_axis(token_of(slots)?, 0);
    if flat.size() < SORTED_FROM {
        let slots = ops::arange::<_, u32>(None, dim(flat.size()), None)?;
        let down = each_expert(steps, experts, &rows(&slots)?, &flat, false)?;
        return Ok(Routed { outputs: down.reshape(&shape)?, ids: flat.reshape(ids.shape())? });
    }
    let order = ops::argsort_axis(&flat, 0)?;
    let back = ops::argsort_axis(&order, 0)?;
    let sorted = flat.take_axis(&order, 0)?;
    let down = each_expert(steps, experts, &rows(&order)?, &sorted, true)?;
    let outputs = down.take_axis(&back, 0)?.reshape(&shape)?;
    let ids = sorted.take_axis(&back, 0)?.reshape(ids.shape())?;
    Ok(Routed { outputs, ids })
}

/// `rows`: `[R, 1, H]`, `ids`: `[R]` u32. Output: `[R, 1, H]`.
fn each_expert<S: Steps + ?Sized>(
    steps: &S,
    experts: &ExpertWeights,
    rows: &Array,
    ids: &Array,
    sorted: bool,
) -> Op {
    let gate = steps.expert_product(rows, &experts.gate, ids, sorted)?;
    let up = steps.expert_product(rows, &experts.up, ids, sorted)?;
    steps.expert_product(&steps.activate(&gate, &up)?, &experts.down, ids, sorted)
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
