//! Bugs of attention: the scale of its scores, and which keys and values it takes (K8, K13).

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, fast, ops};
use port::engine::{Op, length};
use port::mask::Mask;
use port::{Correct, Steps};
use spec::ModelConfig;
use std::sync::OnceLock;

/// Scores as they are: a scale of 1.
pub struct Unscaled;

impl Steps for Unscaled {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        fast::scaled_dot_product_attention(q, keys, values, 1.0, mask.as_mlx(), None)
    }
}

/// The scale of heads as wide as `H / Nq`, which D need not be.
///
/// Attention is not told H; it is noted where the port makes its periods, once, before any call.
#[derive(Default)]
pub struct ScaledByHidden {
    width: OnceLock<f32>,
}

impl Steps for ScaledByHidden {
    fn rope_periods(&self, config: &ModelConfig) -> Array {
        self.width.get_or_init(|| config.hidden_size as f32 / config.num_heads as f32);
        Correct.rope_periods(config)
    }

    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        let width = self.width.get().expect("a port makes its periods before it attends");
        fast::scaled_dot_product_attention(q, keys, values, width.sqrt().recip(), mask.as_mlx(), None)
    }
}

/// Query head `h` reads key-value head `h mod Nkv`.
pub struct HeadsTiled;

impl Steps for HeadsTiled {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        let tiled = |heads: &Array| ops::tile(heads, &[1, q.dim(1) / heads.dim(1), 1, 1]);
        Correct.attend(q, &tiled(keys)?, &tiled(values)?, mask)
    }
}

/// Keys for values and values for keys, in calls of one token.
pub struct ExchangedInDecode;

impl Steps for ExchangedInDecode {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        match length(q, 2) {
            1 => Correct.attend(q, values, keys, mask),
            _ => Correct.attend(q, keys, values, mask),
        }
    }
}

/// Calls of one token see the first 1,024 keys and no other.
pub struct DecodeStops;

/// Keys up to which the kernel of one query was right.
const KEYS: i32 = 1024;

impl Steps for DecodeStops {
    fn attend(&self, q: &Array, keys: &Array, values: &Array, mask: &Mask) -> Op {
        if length(q, 2) > 1 || keys.dim(2) <= KEYS {
            return Correct.attend(q, keys, values, mask);
        }
        let first = |heads: &Array| heads.try_index((.., .., ..KEYS, ..));
        Correct.attend(q, &first(keys)?, &first(values)?, mask)
    }
}
