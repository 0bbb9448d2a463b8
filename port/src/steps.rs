//! The steps of the forward pass, each with the correct body as its default.
//!
//! A planted bug overrides exactly one of them; everything else stays what it is. Shapes: `T` tokens of one
//! call, `S` keys, other letters as in `docs/kolibri-1.md`. Arrays have the working dtype unless said
//! otherwise; where a shape begins with 1, a batch has its rows ([`crate::batch`]). Absent on purpose:
//! loading, recording, and where forced ids enter ([`crate::router::route`]).

use crate::attention::{self, Rope};
use crate::batch::Row;
use crate::batch_cache::BatchCache;
use crate::cache::{Cache, KvCache, RotatingCache};
use crate::engine::Op;
use crate::mask::{Mask, batch_mask, mask};
use crate::weight::Weight;
use crate::weights::{ExpertWeights, SharedWeights};
use crate::{experts, rope, router};
use mlx_rs::{Array, Dtype, fast, ops};
use spec::config::RouterScore;
use spec::{LayerId, ModelConfig};

/// Every step that a bug can be planted in.
pub trait Steps: Send + Sync {
    /// Rows of the embedding (K5). `table`: `[V, H]`, `ids`: `[1, T]` u32; output: `[1, T, H]`.
    fn embed(&self, table: &Weight, ids: &Array) -> Op {
        table.rows(ids)
    }

    /// RMSNorm over the last axis (K7), in f32, rounded once: given bf16, MLX's kernel rounds before it
    /// multiplies by the weight. `weight`: that axis.
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        let weight = weight.as_dtype(Dtype::Float32)?;
        fast::rms_norm(x.as_dtype(Dtype::Float32)?, Some(&weight), eps)?.as_dtype(x.dtype())
    }

    /// `x @ weight^T`, no bias (K8). `x`: `[1, T, in]`, `weight`: `[out, in]`; output: `[1, T, out]`.
    fn linear(&self, x: &Array, weight: &Weight) -> Op {
        weight.product(x)
    }

    /// RoPE's periods, `[D/2]` f32 (K10).
    fn rope_periods(&self, config: &ModelConfig) -> Array {
        rope::periods(config.rope_theta, config.head_dim)
    }

    /// Whether a layer rotates (K10, K11).
    fn rotates(&self, config: &ModelConfig, layer: LayerId) -> bool {
        config.rotates(layer)
    }

    /// The position of a call's first token, from the number of tokens before it (K10).
    fn rope_offset(&self, cached: usize) -> usize {
        cached
    }

    /// Rotates heads, `[1, N, T, D]` (K10).
    fn rotate(&self, x: &Array, rope: Rope<'_>) -> Op {
        rope::rotate(x, rope.periods, rope.offset)
    }

    /// The per-head norm, then RoPE where the layer has it (K9 to K11). `x`: `[1, T, N, D]`, `weight`: `[D]`.
    /// Output: normed, `[1, T, N, D]`, and as attention takes it, `[1, N, T, D]`.
    fn norm_then_rotate(
        &self,
        x: &Array,
        weight: &Array,
        eps: f32,
        rope: Option<Rope<'_>>,
    ) -> Op<(Array, Array)> {
        attention::norm_then_rotate(self, x, weight, eps, rope)
    }

    /// A layer's window, the query's own key included (K11, K12).
    fn window(&self, config: &ModelConfig, layer: LayerId) -> Option<usize> {
        config.window(layer)
    }

    /// An empty cache for a layer of this window.
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => Box::new(RotatingCache::new(window)),
            None => Box::new(KvCache::default()),
        }
    }

    /// The mask of `queries` tokens over the `keys` that the cache returned (K12).
    fn mask(&self, window: Option<usize>, queries: usize, keys: usize) -> Op<Mask> {
        mask(window, queries, keys)
    }

    /// The position of each row's first column in a call of a batch (K10); below 0 in padding.
    fn batch_offsets(&self, rows: &[Row]) -> Vec<i32> {
        rows.iter().map(Row::position).collect()
    }

    /// Rotates the heads of a batch, `[B, N, T, D]`, each row from its own offset on (K10). `offsets`: `[B]`
    /// i32.
    fn rotate_rows(&self, x: &Array, periods: &Array, offsets: &Array) -> Op {
        rope::rotate_rows(x, periods, offsets)
    }

    /// The mask of a batch (K12), `[B, 1, T, S]`. `queries`: positions of the call's columns, `[B, T]` i32;
    /// `keys`: of the cache's slots, `[B, S]` i32, the call's own last; below 0: no token.
    fn batch_mask(&self, window: Option<usize>, queries: &Array, keys: &Array) -> Op<Mask> {
        batch_mask(window, queries, keys)
    }

    /// Rows leave a batch: these stay, in this order.
    fn leave(&self, cache: &mut BatchCache, stay: &[usize]) -> Op<()> {
        cache.keep(stay)
    }

    /// Rows join a batch, after those that are in it.
    fn join(&self, cache: &mut BatchCache, new: BatchCache) -> Op<()> {
        cache.append(new)
    }

    /// Attention, scale `D^-0.5`, softmax in f32 (K13). `q`: `[1, Nq, T, D]`, `keys`, `values`:
    /// `[1, Nkv, S, D]`; output: `[1, Nq, T, D]`.
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        let scale = (q.dim(-1) as f32).sqrt().recip();
        fast::scaled_dot_product_attention(q, keys, values, scale, mask.as_mlx(), None)
    }

    /// The residual with a branch added (K6). Both `[1, T, H]`.
    fn residual(&self, h: &Array, branch: &Array) -> Op {
        h.add(branch)
    }

    /// Router logits in f32 (K14): activations are widened, never the logits rounded. `x`: `[1, T, H]`,
    /// `gate`: `[E, H]` f32; output: `[1, T, E]` f32.
    fn router_logits(&self, x: &Array, gate: &Array) -> Op {
        ops::matmul(x.as_dtype(Dtype::Float32)?, gate.transpose()?)
    }

    /// What selection compares: logit + bias in f32 (K15). Both `[.., E]` f32.
    fn selection_scores(&self, logits: &Array, bias: &Array) -> Op {
        logits.add(bias)
    }

    /// The k experts of each token, `[1, T, k]` u32, by score descending, ties by ascending id (K15).
    fn select(&self, logits: &Array, bias: &Array, k: usize) -> Op {
        router::top_k(&self.selection_scores(logits, bias)?, k)
    }

    /// The weights of `ids`, `[1, T, k]` f32: without the bias, scale as configured (K16). `logits`:
    /// `[1, T, E]` f32; `bias` is for bugs only.
    fn topk_weights(&self, logits: &Array, bias: &Array, ids: &Array, config: &ModelConfig) -> Op {
        let _ = bias;
        let chosen = logits.take_along_axis(ids, -1)?;
        let scores = match config.router_score {
            RouterScore::Sigmoid => ops::sigmoid(chosen)?,
        };
        let weights = match config.renormalise_topk {
            true => scores.divide(scores.sum_axis(-1, true)?)?,
            false => scores,
        };
        weights.multiply(Array::from_f32(config.route_scale))
    }

    /// Each row times its own expert's matrix (K17). `rows`: `[R, 1, in]`, `stack`: `[E, out, in]`, `ids`:
    /// `[R]` u32, ascending if `sorted`; output: `[R, 1, out]`.
    fn expert_product(&self, rows: &Array, stack: &Weight, ids: &Array, sorted: bool) -> Op {
        stack.gathered(rows, ids, sorted)
    }

    /// `silu(gate) * up` (K17), elementwise, in f32, rounded once.
    fn activate(&self, gate: &Array, up: &Array) -> Op {
        let wide = gate.as_dtype(Dtype::Float32)?;
        wide.multiply(ops::sigmoid(&wide)?)?.multiply(up)?.as_dtype(gate.dtype())
    }

    /// Each token's k experts, see [`experts::routed`].
    fn routed(&self, weights: &ExpertWeights, x: &Array, ids: &Array) -> Op<experts::Routed> {
        experts::routed(self, weights, x, ids)
    }

    /// The weighted sum over the k experts (K17), in f32, rounded once. `outputs`: `[1, T, k, H]`, `weights`:
    /// `[1, T, k]` f32; output: `[1, T, H]`.
    fn combine(&self, outputs: &Array, weights: &Array) -> Op {
        let weighted = outputs.multiply(weights.expand_dims(-1)?)?;
        weighted.sum_axis(-2, false)?.as_dtype(outputs.dtype())
    }

    /// The shared expert's output, ungated and unscaled (K17), see [`experts::shared`].
    fn shared(&self, weights: &SharedWeights, x: &Array) -> Op<experts::Shared> {
        experts::shared(self, weights, x)
    }

    /// The MoE's output (K17). Both `[1, T, H]`.
    fn moe_sum(&self, routed: &Array, shared: &Array) -> Op {
        routed.add(shared)
    }

    /// The final norm (K18). `h`: `[1, T, H]`.
    fn final_norm(&self, h: &Array, weight: &Array, eps: f32) -> Op {
        self.norm(h, weight, eps)
    }

    /// Logits in f32 (K18). `x`: `[1, T, H]`, `lm_head`: `[V, H]` f32; output: `[1, T, V]` f32.
    fn logits(&self, x: &Array, lm_head: &Weight) -> Op {
        lm_head.product(&x.as_dtype(Dtype::Float32)?)
    }
}

/// The steps as specified.
#[derive(Debug, Clone, Copy, Default)]
pub struct Correct;

impl Steps for Correct {}
