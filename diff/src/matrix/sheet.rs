//! What a run of the catalogue found, as it is serialised: [`Sheet`] of one checkpoint, [`Matrix`] of
//! several.
//!
//! Absent on purpose: tables (`reports`), and running anything.

use crate::gate::record::{Checkpoint, WEAK};
use crate::number;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form.
pub const SCHEMA: &str = "assay-mutants/1";

/// Every planted bug and correct rewrite against every check, on some checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// Whether every row of the catalogue was run; of a part, what no check caught says nothing about checks.
    pub whole: bool,
    /// One per checkpoint.
    pub sheets: Vec<Sheet>,
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// What was loaded.
    pub checkpoint: Checkpoint,
    /// The gate file whose limits hold.
    pub gate: String,
    /// Tokens of the one sequence.
    pub tokens: usize,
    /// Tokens per prefill call of the port.
    pub chunk: usize,
    /// Tokens at the end that were fed one at a time where decoding is checked.
    pub decoded: usize,
    /// The checks that were run, in the order of docs/gate.md.
    pub checks: Vec<String>,
    /// Checks that do not pass without any bug; nothing is shown by these.
    pub failing: Vec<String>,
    /// One per planted bug or rewrite and side.
    pub rows: Vec<Row>,
    /// Wall time; differs from run to run.
    pub seconds: f64,
}

/// One planted bug or rewrite, on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// "port", "checkpoint", "reference", "harness".
    pub side: String,
    /// Whether it is a correct rewrite.
    pub rewrite: bool,
    /// The part of the model.
    pub stage: String,
    /// How it came out.
    pub outcome: Outcome,
    /// What is missing where it is not exercised; the message where it crashed; else empty.
    pub why: String,
    /// One per check that was run on this side.
    pub cells: Vec<Cell>,
}

/// How a row came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A bug on which a check fired that passes without it.
    Caught,
    /// A bug on which none fired.
    Missed,
    /// A bug that cannot do anything here.
    NotExercised,
    /// A side or the program failed; never counted as caught.
    Crashed,
    /// A correct rewrite on which nothing fired.
    Quiet,
    /// A correct rewrite on which a check fired.
    FalseAlarm,
}

/// One check on one row: its leg that is furthest beyond its limit, or nearest to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The check.
    pub check: String,
    /// The leg.
    pub leg: String,
    /// With the bug.
    #[serde(with = "number")]
    pub value: f64,
    /// Of the run without it, on the same rows.
    #[serde(with = "number")]
    pub limit: f64,
    /// The excess: 1 is at the limit.
    #[serde(with = "number")]
    pub margin: f64,
    /// Whether it fired with the bug and passes without it.
    pub fired: bool,
}

/// One bug or rewrite over all checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overall {
    /// Its id.
    pub id: String,
    /// The side.
    pub side: String,
    /// Crashed or false anywhere; else caught anywhere; else missed anywhere.
    pub outcome: Outcome,
    /// Where it was caught by the largest margin: checkpoint, check, leg, margin.
    pub best: Option<(String, String, String, f64)>,
}

impl Outcome {
    /// The word of tables.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Caught => "caught",
            Outcome::Missed => "MISSED",
            Outcome::NotExercised => "not exercised",
            Outcome::Crashed => "CRASHED",
            Outcome::Quiet => "quiet",
            Outcome::FalseAlarm => "FALSE ALARM",
        }
    }

    /// Whether a run that has it anywhere has failed.
    pub fn is_failure(self) -> bool {
        matches!(self, Outcome::Missed | Outcome::Crashed | Outcome::FalseAlarm)
    }

    /// Which of two outcomes of one row on two checkpoints is its outcome over both.
    fn over(self, other: Outcome) -> Outcome {
        let rank = |outcome| match outcome {
            Outcome::Crashed => 5,
            Outcome::FalseAlarm => 4,
            Outcome::Caught => 3,
            Outcome::Missed => 2,
            Outcome::Quiet => 1,
            Outcome::NotExercised => 0,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

impl Row {
    /// The cell that fired by the largest margin.
    pub fn best(&self) -> Option<&Cell> {
        let fired = self.cells.iter().filter(|cell| cell.fired);
        fired.max_by(|a, b| a.margin.total_cmp(&b.margin))
    }

    /// How much of a caught bug a reader of the port's text would notice, by which checks fired; `None` of a
    /// row that was not caught.
    pub fn subtlety(&self) -> Option<Subtlety> {
        let fired = |end: fn(&str) -> bool| self.cells.iter().any(|cell| cell.fired && end(&cell.check));
        match self.outcome {
            Outcome::Caught if fired(|check| check.ends_with(".top1")) => Some(Subtlety::Loud),
            Outcome::Caught if fired(|check| check.ends_with(".kl") || check == "forced.bf16") => {
                Some(Subtlety::Medium)
            }
            Outcome::Caught => Some(Subtlety::Subtle),
            _ => None,
        }
    }
}

/// See [`Row::subtlety`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subtlety {
    /// It changes tokens that the reference is confident of.
    Loud,
    /// It moves the distributions of next tokens, and no confident token.
    Medium,
    /// Nothing end to end shows it.
    Subtle,
}

impl Subtlety {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Subtlety::Loud => "loud: changes tokens that the reference is confident of",
            Subtlety::Medium => "medium: moves the distributions of next tokens",
            Subtlety::Subtle => "subtle: nothing end to end in one schedule shows it",
        }
    }
}

impl Matrix {
    /// One per row, over all checkpoints, in the order of the first that has it.
    pub fn overall(&self) -> Vec<Overall> {
        let mut order: Vec<Overall> = Vec::new();
        for sheet in &self.sheets {
            for row in &sheet.rows {
                let best = row.best().map(|cell| {
                    (sheet.checkpoint.name.clone(), cell.check.clone(), cell.leg.clone(), cell.margin)
                });
                match order.iter_mut().find(|old| old.id == row.id && old.side == row.side) {
                    None => {
                        let (id, side) = (row.id.clone(), row.side.clone());
                        order.push(Overall { id, side, outcome: row.outcome, best });
                    }
                    Some(old) => {
                        old.outcome = old.outcome.over(row.outcome);
                        let margin = |best: &Option<(_, _, _, f64)>| best.as_ref().map_or(0.0, |best| best.3);
                        if margin(&best) > margin(&old.best) {
                            old.best = best;
                        }
                    }
                }
            }
        }
        order
    }

    /// Of the rows that some checkpoint exercises: caught, and caught or missed or crashed. Rewrites do not
    /// count.
    pub fn score(&self) -> (usize, usize) {
        let overall = self.overall();
        let count =
            |outcomes: &[Outcome]| overall.iter().filter(|row| outcomes.contains(&row.outcome)).count();
        (count(&[Outcome::Caught]), count(&[Outcome::Caught, Outcome::Missed, Outcome::Crashed]))
    }

    /// By check, the bug that it caught by the largest margin: id, leg, margin, checkpoint; `None`: it caught
    /// none.
    pub fn strongest(&self) -> BTreeMap<&str, Option<(&str, &Cell, &str)>> {
        let mut strongest: BTreeMap<&str, Option<(&str, &Cell, &str)>> = BTreeMap::new();
        for sheet in &self.sheets {
            for check in &sheet.checks {
                strongest.entry(check).or_default();
            }
            for row in sheet.rows.iter().filter(|row| row.outcome == Outcome::Caught) {
                for cell in row.cells.iter().filter(|cell| cell.fired) {
                    let best = strongest.entry(&cell.check).or_default();
                    if best.is_none_or(|(_, old, _)| cell.margin > old.margin) {
                        *best = Some((&row.id, cell, &sheet.checkpoint.name));
                    }
                }
            }
        }
        strongest
    }

    /// Checks whose strongest bug is under [`WEAK`] times their limit, or that caught none. Beside a limit of
    /// 0 nothing is weak: the margin is then a count.
    pub fn weak_checks(&self) -> Vec<&str> {
        let is_weak = |best: &Option<(&str, &Cell, &str)>| {
            best.is_none_or(|(_, cell, _)| cell.margin < WEAK && cell.limit != 0.0)
        };
        self.strongest().into_iter().filter(|(_, best)| is_weak(best)).map(|(check, _)| check).collect()
    }
}
