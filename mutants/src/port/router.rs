//! Bugs of router logits, selection and routing weights (K14 to K16).

use super::through;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, fast, ops};
use port::engine::{Op, dim};
use port::router::top_k;
use port::{Correct, Steps};
use spec::ModelConfig;

/// Selects on `sigmoid(logit) + bias`.
pub struct SigmoidPlusBias;

impl Steps for SigmoidPlusBias {
    fn select(&self, logits: &Array, bias: &Array, k: usize) -> Op {
        top_k(&ops::sigmoid(logits)?.add(bias)?, k)
    }
}

/// Selects on the logits alone.
pub struct Unbiased;

impl Steps for Unbiased {
    fn select(&self, logits: &Array, _bias: &Array, k: usize) -> Op {
        top_k(logits, k)
    }
}

/// Logits rounded to a narrower dtype.
pub struct RoundedLogits(pub Dtype);

impl Steps for RoundedLogits {
    fn router_logits(&self, x: &Array, gate: &Array) -> Op {
        through(self.0, &Correct.router_logits(x, gate)?)
    }
}

/// Weights divided by their sum.
pub struct Renormalised;

impl Steps for Renormalised {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let config = ModelConfig { renormalise_topk: true, ..config.clone() };
        Correct.topk_weights(logits, bias, ids, &config)
    }
}

/// Weights times a scale that this model does not have.
pub struct RouteScale(pub f32);

impl Steps for RouteScale {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let config = ModelConfig { route_scale: config.route_scale * self.0, ..config.clone() };
        Correct.topk_weights(logits, bias, ids, &config)
    }
}

/// Weights without the model's scale.
pub struct RouteScaleMissing;

impl Steps for RouteScaleMissing {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        Correct.topk_weights(logits, bias, ids, &ModelConfig { route_scale: 1.0, ..config.clone() })
    }
}

/// Weights times the model's scale, twice.
pub struct RouteScaleSquared;

impl Steps for RouteScaleSquared {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        RouteScale(config.route_scale).topk_weights(logits, bias, ids, config)
    }
}

/// Weights from a softmax over all experts.
pub struct Softmax;

impl Steps for Softmax {
    fn topk_weights(&self, logits: &Array, _bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let scores = ops::softmax_axis(logits, -1, true)?;
        weights_of(&scores.take_along_axis(ids, -1)?, config)
    }
}

/// The logits themselves as weights.
pub struct RawLogits;

impl Steps for RawLogits {
    fn topk_weights(&self, logits: &Array, _bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        weights_of(&logits.take_along_axis(ids, -1)?, config)
    }
}

/// Divided by their sum and scaled as the model says (K16). `scores`: `[1, T, k]`.
fn weights_of(scores: &Array, config: &ModelConfig) -> Op {
    let weights = match config.renormalise_topk {
        true => scores.divide(scores.sum_axis(-1, true)?)?,
        false => scores.clone(),
    };
    weights.multiply(Array::from_f32(config.route_scale))
}

/// The last of the k has no weight.
pub struct LastWithoutWeight;

impl Steps for LastWithoutWeight {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let weights = Correct.topk_weights(logits, bias, ids, config)?;
        let slot = ops::arange::<_, i32>(None, ids.dim(-1), None)?;
        weights.multiply(slot.lt(Array::from_int(ids.dim(-1) - 1))?)
    }
}

/// The first of the k again in place of the last.
pub struct FirstTwice;

impl Steps for FirstTwice {
    fn select(&self, logits: &Array, bias: &Array, k: usize) -> Op {
        let ids = Correct.select(logits, bias, k)?;
        let (first, rest) = (ids.try_index((.., .., ..1))?, ids.try_index((.., .., ..dim(k - 1)))?);
        ops::concatenate(&[rest, first], -1)
    }
}

/// The router's matrix in 4 bits for each group of [`GROUP`] along a row: 15 equal steps from the least to
/// the largest. The width has to be a multiple of the group.
pub struct FourBitGate;

/// Values that share a range.
const GROUP: i32 = 32;

impl Steps for FourBitGate {
    fn router_logits(&self, x: &Array, gate: &Array) -> Op {
        let groups = gate.reshape(&[gate.dim(0), -1, GROUP])?;
        let (least, largest) = (groups.min_axis(-1, true)?, groups.max_axis(-1, true)?);
        let step = largest.subtract(&least)?.divide(Array::from_f32(15.0))?;
        let step = ops::maximum(&step, Array::from_f32(f32::MIN_POSITIVE))?;
        let codes = groups.subtract(&least)?.divide(&step)?.round(None)?;
        Correct.router_logits(x, &codes.multiply(&step)?.add(&least)?.reshape(gate.shape())?)
    }
}

/// The router's input normed once more, without a weight.
pub struct RenormedInput;

impl Steps for RenormedInput {
    fn router_logits(&self, x: &Array, gate: &Array) -> Op {
        Correct.router_logits(&fast::rms_norm(x.as_dtype(Dtype::Float32)?, None, 1e-6)?, gate)
    }
}

/// Weights from `sigmoid(logit + bias)`.
pub struct BiasedWeights;

impl Steps for BiasedWeights {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        Correct.topk_weights(&logits.add(bias)?, bias, ids, config)
    }
}

/// Weights rounded to bf16.
pub struct Bf16Weights;

impl Steps for Bf16Weights {
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        through(Dtype::Bfloat16, &Correct.topk_weights(logits, bias, ids, config)?)
    }
}
