//! The model of the fake sides: two layers, hidden size 2, 4 experts, 2 per token, 3 tokens in the
//! vocabulary.

use spec::config::{HeadDtype, NormPlacement, QkNorm, RopeOn, RouterScore, SelectionBias, SharedExpert};
use spec::{LayerKind, ModelConfig};

pub fn config() -> ModelConfig {
    ModelConfig {
        hidden_size: 2,
        layers: vec![LayerKind::Sliding, LayerKind::Full],
        num_heads: 1,
        num_kv_heads: 1,
        head_dim: 2,
        vocab_size: 3,
        rms_norm_eps: 1e-6,
        sliding_window: Some(2),
        rope_theta: 10_000.0,
        num_experts: 4,
        experts_per_token: 2,
        expert_width: 2,
        shared_width: 2,
        renormalise_topk: false,
        max_positions: None,
        declared_dtype: None,
        router_score: RouterScore::Sigmoid,
        selection_bias: SelectionBias::OnLogit,
        route_scale: 1.0,
        shared_expert: SharedExpert::Ungated,
        qk_norm: QkNorm::PerHeadBeforeRope,
        rope_on: RopeOn::SlidingLayers,
        norm_placement: NormPlacement::Sandwich,
        head_dtype: HeadDtype::F32,
        quantization: spec::Quantization::default(),
    }
}
