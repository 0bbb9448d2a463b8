//! Bugs of selection and of routing weights (K15, K16).

use reference::{Correct, Steps};
use spec::{ExpertId, ModelConfig};

/// Selects on `sigmoid(logit) + bias`.
pub struct SigmoidPlusBias;

impl Steps for SigmoidPlusBias {
    fn selection_scores(&self, _config: &ModelConfig, logits: &[f32], bias: &[f32], scores: &mut [f32]) {
        for ((score, logit), bias) in scores.iter_mut().zip(logits).zip(bias) {
            *score = 1.0 / (1.0 + (-logit).exp()) + bias;
        }
    }
}

/// Weights divided by their sum.
pub struct Renormalised;

impl Steps for Renormalised {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        let weights = Correct.topk_weights(config, logits, scores, ids);
        let sum: f32 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum * config.route_scale).collect()
    }
}
