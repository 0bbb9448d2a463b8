//! Planted bugs of norms (K6, K7, K9).

use super::{OURS, PUBLISHED};
use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use crate::port::Step;
use crate::port::norm;
use spec::LayerId;

/// Reports of norms with another epsilon, or with it in another place.
const EPSILON: &[&str] = &["aprender#1606", "llama.cpp#2373", "ik#324", "nntrainer#4318", "coremltools#2821"];

pub const ROWS: &[Mutant] = &[
    Mutant::new("one_plus_w_norm", Stage::Norm, "every norm multiplies by 1 + w instead of w")
        .rows(&["N02"])
        .seen_in(&[PUBLISHED])
        .port(&[Step::Norm], || Box::new(norm::OnePlusWeight)),
    Mutant::new(
        "swap_sandwich_norms",
        Stage::Norm,
        "the norm after attention and the one before the MoE are exchanged",
    )
    .seen_in(&[PUBLISHED])
    .checkpoint(swapped_sandwich),
    Mutant::new(
        "norm_statistics_bf16",
        Stage::Norm,
        "in bf16, a norm's squares and their mean are rounded to bf16",
    )
    .rows(&["N03"])
    .seen_in(&[OURS])
    .port(&[Step::Norm], || Box::new(norm::StatisticsRounded)),
    Mutant::new("norm_eps_x10", Stage::Norm, "every norm has ten times the epsilon")
        .rows(&["N01"])
        .seen_in(EPSILON)
        .port(&[Step::Norm], || Box::new(norm::EpsilonTenfold)),
    Mutant::new("qknorm_after_rope", Stage::Norm, "queries and keys are rotated first and normed afterwards")
        .rows(&["N04"])
        .seen_in(&[PUBLISHED])
        .port(&[Step::NormThenRotate], || Box::new(norm::HeadNormAfterRope)),
    Mutant::new("norm_eps_floor_1e4", Stage::Norm, "every norm's epsilon is 1e-4 at least")
        .rows(&["N01"])
        .seen_in(EPSILON)
        .port(&[Step::Norm], || Box::new(norm::EpsilonFloored)),
    Mutant::new(
        "norm_eps_after_rescale",
        Stage::Norm,
        "every norm divides by the largest value before it adds the epsilon",
    )
    .rows(&["N01"])
    .seen_in(EPSILON)
    .port(&[Step::Norm], || Box::new(norm::EpsilonAfterRescale)),
    Mutant::new("qk_norm_over_all_heads", Stage::Norm, "queries and keys are normed over all heads at once")
        .rows(&["N04"])
        .seen_in(&["vllm#16311", "Cerebras/modelzoo#85"])
        .port(&[Step::NormThenRotate], || Box::new(norm::OverAllHeads)),
    Mutant::new("qk_norm_missing", Stage::Norm, "queries and keys are not normed per head")
        .rows(&["N04"])
        .seen_in(&["Cerebras/modelzoo#85", "TRT#3491"])
        .port(&[Step::NormThenRotate], || Box::new(norm::HeadNormMissing)),
];

fn swapped_sandwich(facts: &Facts<'_>) -> Vec<Edit> {
    let name = |layer: LayerId, norm: &str| format!("model.layers.{layer}.{norm}.weight");
    let exchange =
        |layer| Edit::Exchange(name(layer, "post_attn_norm"), name(layer, "post_attention_layernorm"));
    facts.config.layer_ids().map(exchange).collect()
}
