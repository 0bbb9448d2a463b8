//! Bugs of router logits, selection and routing weights (K14 to K16).

use super::through;
use mlx_rs::{Array, Dtype, ops};
use port::engine::Op;
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
