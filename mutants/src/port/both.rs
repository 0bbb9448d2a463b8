//! Several bugs in one port, each in steps of its own.

use mlx_rs::Array;
use port::attention::{Rope, norm_then_rotate};
use port::batch::Row;
use port::batch_cache::BatchCache;
use port::cache::Cache;
use port::engine::Op;
use port::experts::{Routed, Shared, routed, shared};
use port::mask::Mask;
use port::router::top_k;
use port::weights::{ExpertWeights, SharedWeights};
use port::{Correct, Steps, Weight};
use spec::{LayerId, ModelConfig};

/// A method of [`Steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named after its method")]
pub enum Step {
    Embed,
    Norm,
    Linear,
    RopePeriods,
    Rotates,
    RopeOffset,
    Rotate,
    NormThenRotate,
    Window,
    Cache,
    Mask,
    BatchOffsets,
    RotateRows,
    BatchMask,
    Leave,
    Join,
    Attend,
    Residual,
    RouterLogits,
    SelectionScores,
    Select,
    TopkWeights,
    ExpertProduct,
    Activate,
    Routed,
    Combine,
    Shared,
    MoeSum,
    FinalNorm,
    Logits,
}

impl Step {
    /// The steps that the correct body of this one calls.
    fn calls(self) -> &'static [Step] {
        match self {
            Step::NormThenRotate => &[Step::Norm, Step::Rotate],
            Step::Select => &[Step::SelectionScores],
            Step::Routed => &[Step::ExpertProduct, Step::Activate],
            Step::Shared => &[Step::Linear, Step::Activate],
            Step::FinalNorm => &[Step::Norm],
            _ => &[],
        }
    }

    /// Whether a bug in the one hides or changes a bug in the other.
    fn meets(self, other: Step) -> bool {
        self == other || self.calls().contains(&other) || other.calls().contains(&self)
    }
}

/// Whether bugs in these steps can be planted side by side.
pub fn are_apart(one: &[Step], other: &[Step]) -> bool {
    !one.iter().any(|a| other.iter().any(|b| a.meets(*b)))
}

/// Each step of the part that has it, all others correct.
pub struct Both(pub Vec<(&'static [Step], Box<dyn Steps>)>);

impl Both {
    fn part(&self, step: Step) -> Option<&dyn Steps> {
        self.0.iter().find(|(of, _)| of.contains(&step)).map(|(_, part)| &**part)
    }

    fn of(&self, step: Step) -> &dyn Steps {
        self.part(step).unwrap_or(&Correct)
    }
}

/// Methods that call no other.
macro_rules! each_of_its_part {
    ($($step:ident: fn $name:ident($($argument:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $out {
            self.of(Step::$step).$name($($argument),*)
        })*
    };
}

impl Steps for Both {
    each_of_its_part! {
        Embed: fn embed(table: &Weight, ids: &Array) -> Op;
        Norm: fn norm(x: &Array, weight: &Array, eps: f32) -> Op;
        Linear: fn linear(x: &Array, weight: &Weight) -> Op;
        RopePeriods: fn rope_periods(config: &ModelConfig) -> Array;
        Rotates: fn rotates(config: &ModelConfig, layer: LayerId) -> bool;
        RopeOffset: fn rope_offset(cached: usize) -> usize;
        Rotate: fn rotate(x: &Array, rope: Rope<'_>) -> Op;
        Window: fn window(config: &ModelConfig, layer: LayerId) -> Option<usize>;
        Cache: fn cache(window: Option<usize>) -> Box<dyn Cache>;
        Mask: fn mask(window: Option<usize>, queries: usize, keys: usize) -> Op<Mask>;
        BatchOffsets: fn batch_offsets(rows: &[Row]) -> Vec<i32>;
        RotateRows: fn rotate_rows(x: &Array, periods: &Array, offsets: &Array) -> Op;
        BatchMask: fn batch_mask(window: Option<usize>, queries: &Array, keys: &Array) -> Op<Mask>;
        Leave: fn leave(cache: &mut BatchCache, stay: &[usize]) -> Op<()>;
        Join: fn join(cache: &mut BatchCache, new: BatchCache) -> Op<()>;
        Attend: fn attend(q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op;
        Residual: fn residual(h: &Array, branch: &Array) -> Op;
        RouterLogits: fn router_logits(x: &Array, gate: &Array) -> Op;
        SelectionScores: fn selection_scores(logits: &Array, bias: &Array) -> Op;
        TopkWeights: fn topk_weights(l: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op;
        ExpertProduct: fn expert_product(rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op;
        Activate: fn activate(gate: &Array, up: &Array) -> Op;
        Combine: fn combine(outputs: &Array, weights: &Array) -> Op;
        MoeSum: fn moe_sum(routed: &Array, shared: &Array) -> Op;
        Logits: fn logits(x: &Array, lm_head: &Weight) -> Op;
    }

    fn norm_then_rotate(
        &self,
        x: &Array,
        weight: &Array,
        eps: f32,
        rope: Option<Rope<'_>>,
    ) -> Op<(Array, Array)> {
        match self.part(Step::NormThenRotate) {
            Some(part) => part.norm_then_rotate(x, weight, eps, rope),
            None => norm_then_rotate(self, x, weight, eps, rope),
        }
    }

    fn select(&self, logits: &Array, bias: &Array, k: usize) -> Op {
        match self.part(Step::Select) {
            Some(part) => part.select(logits, bias, k),
            None => top_k(&self.selection_scores(logits, bias)?, k),
        }
    }

    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<Routed> {
        match self.part(Step::Routed) {
            Some(part) => part.routed(weights, x, ids),
            None => routed(self, weights, x, ids),
        }
    }

    fn shared(&self, weights: &SharedWeights, x: &Array) -> Op<Shared> {
        match self.part(Step::Shared) {
            Some(part) => part.shared(weights, x),
            None => shared(self, weights, x),
        }
    }

    fn final_norm(&self, h: &Array, weight: &Array, eps: f32) -> Op {
        match self.part(Step::FinalNorm) {
            Some(part) => part.final_norm(h, weight, eps),
            None => self.norm(h, weight, eps),
        }
    }
}
