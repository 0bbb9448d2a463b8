//! Planted bugs of the router (K14 to K16).

use super::{OURS, PUBLISHED};
use crate::edit::{Edit, Narrow};
use crate::mutant::{Facts, Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::{experts, router};
use mlx_rs::Dtype;

/// Reports of weights on the wrong side of an expert.
const WEIGHTED_INPUT: &[&str] = &["sglang#7889", "llm-compressor#1907", "vllm#43694"];

pub const ROWS: &[Mutant] = &[
    Mutant::new(
        "sigmoid_bias_select",
        Stage::Router,
        "the bias is added to the sigmoid instead of the logit",
    )
    .rows(&["R01"])
    .seen_in(&[PUBLISHED])
    .needs(&[Need::NonzeroBias])
    .port(&[Step::Select], || Box::new(router::SigmoidPlusBias)),
    Mutant::new("unbiased_select", Stage::Router, "selection ignores the bias")
        .rows(&["R01"])
        .seen_in(&[PUBLISHED, "HF#41663"])
        .needs(&[Need::NonzeroBias])
        .port(&[Step::Select], || Box::new(router::Unbiased)),
    Mutant::new("renorm_topk", Stage::Router, "the k weights are divided by their sum")
        .rows(&["R04"])
        .seen_in(&[PUBLISHED, "mlxcel#391", "torchtitan#1448", "HabanaAI/vllm-fork#72", "sglang#35160"])
        .needs(&[Need::RawWeights])
        .port(&[Step::TopkWeights], || Box::new(router::Renormalised)),
    Mutant::new("route_scale_2826", Stage::Router, "the k weights are multiplied by 2.826")
        .rows(&["R05"])
        .seen_in(&[PUBLISHED, "vllm#24119", "vllm#45037", "sglang#8333", "sglang-jax#1282"])
        .port(&[Step::TopkWeights], || Box::new(router::RouteScale(2.826))),
    Mutant::new("biased_weights", Stage::Router, "weights are made of the logit with its bias")
        .rows(&["R02"])
        .seen_in(&[PUBLISHED, "vllm#12002", "HF#39581", "mlx-lm#1883", "flashinfer#3875"])
        .needs(&[Need::NonzeroBias])
        .port(&[Step::TopkWeights], || Box::new(router::BiasedWeights)),
    Mutant::new("bf16_router_logits", Stage::Router, "router logits are rounded to bf16")
        .rows(&["R07"])
        .seen_in(&[PUBLISHED, "sglang#33764", "sglang#38719", "vllm-ascend#9617", "TRT#13328", "mlx-lm#349"])
        .port(&[Step::RouterLogits], || Box::new(router::RoundedLogits(Dtype::Bfloat16))),
    Mutant::new("f16_router_logits", Stage::Router, "router logits are rounded to f16")
        .rows(&["W08"])
        .seen_in(&["llama.cpp#25442", "llama.cpp#23839", "HF#37226", "mlx-examples#10"])
        .port(&[Step::RouterLogits], || Box::new(router::RoundedLogits(Dtype::Float16))),
    Mutant::new("bf16_routing_weights", Stage::Router, "the k weights are rounded to bf16")
        .rows(&["R07"])
        .seen_in(&[OURS])
        .port(&[Step::TopkWeights], || Box::new(router::Bf16Weights)),
    Mutant::new("softmax_weights", Stage::Router, "weights are a softmax over all experts, not sigmoids")
        .rows(&["R03"])
        .seen_in(&["llama.cpp#18980", "mlx-lm#1883"])
        .port(&[Step::TopkWeights], || Box::new(router::Softmax)),
    Mutant::new("raw_logit_weights", Stage::Router, "the logits themselves are the weights")
        .rows(&["R04"])
        .seen_in(&["torchtitan#1448", "sglang#35160"])
        .port(&[Step::TopkWeights], || Box::new(router::RawLogits)),
    Mutant::new(
        "route_scale_missing",
        Stage::Router,
        "the k weights are not multiplied by the model's scale",
    )
    .rows(&["R05"])
    .seen_in(&["vllm#24119", "vllm#45037", "sglang#8333", "sglang-jax#1282"])
    .needs(&[Need::RouteScale])
    .port(&[Step::TopkWeights], || Box::new(router::RouteScaleMissing)),
    Mutant::new("route_scale_squared", Stage::Router, "the k weights are scaled as the model says, twice")
        .rows(&["R05"])
        .seen_in(&["vllm#24119", "vllm#45037", "sglang#8333", "sglang-jax#1282"])
        .needs(&[Need::RouteScale])
        .port(&[Step::TopkWeights], || Box::new(router::RouteScaleSquared)),
    Mutant::new("bf16_bias", Stage::Router, "the selection bias is rounded to bf16")
        .rows(&["R07"])
        .seen_in(&["sglang#33764", "sglang#38719", "vllm-ascend#9617", "TRT#13328"])
        .needs(&[Need::WideBias])
        .checkpoint(rounded_bias),
    Mutant::new("router_weights_4bit", Stage::Router, "the router's matrix has 4 bits, in groups of 32")
        .rows(&["R07"])
        .seen_in(&["hipfire#180", "mlx-lm#349"])
        .port(&[Step::RouterLogits], || Box::new(router::FourBitGate)),
    Mutant::new("one_expert_fewer", Stage::Router, "the last of the k experts has no weight")
        .rows(&["R08"])
        .seen_in(&["mlx-examples#671", "sglang#38963", "vllm-omni#7175"])
        .port(&[Step::TopkWeights], || Box::new(router::LastWithoutWeight)),
    Mutant::new("duplicate_expert", Stage::Router, "the first expert is chosen again in place of the last")
        .rows(&["R08"])
        .seen_in(&["mlx-examples#671", "sglang#38963", "vllm-omni#7175"])
        .port(&[Step::Select], || Box::new(router::FirstTwice)),
    Mutant::new(
        "score_on_expert_input",
        Stage::Router,
        "weights multiply what experts take, not what they give",
    )
    .rows(&["R09"])
    .seen_in(WEIGHTED_INPUT)
    .port(&[Step::TopkWeights, Step::Routed, Step::Combine], || Box::new(experts::WeightedInput::new(false))),
    Mutant::new(
        "score_on_both_sides",
        Stage::Router,
        "weights multiply what experts take and what they give",
    )
    .rows(&["R09"])
    .seen_in(WEIGHTED_INPUT)
    .port(&[Step::TopkWeights, Step::Routed], || Box::new(experts::WeightedInput::new(true))),
    Mutant::new("router_reads_renormed", Stage::Router, "the router's input is normed once more")
        .rows(&["R10"])
        .seen_in(&["Automodel#1852"])
        .port(&[Step::RouterLogits], || Box::new(router::RenormedInput)),
];

fn rounded_bias(facts: &Facts<'_>) -> Vec<Edit> {
    let name = |layer| format!("model.layers.{layer}.moe.router.expert_bias");
    facts.config.layer_ids().map(|layer| Edit::Round { name: name(layer), to: Narrow::Bf16 }).collect()
}
