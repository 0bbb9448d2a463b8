//! Planted bugs of the head (K18).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::port::Step;
use crate::port::head;

pub const ROWS: &[Mutant] = &[
    Mutant::new("bf16_head_logits", Stage::Head, "logits are rounded to bf16")
        .rows(&["G02"])
        .seen_in(&[PUBLISHED, "sglang#33627", "prime-rl#2441"])
        .port(&[Step::Logits], || Box::new(head::Bf16Logits)),
    Mutant::new("head_scaled_1_1", Stage::Head, "logits are multiplied by 1.1, which changes no ranking")
        .rows(&["G03"])
        .seen_in(&["vllm#52158", "vllm#52173", "unsloth-zoo#593", "unsloth#1218"])
        .port(&[Step::Logits], || Box::new(head::Scaled(1.1))),
];
