//! Which experts a token goes to, and with which weights (K14 to K16).
//!
//! Inputs: the MoE's input `[1, T, H]`, forced ids or none. Outputs: logits, ids in executed order,
//! weights. [`route`] is the one place where forced ids enter; they replace ids only, the weights are
//! always the port's own.

use crate::engine::{Op, dim};
use crate::steps::Steps;
use crate::weights::RouterWeights;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, ops};
use spec::{Choices, LayerId, ModelConfig};
use std::ops::Range;

/// What the router said about T tokens.
#[derive(Debug)]
pub struct Route {
    /// `[1, T, E]` f32 (K14)
    pub logits: Array,
    /// f32(logit + bias), `[1, T, E]` (K15)
    pub scores: Array,
    /// The port's own choice, `[1, T, k]` u32.
    pub own: Array,
    /// What is executed: the forced ids where there are any, else the port's own, `[1, T, k]` u32.
    pub ids: Array,
    /// The weights of `ids`, `[1, T, k]` f32 (K16)
    pub weights: Array,
}

/// Routes `x`, `[1, T, H]`; `forced`: `[1, T, k]` u32.
pub fn route(
    steps: &dyn Steps,
    router: &RouterWeights,
    config: &ModelConfig,
    x: &Array,
    forced: Option<&Array>,
) -> Op<Route> {
    let logits = steps.router_logits(x, &router.gate)?;
    let scores = steps.selection_scores(&logits, &router.bias)?;
    let own = steps.select(&logits, &router.bias, config.experts_per_token)?;
    let ids = forced.unwrap_or(&own).clone();
    let weights = steps.topk_weights(&logits, &router.bias, &ids, config)?;
    Ok(Route { logits, scores, own, ids, weights })
}

/// The `k` largest of `scores`, `[1, T, E]`, in executed order: value descending, exact ties by ascending id.
/// Output: `[1, T, k]` u32.
///
/// MLX's `argsort` is stable, so that negated scores give this order and, at the boundary, the lower id
/// (K15). `argpartition` leaves the order of the k open on the CPU, and is the same full sort on Metal.
pub fn top_k(scores: &Array, k: usize) -> Op {
    let order = ops::argsort_axis(scores.negative()?, -1)?;
    order.try_index((.., .., ..dim(k)))
}

/// The forced ids of one call and layer, `[1, T, k]` u32, in executed order.
pub fn forced_ids(choices: &Choices, rows: Range<usize>, layer: LayerId) -> Array {
    let shape = [1, dim(rows.len()), dim(choices.k())];
    let ids: Vec<u32> = rows.flat_map(|row| choices.at(row, layer)).map(|id| u32::from(id.0)).collect();
    Array::from_slice(&ids, &shape)
}
