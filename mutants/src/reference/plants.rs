//! How each bug gets into the reference, in the order of a forward pass.

use super::product::{After, bf16, f16};
use super::{Plant, Step, attention, embedding, experts, mask, norm, plant_of, product, rope, router};
use reference::steps::Matrix;
use spec::ModelConfig;

/// Every norm.
const NORMS: &[Step] = &[Step::RmsNorm, Step::QkNorm];

pub static ALL: &[Plant] = &[
    plant_of("mup_embed_scale", &[Step::Embed], || Box::new(embedding::Scaled)),
    plant_of("one_plus_w_norm", NORMS, || Box::new(norm::OnePlusWeight)),
    plant_of("swap_sandwich_norms", &[Step::NormWeight], || Box::new(norm::SandwichSwapped)),
    plant_of("norm_eps_x10", NORMS, || Box::new(norm::Epsilon(|eps| 10.0 * eps))),
    plant_of("norm_eps_floor_1e4", NORMS, || Box::new(norm::Epsilon(|eps| eps.max(1e-4)))),
    plant_of("norm_eps_after_rescale", NORMS, || Box::new(norm::EpsilonAfterRescale)),
    plant_of("qknorm_after_rope", &[Step::QkNorm, Step::QkRope], || Box::new(norm::HeadNormAfterRope)),
    plant_of("qk_norm_over_all_heads", &[Step::QkNorm], || Box::new(norm::HeadNormOverAllHeads)),
    plant_of("qk_norm_missing", &[Step::QkNorm], || Box::new(norm::HeadNormMissing)),
    plant_of("rope_on_full", &[Step::QkRope], || Box::new(rope::OnEveryLayer)),
    plant_of("rope_traditional", &[Step::QkRope], || Box::new(rope::AdjacentPairs)),
    plant_of("rope_bf16_frequencies", &[Step::InvFreq], || Box::new(rope::Bf16Frequencies)),
    plant_of("rope_bf16_positions", &[Step::QkRope], || Box::new(rope::Bf16Positions)),
    plant_of("rope_base_10000", &[Step::InvFreq], || Box::new(rope::Base10000)),
    plant_of("layer_types_shifted", &[Step::QkRope, Step::Visible], || Box::new(mask::LayerTypesShifted)),
    plant_of("window_one_short", &[Step::Visible], || {
        Box::new(mask::Window(|_, window| window.map(|window| (window - 1).max(1))))
    }),
    plant_of("window_one_long", &[Step::Visible], || {
        Box::new(mask::Window(|_, window| window.map(|window| window + 1)))
    }),
    plant_of("sliding_sees_everything", &[Step::Visible], || Box::new(mask::Window(|_, _| None))),
    plant_of("full_layers_windowed", &[Step::Visible], || {
        Box::new(mask::Window(|config: &ModelConfig, _| config.sliding_window))
    }),
    plant_of("attention_scale_one", &[Step::AttentionScale], || Box::new(attention::Unscaled)),
    plant_of("attention_scale_hidden", &[Step::AttentionScale], || Box::new(attention::ScaledByHidden)),
    plant_of("kv_heads_tiled", &[Step::KvHead], || Box::new(attention::TiledKvHeads)),
    plant_of("q_heads_interleaved", &[Step::QkNorm], || Box::new(attention::InterleavedQueries)),
    plant_of("sigmoid_bias_select", &[Step::SelectionScores], || Box::new(router::SigmoidPlusBias)),
    plant_of("unbiased_select", &[Step::SelectionScores], || Box::new(router::Unbiased)),
    plant_of("bf16_bias", &[Step::SelectionScores], || Box::new(router::Bf16Bias)),
    plant_of("renorm_topk", &[Step::TopkWeights], || Box::new(router::Renormalised)),
    plant_of("route_scale_2826", &[Step::TopkWeights], || {
        Box::new(router::RouteScale(|scale| scale * 2.826))
    }),
    plant_of("route_scale_missing", &[Step::TopkWeights], || Box::new(router::RouteScale(|_| 1.0))),
    plant_of("route_scale_squared", &[Step::TopkWeights], || {
        Box::new(router::RouteScale(|scale| scale * scale))
    }),
    plant_of("biased_weights", &[Step::TopkWeights], || Box::new(router::BiasedWeights)),
    plant_of("softmax_weights", &[Step::TopkWeights], || Box::new(router::SoftmaxWeights)),
    plant_of("raw_logit_weights", &[Step::TopkWeights], || Box::new(router::RawLogits)),
    plant_of("one_expert_fewer", &[Step::TopkWeights], || Box::new(router::LastWithoutWeight)),
    plant_of("duplicate_expert", &[Step::Select], || Box::new(router::FirstTwice)),
    plant_of("router_weights_4bit", &[Step::Product(Matrix::Router)], || Box::new(router::FourBitGate)),
    plant_of("router_reads_renormed", &[Step::Product(Matrix::Router)], || Box::new(router::RenormedInput)),
    plant_of("bf16_router_logits", &[Step::Product(Matrix::Router)], || {
        Box::new(After { which: Matrix::Router, then: bf16 })
    }),
    plant_of("f16_router_logits", &[Step::Product(Matrix::Router)], || {
        Box::new(After { which: Matrix::Router, then: f16 })
    }),
    plant_of("bf16_routing_weights", &[Step::TopkWeights], || Box::new(router::Bf16Weights)),
    plant_of("swiglu_swapped", &[Step::Activate], || Box::new(experts::SwappedGate)),
    plant_of("gelu_for_silu", &[Step::Activate], || Box::new(experts::Gelu)),
    plant_of("shared_missing", &[Step::AddShared], || Box::new(experts::SharedMissing)),
    plant_of("shared_scaled_twice", &[Step::Product(Matrix::SharedDown)], || {
        Box::new(After { which: Matrix::SharedDown, then: |x| 2.0 * x })
    }),
    plant_of("shared_half", &[Step::Product(Matrix::SharedDown)], || {
        Box::new(After { which: Matrix::SharedDown, then: |x| 0.5 * x })
    }),
    plant_of("bf16_head_logits", &[Step::Product(Matrix::Head)], || {
        Box::new(After { which: Matrix::Head, then: bf16 })
    }),
    plant_of("head_scaled_1_1", &[Step::Product(Matrix::Head)], || {
        Box::new(After { which: Matrix::Head, then: |x| 1.1 * x })
    }),
    plant_of("reference_tf32", product::ALL, || Box::new(product::Tf32)),
];
