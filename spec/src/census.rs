//! The tensors a checkpoint must hold: names, shapes, roles (K3).
//!
//! Absent on purpose: reading any file. The port does not use this list: it names its tensors itself and
//! refuses what is left over, so that a mistake here cannot hide in both sides.

use crate::{LayerId, ModelConfig};

/// What a tensor is for; decides what counts as active for one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `model.embed_tokens.weight`: one row per token is active.
    Embedding,
    /// `lm_head.weight`.
    Head,
    /// Any norm weight.
    Norm,
    /// An attention projection.
    Attention,
    /// `mlp.gate.weight`, the router.
    Router,
    /// `moe.router.expert_bias`, the selection bias.
    SelectionBias,
    /// A matrix of one routed expert: k of E are active.
    Expert,
    /// A matrix of the shared expert.
    SharedExpert,
}

/// One expected tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Name in the checkpoint.
    pub name: String,
    /// Shape, row-major; `[out, in]` for matrices.
    pub shape: Vec<usize>,
    /// What it is for.
    pub role: Role,
    /// `None` for the three tensors of no layer.
    pub layer: Option<LayerId>,
}

/// Every tensor of the checkpoint, in a fixed order: embedding, layers, final norm, head (K3).
pub fn expected(config: &ModelConfig) -> Vec<Expected> {
    let (h, v) = (config.hidden_size, config.vocab_size);
    let global = |name: &str, shape: &[usize], role| Expected {
        name: name.into(),
        shape: shape.into(),
        role,
        layer: None,
    };
    let mut all = vec![global("model.embed_tokens.weight", &[v, h], Role::Embedding)];
    all.extend(config.layer_ids().flat_map(|layer| expected_of_layer(config, layer)));
    all.push(global("model.norm.weight", &[h], Role::Norm));
    all.push(global("lm_head.weight", &[v, h], Role::Head));
    all
}

/// The tensors of one layer (K3).
pub fn expected_of_layer(config: &ModelConfig, layer: LayerId) -> Vec<Expected> {
    let (h, d) = (config.hidden_size, config.head_dim);
    let (q, kv) = (config.num_heads * d, config.num_kv_heads * d);
    let (e, i, s) = (config.num_experts, config.expert_width, config.shared_width);
    let mut tensors = Vec::with_capacity(15 + 3 * e);
    let mut push = |tail: &str, shape: &[usize], role| {
        let name = format!("model.layers.{layer}.{tail}");
        tensors.push(Expected { name, shape: shape.into(), role, layer: Some(layer) });
    };
    push("input_layernorm.weight", &[h], Role::Norm);
    push("post_attn_norm.weight", &[h], Role::Norm);
    push("post_attention_layernorm.weight", &[h], Role::Norm);
    push("post_ffn_norm.weight", &[h], Role::Norm);
    push("self_attn.q_proj.weight", &[q, h], Role::Attention);
    push("self_attn.k_proj.weight", &[kv, h], Role::Attention);
    push("self_attn.v_proj.weight", &[kv, h], Role::Attention);
    push("self_attn.o_proj.weight", &[h, q], Role::Attention);
    push("self_attn.q_norm.weight", &[d], Role::Norm);
    push("self_attn.k_norm.weight", &[d], Role::Norm);
    push("mlp.gate.weight", &[e, h], Role::Router);
    push("moe.router.expert_bias", &[e], Role::SelectionBias);
    for expert in 0..e {
        push(&format!("mlp.experts.{expert}.gate_proj.weight"), &[i, h], Role::Expert);
        push(&format!("mlp.experts.{expert}.up_proj.weight"), &[i, h], Role::Expert);
        push(&format!("mlp.experts.{expert}.down_proj.weight"), &[h, i], Role::Expert);
    }
    push("mlp.shared_experts.gate_proj.weight", &[s, h], Role::SharedExpert);
    push("mlp.shared_experts.up_proj.weight", &[s, h], Role::SharedExpert);
    push("mlp.shared_experts.down_proj.weight", &[h, s], Role::SharedExpert);
    tensors
}
