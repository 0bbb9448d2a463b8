//! Every step of the forward pass, each as one method whose default body is the correct one.
//!
//! A planted bug overrides exactly one method, so nothing else can drift. Methods take blocks of rows,
//! never single values; how rows are cut into blocks must not matter to them. Deliberately absent: the
//! order of the steps, which is `layer` and `model`.

use crate::rope::RopeTable;
use crate::{attention, experts, norm, product, rope, router};
use ndarray::{ArrayView2, ArrayViewMut2};
use spec::config::QkNorm;
use spec::{ExpertId, LayerId, ModelConfig};
use std::ops::Range;

/// Which RMSNorm of the model (K6, K18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Norm {
    /// `input_layernorm`, before attention.
    AttnInput,
    /// `post_attn_norm`, on the attention branch.
    AttnOutput,
    /// `post_attention_layernorm`, before the MoE.
    MoeInput,
    /// `post_ffn_norm`, on the MoE branch.
    MoeOutput,
    /// `model.norm`, before the head.
    Final,
}

/// Which matrix of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// `q_proj` (K8).
    Q,
    /// `k_proj` (K8).
    K,
    /// `v_proj` (K8).
    V,
    /// `o_proj` (K8).
    O,
    /// `mlp.gate`, whose products are the router logits (K14).
    Router,
    /// A routed expert's `gate_proj` (K17).
    ExpertGate,
    /// A routed expert's `up_proj` (K17).
    ExpertUp,
    /// A routed expert's `down_proj` (K17).
    ExpertDown,
    /// The shared expert's `gate_proj` (K17).
    SharedGate,
    /// The shared expert's `up_proj` (K17).
    SharedUp,
    /// The shared expert's `down_proj` (K17).
    SharedDown,
    /// `lm_head` (K18).
    Head,
}

/// What the norm and the rotation of a block of queries or keys go by.
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a> {
    /// The configuration.
    pub config: &'a ModelConfig,
    /// The layer.
    pub layer: LayerId,
    /// Position of the block's first row.
    pub first: usize,
    /// `q_norm` or `k_norm`, `[D]`.
    pub weight: &'a [f32],
    /// Cosines and sines of all positions of the sequence.
    pub table: &'a RopeTable,
}

/// The steps of the forward pass. Rows are tokens, in C order, f32.
pub trait Steps: Send + Sync {
    /// K5: what happens to the embedding's rows, `[n, H]`: nothing, no scaling.
    fn embed(&self, config: &ModelConfig, rows: ArrayViewMut2<'_, f32>) {
        let _ = (config, rows);
    }

    /// K6: the norm whose weight is used where `which` stands, of the same layer. Not asked for
    /// [`Norm::Final`], which is of no layer.
    fn norm_weight(&self, which: Norm) -> Norm {
        which
    }

    /// K7: RMSNorm in place, `rows [n, H]`, `weight [H]`.
    fn rms_norm(&self, which: Norm, rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
        let _ = which;
        norm::rms_norm(rows, weight, eps);
    }

    /// Any matrix product, `out = x · wᵀ`: `x [n, in]`, `w [m, in]`, `out [n, m]`. A tile of it may be
    /// asked for: some rows of `x` and some of `w`. K8, K14 (router logits, kept in f32), K17, K18 (logits
    /// in f32).
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        let _ = which;
        product::into(x, w, out);
    }

    /// K9: the norm of queries or keys, before [`Steps::qk_rope`], in place, `rows [n, heads * D]`.
    fn qk_norm(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        match heads.config.qk_norm {
            QkNorm::PerHeadBeforeRope => {
                norm::qk_norm(rows, heads.weight, heads.config.rms_norm_eps as f32);
            }
        }
    }

    /// K10: inverse frequencies, `[D/2]`.
    fn inv_freq(&self, config: &ModelConfig) -> Vec<f32> {
        rope::inv_freq(config.rope_theta, config.head_dim)
    }

    /// K10, K11: the rotation of queries or keys, in layers that rotate, in place, `rows [n, heads * D]`.
    fn qk_rope(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        if heads.config.rotates(heads.layer) {
            rope::rotate(rows, heads.first, heads.table);
        }
    }

    /// K8: the key-value head that a query head reads.
    fn kv_head(&self, config: &ModelConfig, head: usize) -> usize {
        head / (config.num_heads / config.num_kv_heads)
    }

    /// K12: the keys that a query sees. Neither end may fall from one query to the next, and no range may
    /// be empty; an end beyond the sequence is cut off.
    fn visible(&self, config: &ModelConfig, layer: LayerId, query: usize) -> Range<usize> {
        attention::visible(config.window(layer), query)
    }

    /// K13: the factor on `q · k`.
    fn attention_scale(&self, config: &ModelConfig) -> f32 {
        1.0 / (config.head_dim as f32).sqrt()
    }

    /// K13: softmax in place over the scores of the keys that one query sees.
    fn softmax(&self, scores: &mut [f32]) {
        attention::softmax(scores);
    }

    /// K15: what selection goes by, for one token: `logits`, `bias` and `scores` are `[E]`.
    fn selection_scores(&self, config: &ModelConfig, logits: &[f32], bias: &[f32], scores: &mut [f32]) {
        router::selection_scores(config.selection_bias, logits, bias, scores);
    }

    /// K15: the k experts of one token, in the order in which a free run executes them.
    fn select(&self, scores: &[f32], k: usize) -> Vec<ExpertId> {
        router::select(scores, k)
    }

    /// K16: the weights of one token's executed experts, `[k]`, aligned with `ids`. `scores` is what
    /// selection went by; the correct weights do not use it.
    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        let _ = scores;
        router::topk_weights(config.router_score, config.renormalise_topk, config.route_scale, logits, ids)
    }

    /// K17: `silu(gate) * up`, in place of `gate`, both `[n, I]`; also of the shared expert.
    fn activate(&self, gate: ArrayViewMut2<'_, f32>, up: ArrayView2<'_, f32>) {
        experts::silu_times(gate, up);
    }

    /// K17: the weighted sum of one token's expert outputs, `[H]` each, in executed order, added to zeros.
    fn combine(&self, outputs: &[&[f32]], weights: &[f32], sum: &mut [f32]) {
        experts::weighted_sum(outputs, weights, sum);
    }

    /// K17: adds the shared expert's output to the routed sum, both `[n, H]`.
    fn add_shared(&self, mut sum: ArrayViewMut2<'_, f32>, shared: ArrayView2<'_, f32>) {
        sum += &shared;
    }

    /// K6: adds a branch to the residual, both `[n, H]`.
    fn add_branch(&self, mut h: ArrayViewMut2<'_, f32>, branch: ArrayView2<'_, f32>) {
        h += &branch;
    }
}

/// The forward pass as `docs/kolibri-1.md` has it: every step with its default body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Correct;

impl Steps for Correct {}
