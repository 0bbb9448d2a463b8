//! The weights that the port computes with, back under the checkpoint's names (K3).
//!
//! Inputs: loaded weights. Outputs: names and f32 values in the order of the checkpoint's shapes, one tensor
//! on the host at a time. Absent on purpose: the checkpoint's files; what is read here is what the kernels
//! get.

use crate::engine::{Doing, Op, dim, length, values};
use crate::weights::{LayerWeights, Weights};
use mlx_rs::Dtype;
use mlx_rs::ops::indexing::TryIndexOp;
use spec::Result;

/// Receives a name and values.
type Visit<'a> = &'a mut dyn FnMut(&str, &[f32]) -> Result<()>;

/// Shows every tensor once. Errors: MLX's, what `visit` returns.
pub(crate) fn visit(weights: &Weights, visit: Visit<'_>) -> Result<()> {
    show("model.embed_tokens.weight", weights.embedding.dense(), visit)?;
    for (layer, weights) in weights.layers.iter().enumerate() {
        visit_layer(&format!("model.layers.{layer}"), weights, visit)?;
    }
    show("model.norm.weight", Ok(weights.head.norm.clone()), visit)?;
    show("lm_head.weight", weights.head.lm_head.dense(), visit)
}

fn visit_layer(prefix: &str, weights: &LayerWeights, visit: Visit<'_>) -> Result<()> {
    let LayerWeights { attention, router, experts, shared, .. } = weights;
    let plain = [
        ("input_layernorm.weight", &weights.attn_norm),
        ("post_attn_norm.weight", &weights.attn_branch_norm),
        ("post_attention_layernorm.weight", &weights.moe_norm),
        ("post_ffn_norm.weight", &weights.moe_branch_norm),
        ("self_attn.q_norm.weight", &attention.q_norm),
        ("self_attn.k_norm.weight", &attention.k_norm),
        ("mlp.gate.weight", &router.gate),
        ("moe.router.expert_bias", &router.bias),
    ];
    for (tail, array) in plain {
        show(&format!("{prefix}.{tail}"), Ok(array.clone()), visit)?;
    }
    let matrices = [
        ("self_attn.q_proj", &attention.q),
        ("self_attn.k_proj", &attention.k),
        ("self_attn.v_proj", &attention.v),
        ("self_attn.o_proj", &attention.o),
        ("mlp.shared_experts.gate_proj", &shared.gate),
        ("mlp.shared_experts.up_proj", &shared.up),
        ("mlp.shared_experts.down_proj", &shared.down),
    ];
    for (module, matrix) in matrices {
        show(&format!("{prefix}.{module}.weight"), matrix.dense(), visit)?;
    }
    let stacks = [("gate_proj", &experts.gate), ("up_proj", &experts.up), ("down_proj", &experts.down)];
    for (part, stack) in stacks {
        for expert in 0..length(stack.arrays()[0], 0) {
            let name = format!("{prefix}.mlp.experts.{expert}.{part}.weight");
            let one = stack.map(|array| array.try_index((dim(expert), .., ..)));
            show(&name, one.and_then(|one| one.dense()), visit)?;
        }
    }
    Ok(())
}

fn show(name: &str, array: Op, visit: Visit<'_>) -> Result<()> {
    let wide = array.and_then(|array| values::<f32>(&array.as_dtype(Dtype::Float32)?));
    visit(name, &wide.doing(format!("read {name} back"))?)
}
