//! The record: everything a gate run found, as it is serialised. Reports are made from it, later and elsewhere.
//!
//! Two runs of one program on the same inputs give the same record apart from [`Record::environment`] and
//! [`Record::times`]. Absent on purpose: tables and plots (`reports`), and writing files
//! ([`super::folder`]).

use crate::compare::{CaseInfo, Place};
use crate::number;
use crate::stats::{Rate, Spread};
use serde::{Deserialize, Serialize};
use spec::{LayerId, LayerKind, SideInfo};

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

/// What was judged, and by what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// This program.
    pub program: Program,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The limits.
    pub gate: GateFile,
    /// The texts.
    pub sets: Vec<SetInputs>,
    /// The sequence that controls, floors and schedules run on.
    pub control_case: CaseInfo,
    /// SHA-256 of the golden outputs; `null` where the gate does not apply them.
    pub golden_sha256: Option<String>,
    /// Tokens per prefill call of the port.
    pub chunk: usize,
    /// The bug planted in the port that was judged; `null` but in a demonstration.
    pub port_mutant: Option<String>,
    /// A control that was switched off for a test.
    pub disabled_control: Option<String>,
    /// The lock the run was held to.
    pub lock: Option<LockRecord>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// The commit it was built from, or "unknown".
    pub commit: String,
    /// SHA-256 of its executable file.
    pub sha256: String,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Its folder's name.
    pub name: String,
    /// SHA-256 of `config.json`.
    pub config_sha256: String,
    /// SHA-256 of the weights, as `assay inspect` prints it.
    pub weights_sha256: String,
    /// Bytes of its weight files.
    pub bytes: u64,
}

/// A file of limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateFile {
    /// Its name.
    pub name: String,
    /// SHA-256 of its text.
    pub sha256: String,
}

/// A set of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetInputs {
    /// Its name: "short", "long".
    pub name: String,
    /// Where the tokens came from.
    pub about: String,
    /// SHA-256 of the token ids, as little-endian u32, sequence after sequence.
    pub tokens_sha256: String,
    /// The sequences.
    pub cases: Vec<CaseInfo>,
}

/// A lock and what was changed in it since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockRecord {
    /// SHA-256 of the lock file.
    pub sha256: String,
    /// Every amendment, oldest first.
    pub amendments: Vec<Amendment>,
}

/// A change of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// Day, `YYYY-MM-DD`.
    pub date: String,
    /// Why.
    pub reason: String,
    /// The names of the entries that changed.
    pub changed: Vec<String>,
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

/// The numbers of one set of text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRecord {
    /// The set's name.
    pub name: String,
    /// Layer by layer.
    pub layers: Vec<LayerRecord>,
    /// End to end, run by run.
    pub runs: Vec<RunRecord>,
    /// Confident top-1 of the free bf16 runs, both arms paired; `null` where it was not measured.
    pub top1: Option<PairedTop1>,
    /// How well the reference and its planted bugs predict the text; `null` where it was not measured.
    pub nll: Option<NllRecord>,
}

/// One layer; all numbers over all rows of the set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRecord {
    /// Counted from 0.
    pub layer: LayerId,
    /// Sliding or full.
    pub kind: LayerKind,
    /// Rows compared.
    pub rows: usize,
    /// The port in f32, re-injected and forced, against the reference.
    pub f32: Branches,
    /// The port in bf16, likewise.
    pub bf16: Branches,
    /// The reference's bf16 emulation, likewise: what correct bf16 arithmetic reaches.
    pub emulation: Branches,
    /// The router of the port in f32, re-injected.
    pub router_f32: Router,
    /// The router of the port in bf16, re-injected.
    pub router_bf16: Router,
    /// The router of the emulation, re-injected.
    pub router_emulation: Router,
    /// The router of the port in bf16, in its free run from end to end; reported, not judged.
    pub router_bf16_free: Router,
    /// The router of the emulation in its free run; reported, not judged.
    pub router_emulation_free: Router,
}

/// Relative L2 errors of both branches, per row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branches {
    /// Attention.
    pub attn: Spread,
    /// MoE.
    pub moe: Spread,
}

/// Router logits and chosen sets against the reference's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// RMS error of the logits over tokens and experts.
    #[serde(with = "number")]
    pub sigma: f64,
    /// RMS of the reference's logits.
    #[serde(with = "number")]
    pub logits_rms: f64,
    /// Rows whose chosen set differs.
    pub differing: Rate,
    /// The largest `z = gap / sigma` of a differing row; 0 where none differs.
    #[serde(with = "number")]
    pub largest_z: f64,
}

/// One end-to-end run against the reference's logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// Which: see [`RunName`].
    pub run: RunName,
    /// KL of the reference to the run, nats per position.
    pub kl_nats: Spread,
    /// Where the largest is.
    pub kl_worst: Place,
    /// The same along the context.
    pub buckets: Vec<Bucket>,
    /// Confident positions with the reference's top token.
    pub confident_top1: Rate,
    /// The same by sequence.
    pub by_sequence: Vec<SequenceRate>,
}

/// The end-to-end runs of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunName {
    /// The port in f32, forced onto the reference's choices.
    F32Forced,
    /// The port in f32 forced onto its own choices in order of id, against its own free run: the sorted floor.
    SortedFloor,
    /// The port in bf16, forced.
    Bf16Forced,
    /// The emulation, forced.
    EmulationForced,
    /// The port in bf16, free.
    Bf16Free,
    /// The emulation, free.
    EmulationFree,
}

impl RunName {
    /// As a reader sees it.
    pub fn words(self) -> &'static str {
        match self {
            RunName::F32Forced => "port f32, forced",
            RunName::SortedFloor => "sorted floor (port f32)",
            RunName::Bf16Forced => "port bf16, forced",
            RunName::EmulationForced => "emulation, forced",
            RunName::Bf16Free => "port bf16, free",
            RunName::EmulationFree => "emulation, free",
        }
    }
}

/// KL over a range of positions of every sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// First position.
    pub from: usize,
    /// One past the last.
    pub to: usize,
    /// Positions of all sequences in it.
    pub positions: usize,
    /// Mean KL, nats.
    #[serde(with = "number")]
    pub mean: f64,
    /// Largest KL, nats.
    #[serde(with = "number")]
    pub max: f64,
}

/// A rate in one sequence, with its nominal interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceRate {
    /// The sequence.
    pub case: String,
    /// The rate.
    pub rate: Rate,
}

/// Two arms' rates on the same positions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairedTop1 {
    /// Blocks of consecutive positions that were drawn.
    pub blocks: usize,
    /// The emulation's rate minus the port's, in rates (0.01 is one percentage point).
    #[serde(with = "number")]
    pub shortfall: f64,
    /// 2.5th percentile over the bootstrap.
    #[serde(with = "number")]
    pub low: f64,
    /// 97.5th percentile.
    #[serde(with = "number")]
    pub high: f64,
}

/// Negative log-likelihood of a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NllRecord {
    /// Next tokens.
    pub tokens: usize,
    /// The reference's mean, nats per token.
    #[serde(with = "number")]
    pub nats_per_token: f64,
    /// The same in bits.
    #[serde(with = "number")]
    pub bits_per_token: f64,
    /// Blocks that were drawn.
    pub blocks: usize,
    /// What each planted bug of the reference costs.
    pub damage: Vec<Damage>,
}

/// How much worse a bug in the reference predicts the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Damage {
    /// The bug.
    pub mutant: String,
    /// Mean, nats per token.
    #[serde(with = "number")]
    pub nats_per_token: f64,
    /// 1st percentile over the bootstrap.
    #[serde(with = "number")]
    pub p1: f64,
    /// 99th percentile.
    #[serde(with = "number")]
    pub p99: f64,
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
    /// The limit the unmutated run is held to, on the same rows.
    #[serde(with = "number")]
    pub limit: f64,
    /// The excess it reached.
    #[serde(with = "number")]
    pub margin: f64,
    /// Whether the leg fired.
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
