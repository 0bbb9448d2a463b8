//! Planted bugs of attention (K13).

use crate::mutant::{Mutant, Stage};
use crate::need::Need;
use crate::port::Step;
use crate::port::attention;

pub const ROWS: &[Mutant] = &[
    Mutant::new("attention_scale_one", Stage::Attention, "scores are not scaled")
        .rows(&["A07"])
        .seen_in(&["mlc-llm#3426", "ferrox#40", "llama.cpp#13951", "TransformerLens#694"])
        .port(&[Step::Attend], || Box::new(attention::Unscaled)),
    Mutant::new(
        "attention_scale_hidden",
        Stage::Attention,
        "the scale goes by hidden size over heads, not by the heads' width",
    )
    .rows(&["A07"])
    .seen_in(&["mlc-llm#3426", "ferrox#40", "llama.cpp#13951", "TransformerLens#694"])
    .needs(&[Need::HeadsOtherThanHidden])
    .port(&[Step::RopePeriods, Step::Attend], || Box::<attention::ScaledByHidden>::default()),
];
