//! Planted bugs of the router (K14 to K16).

use super::{OURS, PUBLISHED};
use crate::mutant::{Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::router;
use mlx_rs::Dtype;

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
];
