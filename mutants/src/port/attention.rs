//! Bugs of the scores' scale (K13).

use mlx_rs::{Array, fast};
use port::engine::Op;
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
