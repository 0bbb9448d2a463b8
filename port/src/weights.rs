//! The model's weights as MLX arrays, named as the checkpoint names them (K3).
//!
//! Inputs: a checkpoint folder and its config. Outputs: evaluated arrays: in f32 runs all f32, in bf16 runs
//! bf16, except what is f32 by specification (router, head) and the experts where MLX has no bf16 gather;
//! packed matrices stay packed ([`crate::source`]). Absent on purpose: arithmetic.

use crate::engine::Doing;
use crate::load::{Tensor, check_finite};
use crate::source::Source;
use crate::weight::Weight;
use mlx_rs::{Array, transforms};
use spec::{LayerId, ModelConfig, Precision, Result};
use std::path::Path;

/// Attention of one layer (K8, K9).
#[derive(Debug)]
pub struct AttentionWeights {
    /// `[Nq*D, H]`
    pub q: Weight,
    /// `[Nkv*D, H]`
    pub k: Weight,
    /// `[Nkv*D, H]`
    pub v: Weight,
    /// `[H, Nq*D]`
    pub o: Weight,
    /// `[D]`
    pub q_norm: Array,
    /// `[D]`
    pub k_norm: Array,
}

/// Router of one layer, always f32 (K14, K15).
#[derive(Debug)]
pub struct RouterWeights {
    /// `[E, H]` f32
    pub gate: Array,
    /// `expert_bias`, `[E]` f32
    pub bias: Array,
}

/// Routed experts of one layer, stacked in order of their ids (K17).
#[derive(Debug)]
pub struct ExpertWeights {
    /// `[E, I, H]`
    pub gate: Weight,
    /// `[E, I, H]`
    pub up: Weight,
    /// `[E, H, I]`
    pub down: Weight,
}

/// Shared expert of one layer (K17).
#[derive(Debug)]
pub struct SharedWeights {
    /// `[S, H]`
    pub gate: Weight,
    /// `[S, H]`
    pub up: Weight,
    /// `[H, S]`
    pub down: Weight,
}

/// One decoder layer (K6). Norm fields say where the norm sits, not what the checkpoint calls it.
#[derive(Debug)]
pub struct LayerWeights {
    /// `input_layernorm`, before attention, `[H]`
    pub attn_norm: Array,
    /// `post_attn_norm`, on the attention branch, `[H]`
    pub attn_branch_norm: Array,
    /// `post_attention_layernorm`, before the MoE, `[H]`
    pub moe_norm: Array,
    /// `post_ffn_norm`, on the MoE branch, `[H]`
    pub moe_branch_norm: Array,
    /// Attention.
    pub attention: AttentionWeights,
    /// Router.
    pub router: RouterWeights,
    /// Routed experts.
    pub experts: ExpertWeights,
    /// Shared expert.
    pub shared: SharedWeights,
}

/// Final norm and head (K18).
#[derive(Debug)]
pub struct HeadWeights {
    /// `model.norm`, `[H]`
    pub norm: Array,
    /// `lm_head`, `[V, H]` f32
    pub lm_head: Weight,
}

/// Everything.
#[derive(Debug)]
pub struct Weights {
    /// `embed_tokens`, `[V, H]` (K5)
    pub embedding: Weight,
    /// One per decoder layer.
    pub layers: Vec<LayerWeights>,
    /// Final norm and head.
    pub head: HeadWeights,
}

impl Weights {
    /// Loads all weights. All names and shapes are checked before any value is read; then values are read
    /// layer by layer, so that no more than one layer is held twice. Errors: as [`Tensors`] and
    /// [`check_finite`].
    pub fn load(dir: &Path, config: &ModelConfig, precision: Precision) -> Result<Self> {
        let mut source = Source::open(dir, config, precision)?;
        let (h, v) = (config.hidden_size, config.vocab_size);
        let embedding = source.matrix("model.embed_tokens", [v, h])?;
        let norm = source.vector("model.norm.weight", h)?;
        let head = HeadWeights { norm, lm_head: source.f32_matrix("lm_head", [v, h])? };
        let outer = source.tensors.just_taken();
        let layer =
            |id: LayerId| Ok((LayerWeights::take(&mut source, config, id)?, source.tensors.just_taken()));
        let layers: Vec<(LayerWeights, Vec<Tensor>)> =
            config.layer_ids().map(layer).collect::<Result<_>>()?;
        source.tensors.refuse_leftovers()?;

        check_finite(&outer)?;
        let arrays = [embedding.arrays(), head.lm_head.arrays(), vec![&head.norm]].concat();
        transforms::eval(arrays).doing("load embedding and head")?;
        let checked = |(id, (layer, tensors)): (usize, (LayerWeights, Vec<Tensor>))| {
            check_finite(&tensors)?;
            transforms::eval(layer.arrays()).doing(format!("load layer {id}"))?;
            Ok(layer)
        };
        let layers = layers.into_iter().enumerate().map(checked).collect::<Result<_>>()?;
        Ok(Self { embedding, layers, head })
    }
}

impl LayerWeights {
    fn take(source: &mut Source, config: &ModelConfig, layer: LayerId) -> Result<Self> {
        let (h, d) = (config.hidden_size, config.head_dim);
        let (nq, nkv) = (config.num_heads * d, config.num_kv_heads * d);
        let (e, s) = (config.num_experts, config.shared_width);
        let name = |rest: &str| format!("model.layers.{layer}.{rest}");
        let attention = AttentionWeights {
            q: source.matrix(&name("self_attn.q_proj"), [nq, h])?,
            k: source.matrix(&name("self_attn.k_proj"), [nkv, h])?,
            v: source.matrix(&name("self_attn.v_proj"), [nkv, h])?,
            o: source.matrix(&name("self_attn.o_proj"), [h, nq])?,
            q_norm: source.vector(&name("self_attn.q_norm.weight"), d)?,
            k_norm: source.vector(&name("self_attn.k_norm.weight"), d)?,
        };
        let gate = source.f32_matrix(&name("mlp.gate"), [e, h])?;
        let router = RouterWeights {
            gate: gate.dense().doing(format!("unpack the router of layer {layer}"))?,
            bias: source.f32_vector(&name("moe.router.expert_bias"), e)?,
        };
        let shared = SharedWeights {
            gate: source.matrix(&name("mlp.shared_experts.gate_proj"), [s, h])?,
            up: source.matrix(&name("mlp.shared_experts.up_proj"), [s, h])?,
            down: source.matrix(&name("mlp.shared_experts.down_proj"), [h, s])?,
        };
        Ok(Self {
            attn_norm: source.vector(&name("input_layernorm.weight"), h)?,
            attn_branch_norm: source.vector(&name("post_attn_norm.weight"), h)?,
            moe_norm: source.vector(&name("post_attention_layernorm.weight"), h)?,
            moe_branch_norm: source.vector(&name("post_ffn_norm.weight"), h)?,
            attention,
            router,
            experts: ExpertWeights::take(source, config, &name("mlp"))?,
            shared,
        })
    }

    fn arrays(&self) -> Vec<&Array> {
        let Self { attention: a, router: r, experts: e, shared: s, .. } = self;
        let vectors = [&self.attn_norm, &self.attn_branch_norm, &self.moe_norm, &self.moe_branch_norm];
        let matrices = [&a.q, &a.k, &a.v, &a.o, &e.gate, &e.up, &e.down, &s.gate, &s.up, &s.down];
        let mut arrays = matrices.map(Weight::arrays).concat();
        arrays.extend(vectors.into_iter().chain([&a.q_norm, &a.k_norm, &r.gate, &r.bias]));
        arrays
    }
}

impl ExpertWeights {
    fn take(source: &mut Source, config: &ModelConfig, mlp: &str) -> Result<Self> {
        let (e, h, i) = (config.num_experts, config.hidden_size, config.expert_width);
        Ok(Self {
            gate: source.stack(mlp, "gate_proj", e, [i, h])?,
            up: source.stack(mlp, "up_proj", e, [i, h])?,
            down: source.stack(mlp, "down_proj", e, [h, i])?,
        })
    }
}
