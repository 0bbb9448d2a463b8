//! The model's weights as MLX arrays, named as the checkpoint names them (K3).
//!
//! Inputs: a checkpoint folder and its config. Outputs: evaluated arrays: in f32 runs all f32, in bf16 runs
//! bf16, except what is f32 by specification (router, head) and the experts where MLX has no bf16 gather.
//! Absent on purpose: arithmetic.

use crate::engine::{Doing, Op, on_gpu, working_dtype};
use crate::load::{Tensor, Tensors, check_finite};
use mlx_rs::{Array, Dtype, ops, transforms};
use spec::{LayerId, ModelConfig, Precision, Result};
use std::path::Path;

/// Attention of one layer (K8, K9).
#[derive(Debug)]
pub struct AttentionWeights {
    /// `[Nq*D, H]`
    pub q: Array,
    /// `[Nkv*D, H]`
    pub k: Array,
    /// `[Nkv*D, H]`
    pub v: Array,
    /// `[H, Nq*D]`
    pub o: Array,
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
    pub gate: Array,
    /// `[E, I, H]`
    pub up: Array,
    /// `[E, H, I]`
    pub down: Array,
}

/// Shared expert of one layer (K17).
#[derive(Debug)]
pub struct SharedWeights {
    /// `[S, H]`
    pub gate: Array,
    /// `[S, H]`
    pub up: Array,
    /// `[H, S]`
    pub down: Array,
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
    pub lm_head: Array,
}

/// Everything.
#[derive(Debug)]
pub struct Weights {
    /// `embed_tokens`, `[V, H]` (K5)
    pub embedding: Array,
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
        let mut source = Source::open(dir, precision)?;
        let (h, v) = (config.hidden_size, config.vocab_size);
        let embedding = source.working("model.embed_tokens.weight", &[v, h])?;
        let norm = source.working("model.norm.weight", &[h])?;
        let head = HeadWeights { norm, lm_head: source.f32("lm_head.weight", &[v, h])? };
        let outer = source.tensors.just_taken();
        let layer =
            |id: LayerId| Ok((LayerWeights::take(&mut source, config, id)?, source.tensors.just_taken()));
        let layers: Vec<(LayerWeights, Vec<Tensor>)> =
            config.layer_ids().map(layer).collect::<Result<_>>()?;
        source.tensors.refuse_leftovers()?;

        check_finite(&outer)?;
        transforms::eval([&embedding, &head.norm, &head.lm_head]).doing("load embedding and head")?;
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
            q: source.working(&name("self_attn.q_proj.weight"), &[nq, h])?,
            k: source.working(&name("self_attn.k_proj.weight"), &[nkv, h])?,
            v: source.working(&name("self_attn.v_proj.weight"), &[nkv, h])?,
            o: source.working(&name("self_attn.o_proj.weight"), &[h, nq])?,
            q_norm: source.working(&name("self_attn.q_norm.weight"), &[d])?,
            k_norm: source.working(&name("self_attn.k_norm.weight"), &[d])?,
        };
        let router = RouterWeights {
            gate: source.f32(&name("mlp.gate.weight"), &[e, h])?,
            bias: source.f32(&name("moe.router.expert_bias"), &[e])?,
        };
        let shared = SharedWeights {
            gate: source.working(&name("mlp.shared_experts.gate_proj.weight"), &[s, h])?,
            up: source.working(&name("mlp.shared_experts.up_proj.weight"), &[s, h])?,
            down: source.working(&name("mlp.shared_experts.down_proj.weight"), &[h, s])?,
        };
        Ok(Self {
            attn_norm: source.working(&name("input_layernorm.weight"), &[h])?,
            attn_branch_norm: source.working(&name("post_attn_norm.weight"), &[h])?,
            moe_norm: source.working(&name("post_attention_layernorm.weight"), &[h])?,
            moe_branch_norm: source.working(&name("post_ffn_norm.weight"), &[h])?,
            attention,
            router,
            experts: ExpertWeights::take(source, config, &name("mlp.experts"))?,
            shared,
        })
    }

    fn arrays(&self) -> [&Array; 18] {
        let Self { attention: a, router: r, experts: e, shared: s, .. } = self;
        let norms = [&self.attn_norm, &self.attn_branch_norm, &self.moe_norm, &self.moe_branch_norm];
        let [n0, n1, n2, n3] = norms;
        let (rg, rb) = (&r.gate, &r.bias);
        [
            n0, n1, n2, n3, &a.q, &a.k, &a.v, &a.o, &a.q_norm, &a.k_norm, rg, rb, &e.gate, &e.up, &e.down,
            &s.gate, &s.up, &s.down,
        ]
    }
}

impl ExpertWeights {
    fn take(source: &mut Source, config: &ModelConfig, prefix: &str) -> Result<Self> {
        let (h, i) = (config.hidden_size, config.expert_width);
        let mut stack = |part: &str, shape: [usize; 2]| {
            let name = |expert: usize| format!("{prefix}.{expert}.{part}.weight");
            let each = (0..config.num_experts).map(|expert| source.tensors.take(&name(expert), &shape));
            let each: Vec<Array> = each.collect::<Result<_>>()?;
            let stacked =
                ops::stack(&each, 0).and_then(|all| all.as_dtype(source.working)?.as_dtype(source.experts));
            stacked.doing(format!("stack {prefix}"))
        };
        Ok(Self {
            gate: stack("gate_proj", [i, h])?,
            up: stack("up_proj", [i, h])?,
            down: stack("down_proj", [h, i])?,
        })
    }
}

/// The open checkpoint and the dtypes its tensors are wanted in.
struct Source {
    tensors: Tensors,
    working: Dtype,
    experts: Dtype,
}

impl Source {
    fn open(dir: &Path, precision: Precision) -> Result<Self> {
        let working = working_dtype(precision);
        let experts = expert_dtype(working).doing("ask for the device")?;
        Ok(Self { tensors: Tensors::open(dir)?, working, experts })
    }

    fn working(&mut self, name: &str, shape: &[usize]) -> Result<Array> {
        let working = self.working;
        self.tensors.take(name, shape)?.as_dtype(working).doing(format!("load {name}"))
    }

    fn f32(&mut self, name: &str, shape: &[usize]) -> Result<Array> {
        self.tensors.take(name, shape)?.as_dtype(Dtype::Float32).doing(format!("load {name}"))
    }
}

/// The dtype the expert stacks are held in: the working dtype, except on the CPU, whose gather takes f32
/// only. There bf16 stacks are rounded to bf16 and widened once, here, rather than at each call.
fn expert_dtype(working: Dtype) -> Op<Dtype> {
    Ok(if on_gpu()? { working } else { Dtype::Float32 })
}
