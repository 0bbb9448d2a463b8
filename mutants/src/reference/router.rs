//! Bugs of router logits, selection and routing weights (K14 to K16).

use super::product::bf16;
use ndarray::{ArrayView2, ArrayViewMut2};
use reference::steps::{Matrix, Norm};
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

/// Selects on the logits alone.
pub struct Unbiased;

impl Steps for Unbiased {
    fn selection_scores(&self, _config: &ModelConfig, logits: &[f32], _bias: &[f32], scores: &mut [f32]) {
        scores.copy_from_slice(logits);
    }
}

/// Adds the bias rounded to bf16.
pub struct Bf16Bias;

impl Steps for Bf16Bias {
    fn selection_scores(&self, config: &ModelConfig, logits: &[f32], bias: &[f32], scores: &mut [f32]) {
        let bias: Vec<f32> = bias.iter().copied().map(bf16).collect();
        Correct.selection_scores(config, logits, &bias, scores);
    }
}

/// Weights times another scale than the config's.
pub struct RouteScale(pub fn(f32) -> f32);

impl Steps for RouteScale {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        let config = ModelConfig { route_scale: (self.0)(config.route_scale), ..config.clone() };
        Correct.topk_weights(&config, logits, scores, ids)
    }
}

/// Weights from `sigmoid(logit + bias)`.
pub struct BiasedWeights;

impl Steps for BiasedWeights {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        _logits: &[f32],
        scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        Correct.topk_weights(config, scores, scores, ids)
    }
}

/// Weights rounded to bf16.
pub struct Bf16Weights;

impl Steps for Bf16Weights {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        Correct.topk_weights(config, logits, scores, ids).into_iter().map(bf16).collect()
    }
}

/// Weights from a softmax over all experts.
pub struct SoftmaxWeights;

impl Steps for SoftmaxWeights {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        _scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        let mut shares = logits.to_vec();
        Correct.softmax(&mut shares);
        weights_of(config, ids.iter().map(|id| shares[id.index()]).collect())
    }
}

/// The logits themselves as weights.
pub struct RawLogits;

impl Steps for RawLogits {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        _scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        weights_of(config, ids.iter().map(|id| logits[id.index()]).collect())
    }
}

/// Divided by their sum and scaled as the model says (K16).
fn weights_of(config: &ModelConfig, mut scores: Vec<f32>) -> Vec<f32> {
    if config.renormalise_topk {
        let sum: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
    }
    scores.into_iter().map(|score| score * config.route_scale).collect()
}

/// The last of the k has no weight.
pub struct LastWithoutWeight;

impl Steps for LastWithoutWeight {
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        let mut weights = Correct.topk_weights(config, logits, scores, ids);
        weights[ids.len() - 1] = 0.0;
        weights
    }
}

/// The first of the k again in place of the last.
pub struct FirstTwice;

impl Steps for FirstTwice {
    fn select(&self, scores: &[f32], k: usize) -> Vec<ExpertId> {
        let mut ids = Correct.select(scores, k);
        ids[k - 1] = ids[0];
        ids
    }
}

/// The router's matrix in 4 bits for each group of [`GROUP`] along a row: 15 equal steps from the least to
/// the largest. The width has to be a multiple of the group.
pub struct FourBitGate;

/// Values that share a range.
const GROUP: usize = 32;

impl Steps for FourBitGate {
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        if which != Matrix::Router {
            return Correct.product(which, x, w, out);
        }
        let mut gate = w.as_standard_layout().into_owned();
        gate.as_slice_mut().expect("just laid out").chunks_exact_mut(GROUP).for_each(four_bits);
        Correct.product(which, x, gate.view(), out);
    }
}

fn four_bits(group: &mut [f32]) {
    let (least, largest) = group
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(least, largest), &x| (x.min(least), x.max(largest)));
    let step = ((largest - least) / 15.0).max(f32::MIN_POSITIVE);
    group.iter_mut().for_each(|x| *x = ((*x - least) / step).round_ties_even() * step + least);
}

/// The router's input normed once more, without a weight.
pub struct RenormedInput;

impl Steps for RenormedInput {
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        if which != Matrix::Router {
            return Correct.product(which, x, w, out);
        }
        let mut x = x.as_standard_layout().into_owned();
        let ones = vec![1.0; x.ncols()];
        Correct.rms_norm(Norm::MoeInput, x.view_mut(), &ones, 1e-6);
        Correct.product(which, x.view(), w, out);
    }
}
