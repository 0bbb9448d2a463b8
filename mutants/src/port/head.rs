//! Bugs of the head (K18).

use super::through;
use mlx_rs::{Array, Dtype};
use port::engine::Op;
use port::{Correct, Steps};

/// Logits rounded to bf16.
pub struct Bf16Logits;

impl Steps for Bf16Logits {
    fn logits(&self, x: &Array, lm_head: &Array) -> Op {
        through(Dtype::Bfloat16, &Correct.logits(x, lm_head)?)
    }
}
