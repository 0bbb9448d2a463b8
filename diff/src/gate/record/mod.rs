//! The record: everything a gate run found, as it is serialised. Reports are made from it, later and
//! elsewhere.
//!
//! Two runs of one program on the same inputs give the same record apart from [`Record::environment`] and
//! [`Record::times`]. Absent on purpose: tables and plots (`reports`), and writing files
//! ([`super::folder`]).

mod inputs;
mod sets;

pub use inputs::{Amendment, Checkpoint, GateFile, Inputs, LockRecord, Program, SetInputs};
pub use sets::{
    Branches, Bucket, BuildRecord, Damage, LayerRecord, NllRecord, PairedTop1, Router, RunName, RunRecord,
    SequenceRate, SetRecord,
};

use crate::number;
use serde::{Deserialize, Serialize};
use spec::SideInfo;

/// Version of the JSON form.
pub const SCHEMA: &str = "assay-record/1";

/// A gate run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run's name, as in its folder's.
    pub name: String,
    /// `null` until the run is finished.
    pub verdict: Option<Verdict>,
    /// What keeps the verdict from PASS, one sentence each.
    pub reasons: Vec<String>,
    /// What was judged, by what.
    pub inputs: Inputs,
    /// One per leg and set, in the order of the checks.
    pub findings: Vec<Finding>,
    /// Checks that this gate does not apply.
    pub not_applicable: Vec<NotApplicable>,
    /// Numbers behind the findings, by set of text.
    pub sets: Vec<SetRecord>,
    /// The planted bugs and what they did.
    pub controls: Vec<Control>,
    /// What the reference read of the checkpoint, by pass.
    pub bytes_read: Vec<BytesRead>,
    /// Who computed, with which settings; may differ from run to run.
    pub environment: Environment,
    /// Wall times; differ from run to run.
    pub times: Times,
}

/// The outcome of a gate run (docs/gate.md, Verdict).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Every applicable check passed and every control was caught.
    Pass,
    /// A check failed.
    Fail,
    /// An applicable check compared nothing.
    Void,
    /// A control was not caught: power not shown.
    Incomplete,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Void => "VOID",
            Verdict::Incomplete => "INCOMPLETE",
        })
    }
}

/// Which way a limit bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Passes if `value <= limit`.
    AtMost,
    /// Passes if `value >= limit`.
    AtLeast,
    /// Passes if `value > limit`.
    Above,
}

/// How one leg came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Within its limit.
    Pass,
    /// Beyond it, or NaN.
    Fail,
    /// Nothing was compared.
    Void,
}

/// One leg of a check, on one set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The check: "layer.branch".
    pub check: String,
    /// The leg: "attn.median".
    pub leg: String,
    /// The set of text; `null` for what is measured once.
    pub set: Option<String>,
    /// How many rows, values or tensors it was measured on.
    pub rows: usize,
    /// The worst of what was measured.
    #[serde(with = "number")]
    pub value: f64,
    /// What it was held against, calibrator included.
    #[serde(with = "number")]
    pub limit: f64,
    /// Which way.
    pub bound: Bound,
    /// What the calibrator reached on the same rows; `null` where the limit is absolute.
    #[serde(with = "number::option")]
    pub calibrator: Option<f64>,
    /// How far: 1 is at the limit, below 1 within (docs/gate.md, Excess).
    #[serde(with = "number")]
    pub excess: f64,
    /// The outcome.
    pub outcome: Outcome,
    /// Where the worst is: layer, case, position; empty where there is no place.
    pub place: String,
}

/// A check that the gate file does not apply, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotApplicable {
    /// The check.
    pub check: String,
    /// Why.
    pub reason: String,
}

/// A planted bug and whether it was caught.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The bug's id.
    pub mutant: String,
    /// Where it was planted: "port", "reference", "checkpoint", "harness".
    pub side: String,
    /// What it does.
    pub what: String,
    /// Public reports of it.
    pub seen_in: Vec<String>,
    /// Whether every leg it is bound to fired.
    pub caught: bool,
    /// What each leg measured.
    pub legs: Vec<ControlLeg>,
}

/// One leg that a control must make fire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlLeg {
    /// The check.
    pub check: String,
    /// The leg.
    pub leg: String,
    /// What was measured with the bug in place.
    #[serde(with = "number")]
    pub value: f64,
    /// What was measured on the same rows without it; a leg that fires then too shows nothing.
    #[serde(with = "number")]
    pub unmutated: f64,
    /// The limit the unmutated run is held to, on the same rows.
    #[serde(with = "number")]
    pub limit: f64,
    /// The excess it reached.
    #[serde(with = "number")]
    pub margin: f64,
    /// Whether the leg fired with the bug, and not without it.
    pub caught: bool,
    /// Whether it fired with a margin under [`WEAK`].
    pub weak: bool,
    /// Where, or why it did not fire.
    pub place: String,
}

/// A margin under this is printed as weak.
pub const WEAK: f64 = 10.0;

/// What one pass of the reference read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BytesRead {
    /// Which pass.
    pub pass: String,
    /// Lanes that shared it.
    pub lanes: usize,
    /// Checkpoint bytes decoded; at most the checkpoint's size, as each weight is read once.
    pub bytes: u64,
}

/// Who computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Both sides.
    pub sides: Vec<SideInfo>,
}

/// Wall times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// When the run began, UTC, RFC 3339.
    pub started: String,
    /// Seconds by phase, in order; a resumed run lists what its parts took.
    pub phases: Vec<Phase>,
}

/// The time of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Which.
    pub name: String,
    /// Seconds.
    pub seconds: f64,
}
