//! Planted bugs: the catalogue, and how to build each side with one in it.
//!
//! Job: show that a check can fail. Inputs: a side of the comparison, or a checkpoint folder. Outputs: the
//! same side with one step replaced ([`PortPlant::Steps`], [`field@Mutant::reference`]), or a folder whose
//! files differ in what [`edit`] was told ([`PortPlant::Checkpoint`]). Every mutant keeps the shape of
//! everything and runs; what it breaks is the numbers, or the checkpoint's census.
//!
//! Absent on purpose: which check has to catch which mutant, and any running or judging; the gate does both.

pub mod edit;

mod catalogue;
mod mutant;
mod port;
mod reference;

pub use catalogue::{catalogue, find};
pub use mutant::{Facts, Mutant, PortPlant, Stage};
