//! A lock: the hashes of everything that decides a verdict, frozen before the numbers are seen.
//!
//! Absent on purpose: computing the hashes; they are those of a record's inputs.

use super::record::{Amendment, Inputs, LockRecord};
use serde::{Deserialize, Serialize};
use spec::unique_json::UniqueMap;
use spec::{Error, Result, hash, output};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Version of the JSON form.
pub const SCHEMA: &str = "assay-lock/1";

/// What is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// [`SCHEMA`].
    pub schema: String,
    /// Hash by name of what is frozen.
    pub entries: BTreeMap<String, String>,
    /// What was changed since, oldest first.
    pub amendments: Vec<Amendment>,
}

/// The entries of a run: its program, checkpoint, limits (which name the controls), texts and schedule.
pub fn entries(inputs: &Inputs) -> BTreeMap<String, String> {
    let mut entries: BTreeMap<String, String> = [
        ("program", &inputs.program.sha256),
        ("checkpoint config", &inputs.checkpoint.config_sha256),
        ("checkpoint weights", &inputs.checkpoint.weights_sha256),
        ("limits and controls", &inputs.gate.sha256),
    ]
    .into_iter()
    .map(|(name, hash)| (name.into(), hash.clone()))
    .collect();
    for set in &inputs.sets {
        entries.insert(format!("text of set {}", set.name), set.tokens_sha256.clone());
    }
    if let Some(reference) = &inputs.reference {
        entries.insert("reference config".into(), reference.config_sha256.clone());
        entries.insert("reference weights".into(), reference.weights_sha256.clone());
    }
    if let Some(golden) = &inputs.golden_sha256 {
        entries.insert("golden outputs".into(), golden.clone());
    }
    entries
}

impl Lock {
    /// A lock on these entries.
    pub fn new(entries: BTreeMap<String, String>) -> Self {
        Self { schema: SCHEMA.into(), entries, amendments: Vec::new() }
    }

    /// Reads a lock; also what a record says of it. Errors: [`Error::Io`], [`Error::Argument`].
    pub fn read(path: &Path) -> Result<(Self, LockRecord)> {
        let text = std::fs::read_to_string(path).map_err(Error::io(
            "read lock",
            path,
            "make it with `assay freeze`",
        ))?;
        let damaged = |e: serde_json::Error| refuse(path, "a lock of `assay freeze`".into(), e.to_string());
        let UniqueMap(map) = serde_json::from_str(&text).map_err(damaged)?;
        match map.get("schema").and_then(|schema| schema.as_str()) {
            Some(SCHEMA) => {}
            other => return Err(refuse(path, format!("schema `{SCHEMA}`"), format!("{other:?}"))),
        }
        let lock: Lock = serde_json::from_value(map.into()).map_err(damaged)?;
        let record =
            LockRecord { sha256: hash::of_bytes(text.as_bytes()), amendments: lock.amendments.clone() };
        Ok((lock, record))
    }

    /// Writes it. Errors: [`Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("a lock is JSON") + "\n";
        output::write_file(path, |file| file.write_all(text.as_bytes()))
    }

    /// Names of entries that are not as frozen, or on one side only.
    pub fn changed(&self, now: &BTreeMap<String, String>) -> Vec<String> {
        let names: BTreeSet<&String> = self.entries.keys().chain(now.keys()).collect();
        names.into_iter().filter(|name| self.entries.get(*name) != now.get(*name)).cloned().collect()
    }

    /// Refuses a run whose entries are not as frozen. Errors: [`Error::Argument`], naming the differences.
    pub fn hold(&self, path: &Path, now: &BTreeMap<String, String>) -> Result<()> {
        let changed = self.changed(now);
        if changed.is_empty() {
            return Ok(());
        }
        let short =
            |hash: Option<&String>| hash.map_or("nothing", |hash| &hash[..hash.len().min(12)]).to_owned();
        let words = |name: &String| {
            format!("{name}: {} in the lock, {} now", short(self.entries.get(name)), short(now.get(name)))
        };
        Err(Error::Argument {
            what: format!("lock {}", path.display()),
            expected: "everything as it was frozen".into(),
            found: changed.iter().map(words).collect::<Vec<_>>().join("; "),
            next: "restore it, or amend the lock with `assay freeze --amend REASON`".into(),
        })
    }

    /// Freezes other entries instead, with a dated reason. Errors: [`Error::Argument`] without a reason, or
    /// if nothing changed.
    pub fn amend(
        &mut self,
        path: &Path,
        now: BTreeMap<String, String>,
        date: String,
        reason: &str,
    ) -> Result<()> {
        let changed = self.changed(&now);
        if changed.is_empty() {
            return Err(refuse(path, "something to amend".into(), "everything as it was frozen".into()));
        }
        if reason.trim().is_empty() {
            return Err(refuse(path, "a reason for the amendment".into(), "no words".into()));
        }
        self.amendments.push(Amendment { date, reason: reason.trim().into(), changed });
        self.entries = now;
        Ok(())
    }
}

fn refuse(path: &Path, expected: String, found: String) -> Error {
    Error::Argument {
        what: format!("lock {}", path.display()),
        expected,
        found,
        next: "make a new one with `assay freeze`".into(),
    }
}
