//! Planted bugs: the catalogue, and how to build each side with one in it.
//!
//! Job: show that a check can fail. Inputs: a side of the comparison, or a checkpoint folder. Outputs: the
//! same side with one step replaced ([`PortPlant::Steps`], [`ReferencePlant`]), or a folder whose
//! files differ in what [`edit`] was told ([`PortPlant::Checkpoint`]). Every mutant keeps the shape of
//! everything and runs; what it breaks is the numbers, or the checkpoint's census.
//!
//! Absent on purpose: which check has to catch which mutant, and any running or judging; the gate does both.

pub mod edit;

mod catalogue;
mod mutant;
mod need;
mod plant;
mod port;
mod reference;
mod variants;

pub use catalogue::{catalogue, find};
pub use mutant::{Facts, Kind, Mutant, PortPlant, Stage};
pub use need::{Need, Occasion};
pub use plant::{edits, find_all, port_steps, reference_steps};
pub use port::Step as PortStep;
pub use reference::{Plant as ReferencePlant, Step as ReferenceStep};
pub use variants::variants;
