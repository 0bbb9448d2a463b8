//! What a record says of its inputs: program, checkpoint, limits, texts, lock.

use crate::compare::CaseInfo;
use serde::{Deserialize, Serialize};

/// What was judged, and by what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// This program.
    pub program: Program,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The checkpoint that it is a build of, whose choices were forced; `null` if none was named.
    pub reference: Option<Checkpoint>,
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
    /// SHA-256 of each sequence's length and token ids, as little-endian u32, sequence after sequence.
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
