//! Correct rewrites of single steps: other sums, other orders, other formulas for the same thing. No check
//! may fire on them.

pub mod port;
pub mod reference;

use crate::mutant::Mutant;

/// The gate that Kolibri's first port was published with.
const PUBLISHED: &str = "published Kolibri gate";
/// No report is known; made to show that a check keeps quiet.
const OURS: &str = "this project";

/// Every correct rewrite, those of the port first; ids are unique, also among the bugs.
pub fn variants() -> impl Iterator<Item = &'static Mutant> {
    port::ROWS.iter().chain(reference::ROWS)
}
