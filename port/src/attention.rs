//! Attention of one layer (K8 to K13).
//!
//! Inputs: the normed residual `[1, T, H]`, the layer's cache. Outputs: the output projection, `[1, T, H]`.
//! Absent on purpose: the norms around it ([`crate::layer`]).

use crate::cache::Cache;
use crate::engine::{Op, dim, length};
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

/// What attention of one call needs besides its input.
#[derive(Debug)]
pub struct Attention<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// The layer's weights.
    pub weights: &'a AttentionWeights,
    /// RoPE, or none in a layer that does not rotate (K11).
    pub rope: Option<Rope<'a>>,
    /// The layer's window, or none (K12).
    pub window: Option<usize>,
}

impl Attention<'_> {
    /// `x`: `[1, T, H]`, normed. Output: `[1, T, H]`. Sites: `q` to `o_proj`.
    pub fn run(&self, steps: &dyn Steps, x: &Array, cache: &mut dyn Cache, taps: &mut Taps) -> Op {
        let (config, w) = (self.config, self.weights);
        let (tokens, eps) = (length(x, 1), config.rms_norm_eps as f32);
        let (q, k, v) = (steps.linear(x, &w.q)?, steps.linear(x, &w.k)?, steps.linear(x, &w.v)?);
        taps.put(Site::Q, &q)?;
        taps.put(Site::K, &k)?;
        taps.put(Site::V, &v)?;

        let (q_normed, q) =
            steps.norm_then_rotate(&self.heads(&q, config.num_heads)?, &w.q_norm, eps, self.rope)?;
        let (k_normed, k) =
            steps.norm_then_rotate(&self.heads(&k, config.num_kv_heads)?, &w.k_norm, eps, self.rope)?;
        taps.put(Site::QNorm, &q_normed)?;
        taps.put(Site::KNorm, &k_normed)?;
        taps.put_heads(Site::QRope, &q)?;
        taps.put_heads(Site::KRope, &k)?;

        let v = self.heads(&v, config.num_kv_heads)?.swap_axes(1, 2)?;
        let (keys, values) = cache.update(&k, &v)?;
        let mask = steps.mask(self.window, tokens, length(&keys, 2))?;
        let out = steps.attend(&q, &keys, &values, &mask)?;
        taps.put_heads(Site::AttnOut, &out)?;

        let rows = out.swap_axes(1, 2)?.reshape(&[1, dim(tokens), -1])?;
        let out = steps.linear(&rows, &w.o)?;
        taps.put(Site::OProj, &out)?;
        Ok(out)
    }

    /// `[1, T, N*D]` to `[1, T, N, D]`
    fn heads(&self, x: &Array, heads: usize) -> Op {
        x.reshape(&[1, x.dim(1), dim(heads), dim(self.config.head_dim)])
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
