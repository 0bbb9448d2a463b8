//! Correct rewrites of the port's steps, by stage. Shapes as in [`::port::Steps`].

mod attention;
mod cache;
mod experts;
mod norm;
mod product;
mod rope;
mod router;

use super::OURS;
use crate::mutant::{Mutant, Stage};
use crate::port::Step;

pub const ROWS: &[Mutant] = &[
    Mutant::rewrite(
        "embedding_as_product",
        Stage::Embedding,
        "embedded rows are products with rows of one 1 and zeros",
    )
    .seen_in(&[OURS])
    .port(&[Step::Embed], || Box::new(product::OneHotEmbedding)),
    Mutant::rewrite("norm_divided", Stage::Norm, "every norm divides by a root instead of multiplying")
        .seen_in(&[OURS])
        .port(&[Step::Norm], || Box::new(norm::Divided)),
    Mutant::rewrite(
        "norm_rounded_before_weight",
        Stage::Norm,
        "in bf16, a norm rounds before it multiplies by the weight as well as after",
    )
    .rows(&["N03"])
    .seen_in(&["HF#29402", "lmdeploy#2842"])
    .port(&[Step::Norm], || Box::new(norm::RoundedBeforeWeight)),
    Mutant::rewrite("norm_in_working_dtype", Stage::Norm, "in bf16, every norm is MLX's own of bf16")
        .rows(&["N03"])
        .seen_in(&["HF#29402", "lmdeploy#2842"])
        .port(&[Step::Norm], || Box::new(norm::InWorkingDtype)),
    Mutant::rewrite("residual_exchanged", Stage::Norm, "the residual is added to the branch")
        .seen_in(&[OURS])
        .port(&[Step::Residual], || Box::new(norm::BranchFirst)),
    Mutant::rewrite("rope_from_table", Stage::Rope, "cosines and sines are looked up in a table")
        .seen_in(&[OURS])
        .port(&[Step::Rotate], || Box::<rope::FromTable>::default()),
    Mutant::rewrite("rope_on_halves", Stage::Rope, "each half of a head is turned by the formula")
        .seen_in(&[OURS])
        .port(&[Step::Rotate], || Box::new(rope::OnHalves)),
    Mutant::rewrite("rope_angles_divided", Stage::Rope, "angles are positions divided by periods")
        .seen_in(&["litgpt#1031", super::PUBLISHED])
        .port(&[Step::Rotate], || Box::new(rope::AnglesDivided)),
    Mutant::rewrite(
        "rope_pairs_side_by_side",
        Stage::Rope,
        "neighbouring values are turned as pairs, in heads reordered to match",
    )
    .seen_in(&[OURS])
    .port(&[Step::Rotate], || Box::new(rope::PairsSideBySide)),
    Mutant::rewrite("mask_added", Stage::Mask, "the mask is added to the scores as a large negative number")
        .seen_in(&[OURS])
        .port(&[Step::Attend], || Box::new(attention::MaskAdded)),
    Mutant::rewrite(
        "full_cache_with_window_mask",
        Stage::Cache,
        "sliding layers keep every key and mask those beyond the window",
    )
    .seen_in(&[OURS])
    .port(&[Step::Cache, Step::Mask], || Box::new(cache::FullWithWindowMask)),
    Mutant::rewrite(
        "cache_with_spare_slots",
        Stage::Cache,
        "sliding layers keep keys in order, in seven slots more than the window",
    )
    .seen_in(&[OURS])
    .port(&[Step::Cache], || Box::new(cache::SpareSlots)),
    Mutant::rewrite("products_in_halves", Stage::Attention, "each half of a product is a sum of its own")
        .seen_in(&[OURS])
        .port(&[Step::Linear], || Box::new(product::InHalves)),
    Mutant::rewrite("products_weight_first", Stage::Attention, "weights multiply from the left")
        .seen_in(&[OURS])
        .port(&[Step::Linear], || Box::new(product::WeightFirst)),
    Mutant::rewrite(
        "attention_explicit",
        Stage::Attention,
        "attention is two products, divided by its weights' sums afterwards",
    )
    .seen_in(&[OURS])
    .port(&[Step::Attend], || Box::new(attention::Explicit)),
    Mutant::rewrite(
        "kv_heads_repeated",
        Stage::Attention,
        "keys and values are repeated for every query head",
    )
    .seen_in(&[OURS])
    .port(&[Step::Attend], || Box::new(attention::KvRepeated)),
    Mutant::rewrite("router_weight_first", Stage::Router, "the router's matrix multiplies from the left")
        .seen_in(&[OURS])
        .port(&[Step::RouterLogits], || Box::new(product::GateFirst)),
    Mutant::rewrite("router_in_halves", Stage::Router, "router logits are sums of two halves")
        .seen_in(&[OURS])
        .port(&[Step::RouterLogits], || Box::new(product::RouterInHalves)),
    Mutant::rewrite("select_by_partition", Stage::Router, "the k largest are parted first, then ordered")
        .seen_in(&["vllm#54403"])
        .port(&[Step::Select], || Box::new(router::PartedThenOrdered)),
    Mutant::rewrite("sigmoid_by_exp", Stage::Router, "the sigmoid of a weight is made of an exponential")
        .seen_in(&[OURS])
        .port(&[Step::TopkWeights], || Box::new(router::SigmoidByExp)),
    Mutant::rewrite("sigmoid_before_choice", Stage::Router, "all experts have their sigmoid, k are taken")
        .seen_in(&[OURS])
        .port(&[Step::TopkWeights], || Box::new(router::SigmoidBeforeChoice)),
    Mutant::rewrite("experts_unsorted", Stage::Experts, "experts run in the order of tokens and choices")
        .seen_in(&[OURS])
        .port(&[Step::Routed], || Box::new(experts::Unsorted)),
    Mutant::rewrite("experts_descending", Stage::Experts, "the expert of the highest id runs first")
        .seen_in(&[OURS])
        .port(&[Step::Routed], || Box::new(experts::Descending)),
    Mutant::rewrite("experts_permuted", Stage::Experts, "experts are stacked in another order, with a map")
        .seen_in(&[OURS])
        .port(&[Step::Routed], || Box::new(experts::Permuted)),
    Mutant::rewrite("experts_fused", Stage::Experts, "routed gate and up projections are one product")
        .seen_in(&[OURS])
        .port(&[Step::Routed], || Box::new(experts::RoutedFused)),
    Mutant::rewrite("shared_fused", Stage::Experts, "shared gate and up projections are one product")
        .seen_in(&[OURS])
        .port(&[Step::Shared], || Box::new(experts::SharedFused)),
    Mutant::rewrite("expert_products_in_halves", Stage::Experts, "each half of an expert's product is a sum")
        .seen_in(&[OURS])
        .port(&[Step::ExpertProduct], || Box::new(experts::ProductInHalves)),
    Mutant::rewrite("silu_by_exp", Stage::Experts, "the activation divides by 1 plus an exponential")
        .seen_in(&[OURS])
        .port(&[Step::Activate], || Box::new(experts::SiluByExp)),
    Mutant::rewrite("sigmoid_last", Stage::Experts, "gate times up is multiplied by the sigmoid afterwards")
        .seen_in(&[OURS])
        .port(&[Step::Activate], || Box::new(experts::SigmoidLast)),
    Mutant::rewrite("combine_last_first", Stage::Experts, "the k experts are summed from the last on")
        .seen_in(&[OURS])
        .port(&[Step::Combine], || Box::new(experts::LastFirst)),
    Mutant::rewrite("combine_as_product", Stage::Experts, "weights multiply outputs as a row a matrix")
        .seen_in(&[OURS])
        .port(&[Step::Combine], || Box::new(experts::CombinedAsProduct)),
    Mutant::rewrite("moe_sum_exchanged", Stage::Experts, "routed outputs are added to the shared one")
        .seen_in(&[OURS])
        .port(&[Step::MoeSum], || Box::new(experts::SharedFirst)),
    Mutant::rewrite("logits_in_blocks", Stage::Head, "logits are made of 100 rows of the head at a time")
        .seen_in(&[OURS])
        .port(&[Step::Logits], || Box::new(product::LogitsInBlocks)),
];
