//! Bugs of the head (K18).

use super::{scaled, through};
use mlx_rs::{Array, Dtype};
use port::engine::Op;
use port::{Correct, Steps, Weight};

/// Logits rounded to bf16.
pub struct Bf16Logits;

impl Steps for Bf16Logits {
    fn logits(&self, x: &Array, lm_head: &Weight) -> Op {
        through(Dtype::Bfloat16, &Correct.logits(x, lm_head)?)
    }
}

/// Logits times a number.
pub struct Scaled(pub f32);

impl Steps for Scaled {
    fn logits(&self, x: &Array, lm_head: &Weight) -> Op {
        scaled(&Correct.logits(x, lm_head)?, self.0)
    }
}
