//! Planted bugs of the head (K18).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::port::Step;
use crate::port::head;

pub const ROWS: &[Mutant] = &[Mutant::new("bf16_head_logits", Stage::Head, "logits are rounded to bf16")
    .rows(&["G02"])
    .seen_in(&[PUBLISHED, "sglang#33627", "prime-rl#2441"])
    .port(&[Step::Logits], || Box::new(head::Bf16Logits))];
