//! What a comparison is asked to do, and who is told how far it has come.

use spec::{Precision, Schedule};
use std::ops::Range;

/// Which end-to-end runs the port makes. The per-layer table is forced and re-injected in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortRuns {
    /// One forced onto the reference's choices, one free.
    #[default]
    ForcedAndFree,
    /// The forced one only.
    Forced,
    /// The free one only.
    Free,
}

impl PortRuns {
    /// Whether a forced run is made.
    pub fn forced(self) -> bool {
        self != Self::Free
    }

    /// Whether a free run is made.
    pub fn free(self) -> bool {
        self != Self::Forced
    }
}

/// What to compare, and in which arithmetic.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Options {
    /// The layers of the table; `None`: all. The end-to-end runs are of the whole model in any case.
    pub layers: Option<Range<usize>>,
    /// How both sides are fed.
    pub schedule: Schedule,
    /// The reference's arithmetic.
    pub reference_precision: Precision,
    /// The port's arithmetic.
    pub port_precision: Precision,
    /// The port's end-to-end runs.
    pub routing: PortRuns,
}

/// Is told how far a comparison has come. A new phase ends the one before.
pub trait Progress {
    /// A phase of `total` steps begins.
    fn phase(&mut self, name: &'static str, total: usize);

    /// `steps` more of the current phase are done.
    fn step(&mut self, steps: usize);

    /// What the phases that follow belong to.
    fn section(&mut self, name: &str) {
        let _ = name;
    }
}

/// Nobody is told.
impl Progress for () {
    fn phase(&mut self, _name: &'static str, _total: usize) {}

    fn step(&mut self, _steps: usize) {}
}
