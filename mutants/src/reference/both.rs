//! Several bugs in one lane of the reference, each in steps of its own.

use ndarray::{ArrayView2, ArrayViewMut2};
use reference::steps::{Heads, Matrix, Norm};
use reference::{Correct, Steps};
use spec::{ExpertId, LayerId, ModelConfig};
use std::ops::Range;

/// A method of [`Steps`]; of the product, one matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named after its method")]
pub enum Step {
    Embed,
    NormWeight,
    RmsNorm,
    Product(Matrix),
    QkNorm,
    InvFreq,
    QkRope,
    KvHead,
    Visible,
    AttentionScale,
    Softmax,
    SelectionScores,
    Select,
    TopkWeights,
    Activate,
    Combine,
    AddShared,
    AddBranch,
}

/// Whether bugs in these steps can be planted side by side.
pub fn are_apart(one: &[Step], other: &[Step]) -> bool {
    !one.iter().any(|step| other.contains(step))
}

/// Each step of the part that has it, all others correct.
pub struct Both(pub Vec<(&'static [Step], Box<dyn Steps>)>);

impl Both {
    fn of(&self, step: Step) -> &dyn Steps {
        let part = self.0.iter().find(|(of, _)| of.contains(&step));
        part.map_or(&Correct, |(_, part)| &**part)
    }
}

macro_rules! each_of_its_part {
    ($($step:expr => fn $name:ident($($argument:ident: $kind:ty),*) $(-> $out:ty)?;)*) => {
        $(fn $name(&self, $($argument: $kind),*) $(-> $out)? {
            self.of($step).$name($($argument),*)
        })*
    };
}

impl Steps for Both {
    each_of_its_part! {
        Step::Embed => fn embed(config: &ModelConfig, rows: ArrayViewMut2<'_, f32>);
        Step::NormWeight => fn norm_weight(which: Norm) -> Norm;
        Step::RmsNorm => fn rms_norm(which: Norm, rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32);
        Step::QkNorm => fn qk_norm(heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>);
        Step::InvFreq => fn inv_freq(config: &ModelConfig) -> Vec<f32>;
        Step::QkRope => fn qk_rope(heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>);
        Step::KvHead => fn kv_head(config: &ModelConfig, head: usize) -> usize;
        Step::Visible => fn visible(config: &ModelConfig, layer: LayerId, query: usize) -> Range<usize>;
        Step::AttentionScale => fn attention_scale(config: &ModelConfig) -> f32;
        Step::Softmax => fn softmax(scores: &mut [f32]);
        Step::SelectionScores =>
            fn selection_scores(config: &ModelConfig, logits: &[f32], bias: &[f32], scores: &mut [f32]);
        Step::Select => fn select(scores: &[f32], k: usize) -> Vec<ExpertId>;
        Step::TopkWeights =>
            fn topk_weights(config: &ModelConfig, l: &[f32], scores: &[f32], ids: &[ExpertId]) -> Vec<f32>;
        Step::Activate => fn activate(gate: ArrayViewMut2<'_, f32>, up: ArrayView2<'_, f32>);
        Step::Combine => fn combine(outputs: &[&[f32]], weights: &[f32], sum: &mut [f32]);
        Step::AddShared => fn add_shared(sum: ArrayViewMut2<'_, f32>, shared: ArrayView2<'_, f32>);
        Step::AddBranch => fn add_branch(h: ArrayViewMut2<'_, f32>, branch: ArrayView2<'_, f32>);
    }

    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        self.of(Step::Product(which)).product(which, x, w, out);
    }
}
