//! The planted bugs, one row each.
//!
//! A row without a report of its own says where it comes from: [`PUBLISHED`], or [`OURS`]. Absent on purpose:
//! which check must see a row, which the gate says, and what each looks like, which `tests/` measures.

use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, Stage};
use crate::port::{attention, cache, embedding, experts, head, mask, norm, rope, router};
use crate::reference as plain;
use mlx_rs::Dtype;
use spec::{LayerId, census};

/// The gate that Kolibri's first port was published with.
const PUBLISHED: &str = "published Kolibri gate";
/// No report is known; made to show what a check can see.
const OURS: &str = "this project";

/// Every planted bug; ids are unique.
pub fn catalogue() -> &'static [Mutant] {
    CATALOGUE
}

/// The planted bug of that id.
pub fn find(id: &str) -> Option<&'static Mutant> {
    CATALOGUE.iter().find(|mutant| mutant.id == id)
}

static CATALOGUE: &[Mutant] = &[
    // Load
    Mutant::new("attn_output_gate", Stage::Load, "the checkpoint has an attention gate that nothing applies")
        .seen_in(&[PUBLISHED])
        .checkpoint(unexpected_gate),
    Mutant::new("missing_tensor", Stage::Load, "the checkpoint lacks one norm of its last layer")
        .seen_in(&[OURS])
        .checkpoint(missing_norm),
    Mutant::new("misshaped_tensor", Stage::Load, "a matrix says it is transposed and is not")
        .seen_in(&[OURS])
        .checkpoint(swapped_dims),
    Mutant::new("zeroed_idle_expert", Stage::Load, "an expert that no token goes to has no output")
        .seen_in(&["1Cat-vLLM#21", "HF#47407", "prime-rl#1145", "ROCmFPX#85"])
        .checkpoint(zeroed_expert),
    Mutant::new("layers_exchanged", Stage::Load, "two layers of one kind have each other's weights")
        .seen_in(&["NVIDIA-NeMo/RL#3259", "mlx-lm#1680", "exo#2287"])
        .checkpoint(exchanged_layers),
    // Embedding
    Mutant::new(
        "mup_embed_scale",
        Stage::Embedding,
        "embedded rows are multiplied by the root of their width",
    )
    .seen_in(&[PUBLISHED])
    .port(|| Box::new(embedding::Scaled)),
    // Norm
    Mutant::new("one_plus_w_norm", Stage::Norm, "every norm multiplies by 1 + w instead of w")
        .seen_in(&[PUBLISHED])
        .port(|| Box::new(norm::OnePlusWeight))
        .reference(|| Box::new(plain::norm::OnePlusWeight)),
    Mutant::new(
        "swap_sandwich_norms",
        Stage::Norm,
        "the norm after attention and the one before the MoE are exchanged",
    )
    .seen_in(&[PUBLISHED])
    .checkpoint(swapped_sandwich)
    .reference(|| Box::new(plain::norm::SandwichSwapped)),
    Mutant::new(
        "norm_statistics_bf16",
        Stage::Norm,
        "in bf16, a norm's squares and their mean are rounded to bf16",
    )
    .seen_in(&["this project"])
    .port(|| Box::new(norm::StatisticsRounded)),
    Mutant::new("norm_eps_x10", Stage::Norm, "every norm has ten times the epsilon")
        .seen_in(&["aprender#1606", "llama.cpp#2373", "ik#324", "nntrainer#4318", "coremltools#2821"])
        .port(|| Box::new(norm::EpsilonTenfold)),
    Mutant::new("qknorm_after_rope", Stage::Norm, "queries and keys are rotated first and normed afterwards")
        .seen_in(&[PUBLISHED])
        .port(|| Box::new(norm::HeadNormAfterRope))
        .reference(|| Box::new(plain::norm::HeadNormAfterRope)),
    // Rope
    Mutant::new("rope_on_full", Stage::Rope, "full layers rotate queries and keys too")
        .seen_in(&[PUBLISHED, "Camelid#535", "rknn-llm#501", "TRT#3382"])
        .port(|| Box::new(rope::OnEveryLayer))
        .reference(|| Box::new(plain::rope::OnEveryLayer)),
    Mutant::new("rope_traditional", Stage::Rope, "neighbouring values are rotated as pairs")
        .seen_in(&[PUBLISHED, "mlx-lm#512", "llama.cpp#7481", "mlx-lm#1698"])
        .port(|| Box::new(rope::AdjacentPairs))
        .reference(|| Box::new(plain::rope::AdjacentPairs)),
    Mutant::new("rope_restart_per_chunk", Stage::Rope, "each call counts its positions from 0")
        .seen_in(&[PUBLISHED, "mlx-node#33", "mlx-swift-lm#234", "mlx-swift-lm#406", "mlx-lm#1848"])
        .port(|| Box::new(rope::RestartsEachCall)),
    Mutant::new(
        "decode_offset_frozen",
        Stage::Rope,
        "all calls of one token rotate at the first such call's position",
    )
    .seen_in(&["mlx-lm#1848", "HF#43082", "VeloxQuant-MLX#389"])
    .port(|| Box::<rope::FrozenInDecode>::default()),
    Mutant::new("rope_bf16_frequencies", Stage::Rope, "frequencies are rounded to bf16")
        .seen_in(&["candle#3520", "sglang-jax#1473", "HF#29285"])
        .port(|| Box::new(rope::Bf16Frequencies)),
    Mutant::new(
        "rope_bf16_positions",
        Stage::Rope,
        "positions are rounded to bf16, which is exact up to 256",
    )
    .seen_in(&["candle#3520", "sglang-jax#1473", "HF#29285"])
    .port(|| Box::new(rope::Bf16Positions)),
    // Mask
    Mutant::new("window_one_short", Stage::Mask, "sliding layers see one key fewer than the window")
        .seen_in(&[PUBLISHED, "mlx-lm#390", "MBridge#2656", "sglang#26147"])
        .port(|| Box::new(mask::WindowOneShort)),
    Mutant::new("full_layers_windowed", Stage::Mask, "full layers have the sliding layers' window")
        .seen_in(&[PUBLISHED])
        .port(|| Box::new(mask::WindowEverywhere)),
    Mutant::new(
        "two_sink_tokens",
        Stage::Mask,
        "sliding layers always see the first two keys of their cache",
    )
    .seen_in(&[PUBLISHED])
    .port(|| Box::new(mask::TwoSinks)),
    Mutant::new(
        "mask_top_left",
        Stage::Mask,
        "the mask takes a call's first query to stand at the cache's first key",
    )
    .seen_in(&["mlx#2835", "executorch#22426", "candle#3743"])
    .port(|| Box::new(mask::AnchoredTopLeft)),
    // Cache
    Mutant::new(
        "cache_one_slot_short",
        Stage::Cache,
        "the rotating cache has a slot fewer than the window has keys",
    )
    .seen_in(&[PUBLISHED])
    .port(|| Box::new(cache::OneSlotShort)),
    Mutant::new("decode_window_short", Stage::Cache, "calls of one token see one key fewer than the window")
        .seen_in(&[PUBLISHED, "mlx-lm#390", "LightLLM#1311"])
        .port(|| Box::new(cache::DecodeWindowShort)),
    // Attention
    Mutant::new("attention_scale_one", Stage::Attention, "scores are not scaled")
        .seen_in(&["mlc-llm#3426", "ferrox#40", "llama.cpp#13951", "TransformerLens#694"])
        .port(|| Box::new(attention::Unscaled)),
    Mutant::new(
        "attention_scale_hidden",
        Stage::Attention,
        "the scale goes by hidden size over heads, not by the heads' width",
    )
    .seen_in(&["mlc-llm#3426", "ferrox#40", "llama.cpp#13951", "TransformerLens#694"])
    .port(|| Box::<attention::ScaledByHidden>::default()),
    // Router
    Mutant::new(
        "sigmoid_bias_select",
        Stage::Router,
        "the bias is added to the sigmoid instead of the logit",
    )
    .seen_in(&[PUBLISHED])
    .port(|| Box::new(router::SigmoidPlusBias))
    .reference(|| Box::new(plain::router::SigmoidPlusBias)),
    Mutant::new("unbiased_select", Stage::Router, "selection ignores the bias")
        .seen_in(&[PUBLISHED, "HF#41663"])
        .port(|| Box::new(router::Unbiased)),
    Mutant::new("renorm_topk", Stage::Router, "the k weights are divided by their sum")
        .seen_in(&[PUBLISHED, "mlxcel#391", "torchtitan#1448", "HabanaAI/vllm-fork#72", "sglang#35160"])
        .port(|| Box::new(router::Renormalised))
        .reference(|| Box::new(plain::router::Renormalised)),
    Mutant::new("route_scale_2826", Stage::Router, "the k weights are multiplied by 2.826")
        .seen_in(&[PUBLISHED, "vllm#24119", "vllm#45037", "sglang#8333", "sglang-jax#1282"])
        .port(|| Box::new(router::RouteScale(2.826))),
    Mutant::new("biased_weights", Stage::Router, "weights are made of the logit with its bias")
        .seen_in(&[PUBLISHED, "vllm#12002", "HF#39581", "mlx-lm#1883", "flashinfer#3875"])
        .port(|| Box::new(router::BiasedWeights)),
    Mutant::new("bf16_router_logits", Stage::Router, "router logits are rounded to bf16")
        .seen_in(&[PUBLISHED, "sglang#33764", "sglang#38719", "vllm-ascend#9617", "TRT#13328", "mlx-lm#349"])
        .port(|| Box::new(router::RoundedLogits(Dtype::Bfloat16))),
    Mutant::new("f16_router_logits", Stage::Router, "router logits are rounded to f16")
        .seen_in(&["llama.cpp#25442", "llama.cpp#23839", "HF#37226", "mlx-examples#10"])
        .port(|| Box::new(router::RoundedLogits(Dtype::Float16))),
    Mutant::new("bf16_routing_weights", Stage::Router, "the k weights are rounded to bf16")
        .seen_in(&[OURS])
        .port(|| Box::new(router::Bf16Weights)),
    // Experts
    Mutant::new(
        "swiglu_swapped",
        Stage::Experts,
        "the activation is on the up projection instead of the gate",
    )
    .seen_in(&[PUBLISHED])
    .port(|| Box::new(experts::SwappedGate)),
    Mutant::new(
        "activation_rounded_per_step",
        Stage::Experts,
        "in bf16, SiLU rounds after each of its three steps",
    )
    .seen_in(&["this project"])
    .port(|| Box::new(experts::ActivationRounded)),
    Mutant::new("combine_rounded_per_term", Stage::Experts, "the weighted sum is rounded after each term")
        .seen_in(&["mlx-lm#938", "TRT#16778", "Automodel#2591"])
        .port(|| Box::new(experts::RoundedPerTerm)),
    Mutant::new("shared_half", Stage::Experts, "half of the shared expert's output is added")
        .seen_in(&[PUBLISHED])
        .port(|| Box::new(experts::SharedHalf)),
    // Head
    Mutant::new("bf16_head_logits", Stage::Head, "logits are rounded to bf16")
        .seen_in(&[PUBLISHED, "sglang#33627", "prime-rl#2441"])
        .port(|| Box::new(head::Bf16Logits)),
    // Checker
    Mutant::new("reference_tf32", Stage::Checker, "the reference multiplies numbers of ten bits")
        .seen_in(&["mlx#3860", "mlxcel#1065", "ferrox#227"])
        .reference(|| Box::new(plain::product::Tf32)),
];

fn unexpected_gate(facts: &Facts<'_>) -> Vec<Edit> {
    let config = facts.config;
    let shape = vec![config.num_heads * config.head_dim, config.hidden_size];
    vec![Edit::Add { name: "model.layers.0.self_attn.gate_proj.weight".into(), shape }]
}

fn missing_norm(facts: &Facts<'_>) -> Vec<Edit> {
    let last = facts.config.num_layers() - 1;
    vec![Edit::Remove(format!("model.layers.{last}.self_attn.k_norm.weight"))]
}

/// The first matrix of the first layer that is not square.
fn swapped_dims(facts: &Facts<'_>) -> Vec<Edit> {
    let tensors = census::expected_of_layer(facts.config, LayerId(0));
    let oblong = tensors.into_iter().find(|tensor| matches!(tensor.shape[..], [a, b] if a != b));
    oblong.map(|tensor| Edit::SwapDims(tensor.name)).into_iter().collect()
}

fn zeroed_expert(facts: &Facts<'_>) -> Vec<Edit> {
    let (layer, expert) = facts.idle;
    vec![Edit::Zero(format!("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"))]
}

/// The first two layers of one kind; no edit in a model of one layer of each kind.
fn exchanged_layers(facts: &Facts<'_>) -> Vec<Edit> {
    let config = facts.config;
    let twin = |a: LayerId| config.layer_ids().find(|&b| b > a && config.kind(b) == config.kind(a));
    let pair = config.layer_ids().find_map(|a| Some((a, twin(a)?)));
    pair.map(|(a, b)| Edit::ExchangeLayers(a, b)).into_iter().collect()
}

fn swapped_sandwich(facts: &Facts<'_>) -> Vec<Edit> {
    let name = |layer: LayerId, norm: &str| format!("model.layers.{layer}.{norm}.weight");
    let exchange =
        |layer| Edit::Exchange(name(layer, "post_attn_norm"), name(layer, "post_attention_layernorm"));
    facts.config.layer_ids().map(exchange).collect()
}
