//! Planted bugs of the experts and their sum (K17).

use super::{OURS, PUBLISHED};
use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::{experts, gather};

pub const ROWS: &[Mutant] = &[
    Mutant::new(
        "swiglu_swapped",
        Stage::Experts,
        "the activation is on the up projection instead of the gate",
    )
    .seen_in(&[PUBLISHED])
    .port(&[Step::Activate], || Box::new(experts::SwappedGate)),
    Mutant::new(
        "activation_rounded_per_step",
        Stage::Experts,
        "in bf16, SiLU rounds after each of its three steps",
    )
    .seen_in(&[OURS])
    .port(&[Step::Activate], || Box::new(experts::ActivationRounded)),
    Mutant::new("combine_rounded_per_term", Stage::Experts, "the weighted sum is rounded after each term")
        .rows(&["X05"])
        .seen_in(&["mlx-lm#938", "TRT#16778", "Automodel#2591"])
        .port(&[Step::Combine], || Box::new(experts::RoundedPerTerm)),
    Mutant::new("shared_half", Stage::Experts, "half of the shared expert's output is added")
        .rows(&["X02"])
        .seen_in(&[PUBLISHED])
        .port(&[Step::Shared], || Box::new(experts::SharedScaled(0.5))),
    Mutant::new("gelu_for_silu", Stage::Experts, "experts activate with GELU instead of SiLU")
        .rows(&["X04"])
        .seen_in(&["MBridge#4661", "vllm#3411", "HF#29402"])
        .port(&[Step::Activate], || Box::new(experts::Gelu)),
    Mutant::new("shared_missing", Stage::Experts, "the shared expert's output is not added")
        .rows(&["X01"])
        .seen_in(&["ATOM#1076", "sglang#38963"])
        .port(&[Step::MoeSum], || Box::new(experts::SharedMissing)),
    Mutant::new("shared_scaled_twice", Stage::Experts, "twice the shared expert's output is added")
        .rows(&["X02"])
        .seen_in(&["sglang#28237", "NousResearch/torchtitan#36", "vllm-ascend#15953", "ik#1368"])
        .port(&[Step::Shared], || Box::new(experts::SharedScaled(2.0))),
    Mutant::new("shared_is_routed", Stage::Experts, "the first routed expert takes the shared one's place")
        .rows(&["X01"])
        .seen_in(&["ATOM#1076", "sglang#38963"])
        .needs(&[Need::EqualWidths])
        .checkpoint(routed_for_shared),
    Mutant::new(
        "gather_rows_beyond_32768_stale",
        Stage::Experts,
        "of a sorted gather's rows, no multiple of 64, those from 32,768 on are stale",
    )
    .rows(&["K01"])
    .seen_in(&["mlx#3856", "mlx#3922", "mlx#3887", "mlx#4009"])
    .port(&[Step::ExpertProduct], || Box::new(gather::StaleRows)),
    Mutant::new(
        "gather_last_k_terms",
        Stage::Experts,
        "a sorted gather leaves out the terms of a sum that do not fill the last 64",
    )
    .rows(&["K01"])
    .seen_in(&["mlx#3856", "mlx#3922", "mlx#3887", "mlx#4009"])
    .port(&[Step::ExpertProduct], || Box::new(gather::LastTerms)),
    Mutant::new(
        "gather_strided_expert",
        Stage::Experts,
        "a sorted gather reads rows and experts as if they lay one after the other",
    )
    .rows(&["K02"])
    .seen_in(&["mlx#4055", "mlx#4253", "mlx#3960"])
    .port(&[Step::ExpertProduct], || Box::new(gather::StridesIgnored)),
    Mutant::new(
        "idle_expert_junk",
        Stage::Experts,
        "a sorted gather does not write the row behind an expert without rows",
    )
    .rows(&["K04"])
    .seen_in(&["grouped_gemm#36"])
    .port(&[Step::ExpertProduct], || Box::new(gather::IdleJunk)),
    Mutant::new(
        "few_token_expert_wrong",
        Stage::Experts,
        "of an expert with two or three rows a sorted gather repeats the first",
    )
    .rows(&["K04"])
    .seen_in(&["ik#446"])
    .port(&[Step::ExpertProduct], || Box::new(gather::FewRows)),
];

fn routed_for_shared(facts: &Facts<'_>) -> Vec<Edit> {
    let layers = facts.config.layer_ids();
    let parts = layers.flat_map(|layer| ["gate_proj", "up_proj", "down_proj"].map(|part| (layer, part)));
    let copy = |(layer, part)| Edit::Copy {
        from: format!("model.layers.{layer}.mlp.experts.0.{part}.weight"),
        to: format!("model.layers.{layer}.mlp.shared_experts.{part}.weight"),
    };
    parts.map(copy).collect()
}
