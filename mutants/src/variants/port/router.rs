//! The same selection and weights otherwise (K15, K16).

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, ops};
use port::engine::{Op, dim};
use port::router::top_k;
use port::{Correct, Steps};
use spec::ModelConfig;
use spec::config::RouterScore;

/// The k largest are parted from the others first and put into order afterwards. Which of two equal scores is
/// the k-th is left open.
pub struct PartedThenOrdered;

impl Steps for PartedThenOrdered {
    fn select(&self, logits: &Array, bias: &Array, k: usize) -> Op {
        let scores = self.selection_scores(logits, bias)?;
        let parted = ops::argpartition_axis(scores.negative()?, dim(k - 1), -1)?;
        let chosen = ops::sort_axis(parted.try_index((.., .., ..dim(k)))?, -1)?;
        let order = top_k(&scores.take_along_axis(&chosen, -1)?, k)?;
        chosen.take_along_axis(order, -1)
    }
}

/// `1 / (1 + exp(-x))`.
pub struct SigmoidByExp;

impl Steps for SigmoidByExp {
    fn topk_weights(&self, logits: &Array, _bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let RouterScore::Sigmoid = config.router_score;
        let chosen = logits.take_along_axis(ids, -1)?;
        let scores = chosen.negative()?.exp()?.add(Array::from_f32(1.0))?.reciprocal()?;
        let weights = match config.renormalise_topk {
            true => scores.multiply(scores.sum_axis(-1, true)?.reciprocal()?)?,
            false => scores,
        };
        weights.multiply(Array::from_f32(config.route_scale))
    }
}

/// Sigmoids of all logits, then those of the chosen.
pub struct SigmoidBeforeChoice;

impl Steps for SigmoidBeforeChoice {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let every = ops::arange::<_, u32>(None, logits.dim(-1), None)?;
        let every = ops::broadcast_to(every, logits.shape())?;
        let unscaled = ModelConfig { renormalise_topk: false, route_scale: 1.0, ..config.clone() };
        let scores = Correct.topk_weights(logits, bias, &every, &unscaled)?.take_along_axis(ids, -1)?;
        let weights = match config.renormalise_topk {
            true => scores.divide(scores.sum_axis(-1, true)?)?,
            false => scores,
        };
        weights.multiply(Array::from_f32(config.route_scale))
    }
}
