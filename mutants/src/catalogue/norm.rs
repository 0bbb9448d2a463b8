//! Planted bugs of norms (K6, K7, K9).

use super::{OURS, PUBLISHED};
use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use crate::port::Step;
use crate::port::norm;
use spec::LayerId;

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
        .seen_in(&["aprender#1606", "llama.cpp#2373", "ik#324", "nntrainer#4318", "coremltools#2821"])
        .port(&[Step::Norm], || Box::new(norm::EpsilonTenfold)),
    Mutant::new("qknorm_after_rope", Stage::Norm, "queries and keys are rotated first and normed afterwards")
        .rows(&["N04"])
        .seen_in(&[PUBLISHED])
        .port(&[Step::NormThenRotate], || Box::new(norm::HeadNormAfterRope)),
];

fn swapped_sandwich(facts: &Facts<'_>) -> Vec<Edit> {
    let name = |layer: LayerId, norm: &str| format!("model.layers.{layer}.{norm}.weight");
    let exchange =
        |layer| Edit::Exchange(name(layer, "post_attn_norm"), name(layer, "post_attention_layernorm"));
    facts.config.layer_ids().map(exchange).collect()
}
