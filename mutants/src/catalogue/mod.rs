//! The planted bugs, one row each, a file for each stage.
//!
//! A row without a report of its own says where it comes from: [`PUBLISHED`], or [`OURS`]. Absent on purpose:
//! which check must see a row, which the gate says, and what each looks like, which `tests/` measures.

mod attention;
mod cache;
mod checker;
mod embedding;
mod experts;
mod head;
mod load;
mod mask;
mod norm;
mod rope;
mod router;

use crate::mutant::Mutant;

/// The gate that Kolibri's first port was published with.
const PUBLISHED: &str = "published Kolibri gate";
/// No report is known; made to show what a check can see.
const OURS: &str = "this project";

/// In the order in which a forward pass meets them.
const STAGES: [&[Mutant]; 11] = [
    load::ROWS,
    embedding::ROWS,
    norm::ROWS,
    rope::ROWS,
    mask::ROWS,
    cache::ROWS,
    attention::ROWS,
    router::ROWS,
    experts::ROWS,
    head::ROWS,
    checker::ROWS,
];

/// Every planted bug; ids are unique.
pub fn catalogue() -> impl Iterator<Item = &'static Mutant> {
    STAGES.into_iter().flatten()
}

/// The planted bug, or the correct rewrite, of that id.
pub fn find(id: &str) -> Option<&'static Mutant> {
    catalogue().chain(crate::variants()).find(|mutant| mutant.id == id)
}
