//! Attention of one layer (K8 to K13).
//!
//! Inputs: the normed residual `[1, T, H]`, what came before: the layer's cache, or of a batch the rows' own.
//! Outputs: the output projection, `[1, T, H]`.
//! Absent on purpose: the norms around it ([`crate::layer`]).

use crate::batch::Call;
use crate::batch_cache::BatchCache;
use crate::cache::Cache;
use crate::engine::{Op, dim, length};
use crate::mask::Mask;
use crate::record::Taps;
use crate::steps::Steps;
use crate::weights::AttentionWeights;
use mlx_rs::Array;
use spec::{ModelConfig, Site};

/// RoPE of one call: the periods of the model, and the absolute position of the call's first token.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'a> {
    /// [`crate::rope::periods`], `[D/2]`
    pub periods: &'a Array,
    /// Position of the first token.
    pub offset: usize,
}

/// How a call's queries and keys turn.
#[derive(Debug)]
pub enum Turn<'a> {
    /// Not at all: a layer that does not rotate (K11).
    Not,
    /// One sequence.
    One(Rope<'a>),
    /// Each row of a batch by itself.
    Rows {
        /// [`crate::rope::periods`], `[D/2]`
        periods: &'a Array,
        /// Position of each row's first column, `[B]` i32.
        offsets: Array,
    },
}

/// What a layer remembers of the calls before this one.
#[derive(Debug)]
pub enum Past<'a> {
    /// Of one sequence.
    One(&'a mut dyn Cache),
    /// Of the rows of a batch, and what this call holds of each.
    Batch(&'a mut BatchCache, &'a Call),
}

impl Past<'_> {
    /// Takes a call's keys and values, `[1, Nkv, T, D]`, and gives all that its queries may need,
    /// `[1, Nkv, S, D]`, and which of it they see.
    fn take(
        &mut self,
        steps: &dyn Steps,
        window: Option<usize>,
        (k, v): (&Array, &Array),
    ) -> Op<(Array, Array, Mask)> {
        match self {
            Past::One(cache) => {
                let (keys, values) = cache.update(k, v)?;
                let mask = steps.mask(window, length(k, 2), length(&keys, 2))?;
                Ok((keys, values, mask))
            }
            Past::Batch(cache, call) => {
                let (keys, values) = cache.update(k, v, call.positions())?;
                let mask = steps.batch_mask(window, &call.queries(), &cache.positions())?;
                Ok((keys, values, mask))
            }
        }
    }

    /// What must be evaluated before the next call.
    pub fn arrays(&self) -> Vec<&Array> {
        match self {
            Past::One(cache) => cache.arrays(),
            Past::Batch(cache, _) => cache.arrays(),
        }
    }
}

/// What attention of one call needs besides its input.
#[derive(Debug)]
pub struct Attention<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// The layer's weights.
    pub weights: &'a AttentionWeights,
    /// RoPE (K10, K11).
    pub turn: Turn<'a>,
    /// The layer's window, or none (K12).
    pub window: Option<usize>,
}

impl Attention<'_> {
    /// `x`: `[1, T, H]`, normed. Output: `[1, T, H]`. Sites: `q` to `o_proj`.
    pub fn run(&self, steps: &dyn Steps, x: &Array, past: &mut Past<'_>, taps: &mut Taps<'_>) -> Op {
        let (config, w) = (self.config, self.weights);
        let (q, k, v) = (steps.linear(x, &w.q)?, steps.linear(x, &w.k)?, steps.linear(x, &w.v)?);
        taps.put(Site::Q, &q)?;
        taps.put(Site::K, &k)?;
        taps.put(Site::V, &v)?;

        let (q_normed, q) = self.place(steps, &self.heads(&q, config.num_heads)?, &w.q_norm)?;
        let (k_normed, k) = self.place(steps, &self.heads(&k, config.num_kv_heads)?, &w.k_norm)?;
        taps.put(Site::QNorm, &q_normed)?;
        taps.put(Site::KNorm, &k_normed)?;
        taps.put_heads(Site::QRope, &q)?;
        taps.put_heads(Site::KRope, &k)?;

        let v = self.heads(&v, config.num_kv_heads)?.swap_axes(1, 2)?;
        let (keys, values, mask) = past.take(steps, self.window, (&k, &v))?;
        let out = steps.attend(&q, &keys, &values, &mask)?;
        taps.put_heads(Site::AttnOut, &out)?;

        let rows = out.swap_axes(1, 2)?.reshape(&[x.dim(0), x.dim(1), -1])?;
        let out = steps.linear(&rows, &w.o)?;
        taps.put(Site::OProj, &out)?;
        Ok(out)
    }

    /// `[1, T, N*D]` to `[1, T, N, D]`
    fn heads(&self, x: &Array, heads: usize) -> Op {
        x.reshape(&[x.dim(0), x.dim(1), dim(heads), dim(self.config.head_dim)])
    }

    /// The per-head norm, then RoPE (K9 to K11). `x`: `[1, T, N, D]`, `weight`: `[D]`. Output: normed,
    /// `[1, T, N, D]`, and as attention takes it, `[1, N, T, D]`.
    fn place(&self, steps: &dyn Steps, x: &Array, weight: &Array) -> Op<(Array, Array)> {
        let eps = self.config.rms_norm_eps as f32;
        match &self.turn {
            Turn::Not => steps.norm_then_rotate(x, weight, eps, None),
            Turn::One(rope) => steps.norm_then_rotate(x, weight, eps, Some(*rope)),
            Turn::Rows { periods, offsets } => {
                let (normed, heads) = steps.norm_then_rotate(x, weight, eps, None)?;
                Ok((normed, steps.rotate_rows(&heads, periods, offsets)?))
            }
        }
    }
}

/// The per-head norm, then RoPE where the layer has it (K9 to K11), see [`Steps::norm_then_rotate`].
pub fn norm_then_rotate<S: Steps + ?Sized>(
    steps: &S,
    x: &Array,
    weight: &Array,
    eps: f32,
    rope: Option<Rope<'_>>,
) -> Op<(Array, Array)> {
    let normed = steps.norm(x, weight, eps)?;
    let heads = normed.swap_axes(1, 2)?;
    let placed = rope.map_or_else(|| Ok(heads.clone()), |rope| steps.rotate(&heads, rope))?;
    Ok((normed, placed))
}
