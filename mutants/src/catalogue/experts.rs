//! Planted bugs of the experts and their sum (K17).

use super::{OURS, PUBLISHED};
use crate::mutant::{Mutant, Stage};
use crate::port::Step;
use crate::port::experts;

pub const ROWS: &[Mutant] = &[
    Mutant::new(
        "swiglu_swapped",
        Stage::Experts,
        "the activation is on the up projection instead of the gate",
    )
    .seen_in(&[PUBLISHED])
    .port(&[Step::Activate], || Box::new(experts::SwappedGate)),
    Mutant::new(
        "activation_rounded_per_step",
        Stage::Experts,
        "in bf16, SiLU rounds after each of its three steps",
    )
    .seen_in(&[OURS])
    .port(&[Step::Activate], || Box::new(experts::ActivationRounded)),
    Mutant::new("combine_rounded_per_term", Stage::Experts, "the weighted sum is rounded after each term")
        .rows(&["X05"])
        .seen_in(&["mlx-lm#938", "TRT#16778", "Automodel#2591"])
        .port(&[Step::Combine], || Box::new(experts::RoundedPerTerm)),
    Mutant::new("shared_half", Stage::Experts, "half of the shared expert's output is added")
        .rows(&["X02"])
        .seen_in(&[PUBLISHED])
        .port(&[Step::Shared], || Box::new(experts::SharedHalf)),
];
