//! Gate files: which checks apply, their limits with reasons, and the planted bugs bound to their legs.
//!
//! Input: the text of a `gates/<name>.json`. Output: a [`Gate`] in which every check of docs/gate.md is
//! either applied, with a limit for each of its legs and at least one control, or not applicable, with a
//! reason. Absent on purpose: judging.

use super::checks::{self, Check};
use super::record::Bound;
use serde::Deserialize;
use spec::unique_json::UniqueMap;
use spec::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Version of the JSON form.
pub const SCHEMA: &str = "assay-gate/1";

/// A gate file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// [`SCHEMA`].
    pub schema: String,
    /// The gate's name.
    pub name: String,
    /// The sets of text, in the order in which they take tokens.
    pub sets: Vec<SetShape>,
    /// Tokens per prefill call of the port.
    pub chunk: usize,
    /// Tokens of the sequence that controls, floors and schedules run on.
    pub control_tokens: usize,
    /// By name of the check.
    pub checks: BTreeMap<String, Applied>,
    /// Checks that do not apply, and why.
    pub not_applicable: BTreeMap<String, String>,
}

/// How a set is cut.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetShape {
    /// The set's name.
    pub name: String,
    /// How many sequences.
    pub sequences: usize,
    /// Tokens of each.
    pub length: usize,
}

/// A check that applies.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applied {
    /// A limit for each leg.
    pub legs: BTreeMap<String, Limit>,
    /// By id of the planted bug: the legs that must fire.
    pub controls: BTreeMap<String, Vec<String>>,
}

/// What a leg is held against.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Which way.
    pub bound: Bound,
    /// The limit, or its floor where there is a calibrator.
    pub value: f64,
    /// The limit is at least this many times what the calibrator reached.
    pub times_calibrator: Option<f64>,
    /// Why this number.
    pub why: String,
    /// What it was calibrated by: a measurement, or an argument.
    pub calibrated_by: String,
    /// Why no planted bug is bound to this leg; left out where one is.
    pub no_control: Option<String>,
}

impl Gate {
    /// Reads the text of a gate file. `path` is for messages, `known` are the planted bugs there are. Errors:
    /// [`Error::Argument`] naming the file, and the check and leg or the place of the key.
    pub fn parse(text: &str, path: &Path, known: &[String]) -> Result<Self> {
        let refuse = Refuse { path };
        let UniqueMap(map) = serde_json::from_str(text)
            .map_err(|e| refuse.of("valid JSON with each key once", &e.to_string()))?;
        let value = serde_json::Value::from(map);
        let gate: Gate = serde_path_to_error::deserialize(value).map_err(|e| {
            refuse.of(&format!("the keys of a gate file at `{}`", e.path()), &e.inner().to_string())
        })?;
        gate.check(&refuse, known)?;
        Ok(gate)
    }

    /// The limit of a leg; `None` if the check does not apply.
    pub fn limit(&self, check: &str, leg: &str) -> Option<&Limit> {
        self.checks.get(check).and_then(|applied| applied.legs.get(leg))
    }

    /// Every planted bug that some check names, with its (check, leg)s, in order of id.
    pub fn controls(&self) -> BTreeMap<&str, Vec<(&'static Check, &str)>> {
        let mut controls: BTreeMap<&str, Vec<(&'static Check, &str)>> = BTreeMap::new();
        for check in checks::all() {
            let Some(applied) = self.checks.get(check.name) else { continue };
            for (mutant, legs) in &applied.controls {
                let bound = legs.iter().map(|leg| (check, leg.as_str()));
                controls.entry(mutant).or_default().extend(bound);
            }
        }
        controls
    }

    fn check(&self, refuse: &Refuse<'_>, known: &[String]) -> Result<()> {
        if self.schema != SCHEMA {
            return Err(refuse.of(&format!("schema `{SCHEMA}`"), &format!("`{}`", self.schema)));
        }
        let positive = [("chunk", self.chunk), ("control_tokens", self.control_tokens)];
        let of_sets = self.sets.iter().flat_map(|set| [("sequences", set.sequences), ("length", set.length)]);
        if let Some((key, _)) = positive.into_iter().chain(of_sets).find(|(_, number)| *number == 0) {
            return Err(refuse.of(&format!("`{key}` of at least 1"), "0"));
        }
        let names: BTreeSet<&str> = self.sets.iter().map(|set| set.name.as_str()).collect();
        if names.is_empty() || names.len() < self.sets.len() {
            let found = format!("{} sets with {} names", self.sets.len(), names.len());
            return Err(refuse.of("sets of text, each with a name of its own", &found));
        }
        for check in checks::all() {
            let reason = self.not_applicable.get(check.name);
            match (self.checks.get(check.name), reason) {
                (Some(applied), None) => applied.check(check, refuse, known)?,
                (None, Some(_)) => {}
                (Some(_), Some(_)) => {
                    return Err(
                        refuse.of(&format!("`{}` once", check.name), "limits and a reason against it")
                    );
                }
                (None, None) => {
                    let expected = format!("limits for `{}`, or why it is not applicable", check.name);
                    return Err(refuse.of(&expected, "neither"));
                }
            }
        }
        let mut named = self.checks.keys().chain(self.not_applicable.keys());
        if let Some(name) = named.find(|name| checks::find(name).is_none()) {
            return Err(refuse.of("names of checks", &format!("`{name}`")));
        }
        match self.not_applicable.iter().find(|(_, reason)| reason.trim().is_empty()) {
            Some((name, _)) => Err(refuse.of(&format!("why `{name}` is not applicable"), "an empty reason")),
            None => Ok(()),
        }
    }
}

impl Applied {
    fn check(&self, check: &Check, refuse: &Refuse<'_>, known: &[String]) -> Result<()> {
        let name = check.name;
        for (leg, _) in check.legs {
            let Some(limit) = self.legs.get(*leg) else {
                return Err(refuse.of(&format!("a limit for `{leg}` of `{name}`"), "none"));
            };
            if limit.why.trim().is_empty() || limit.calibrated_by.trim().is_empty() {
                return Err(
                    refuse.of(&format!("`why` and `calibrated_by` of `{leg}` of `{name}`"), "no words")
                );
            }
            if limit.bound != check.bound() {
                let expected = format!("bound {:?} for `{leg}` of `{name}`", check.bound());
                return Err(refuse.of(&expected, &format!("{:?}", limit.bound)));
            }
            let factor = limit.times_calibrator.unwrap_or(1.0);
            if !limit.value.is_finite() || !factor.is_finite() || factor <= 0.0 {
                let found = format!("value {}, times_calibrator {factor}", limit.value);
                return Err(refuse.of(&format!("finite numbers for `{leg}` of `{name}`"), &found));
            }
        }
        if let Some(leg) = self.legs.keys().find(|leg| check.group(leg).is_none()) {
            return Err(refuse.of(&format!("legs of `{name}`"), &format!("`{leg}`")));
        }
        if self.controls.is_empty() {
            return Err(refuse.of(&format!("a planted bug that `{name}` must catch"), "none"));
        }
        for (mutant, legs) in &self.controls {
            if !known.contains(mutant) {
                return Err(refuse.of(&format!("planted bugs of the catalogue for `{name}`"), mutant));
            }
            if legs.is_empty() || legs.iter().any(|leg| check.group(leg).is_none()) {
                let expected = format!("legs of `{name}` that `{mutant}` must make fire");
                return Err(refuse.of(&expected, &format!("{legs:?}")));
            }
        }
        self.check_bound(check, refuse)
    }

    /// Each leg has a bug that must make it fire, or a reason why it has none.
    fn check_bound(&self, check: &Check, refuse: &Refuse<'_>) -> Result<()> {
        for (leg, limit) in &self.legs {
            let bound = self.controls.values().flatten().any(|of| of == leg);
            let reason = limit.no_control.as_ref().is_some_and(|reason| !reason.trim().is_empty());
            if bound == reason {
                let expected =
                    format!("for `{leg}` of `{}`, a planted bug or `no_control` with why", check.name);
                return Err(refuse.of(&expected, if bound { "both" } else { "neither" }));
            }
        }
        Ok(())
    }
}

struct Refuse<'a> {
    path: &'a Path,
}

impl Refuse<'_> {
    fn of(&self, expected: &str, found: &str) -> Error {
        Error::Argument {
            what: format!("gate file {}", self.path.display()),
            expected: expected.into(),
            found: found.into(),
            next: "correct the file; docs/gate.md lists checks and legs".into(),
        }
    }
}
