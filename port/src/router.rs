//! Which experts a token goes to, and with which weights (K14 to K16).
//!
//! Inputs: the MoE's input `[1, T, H]`, forced ids or none. Outputs: logits, ids in executed order,
//! weights. [`route`] is the one place where forced ids enter; they replace ids only, the weights are
//! always the port's own.

use crate::engine::{Op, dim};
use crate::record::Span;
use crate::steps::Steps;
use crate::weights::RouterWeights;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, ops};
use spec::{Choices, LayerId, ModelConfig};

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

/// Routes `x`, `[1, T, H]`.
pub fn route(
    steps: &dyn Steps,
    router: &RouterWeights,
    config: &ModelConfig,
    x: &Array,
    forced: Option<&Forced>,
) -> Op<Route> {
    let logits = steps.router_logits(x, &router.gate)?;
    let scores = steps.selection_scores(&logits, &router.bias)?;
    let own = steps.select(&logits, &router.bias, config.experts_per_token)?;
    let ids = forced.map_or_else(|| Ok(own.clone()), |forced| forced.over(&own))?;
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

/// Ids from outside, for one call and layer.
#[derive(Debug)]
pub struct Forced {
    /// In executed order, `[B, T, k]` u32; where there is no token, any.
    ids: Array,
    /// The rows that are forced, `[B, 1, 1]` bool; `None`: all.
    rows: Option<Array>,
}

impl Forced {
    /// The ids of a call of `shape` rows and columns; `None` if no span's run is forced.
    pub fn of<'a>(
        spans: &[Span],
        shape: (usize, usize),
        layer: LayerId,
        choices: impl Fn(&Span) -> Option<&'a Choices>,
    ) -> Option<Self> {
        let (rows, columns) = shape;
        let k = spans.iter().find_map(&choices)?.k();
        let any = (0..rows * columns).flat_map(|_| 0..dim(k).unsigned_abs());
        let (mut ids, mut is_forced): (Vec<u32>, _) = (any.collect(), vec![false; rows]);
        for span in spans {
            let Some(choices) = choices(span) else { continue };
            is_forced[span.row] = true;
            let start = (span.row * columns + span.column) * k;
            let own = span.positions.clone().flat_map(|position| choices.at(position, layer));
            ids[start..].iter_mut().zip(own).for_each(|(id, own)| *id = own.0.into());
        }
        let rows_of = |is_forced: &[bool]| Array::from_slice(is_forced, &[dim(rows), 1, 1]);
        let all = spans.iter().all(|span| is_forced[span.row]);
        Some(Self {
            ids: Array::from_slice(&ids, &[dim(rows), dim(columns), dim(k)]),
            rows: (!all).then(|| rows_of(&is_forced)),
        })
    }

    /// These ids, and the side's own, `[B, T, k]` u32, in rows that choose freely.
    fn over(&self, own: &Array) -> Op {
        match &self.rows {
            None => Ok(self.ids.clone()),
            Some(rows) => ops::select(rows, &self.ids, own),
        }
    }
}
