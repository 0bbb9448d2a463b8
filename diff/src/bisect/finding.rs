//! What a search found, as it is written and told.
//!
//! Absent on purpose: finding it, and the text around a position, which a tokenizer knows.

use super::pattern::Pattern;
use crate::number;
use serde::{Deserialize, Serialize};
use spec::{LayerId, LayerKind, Precision, Schedule, Site};

/// Version of the JSON form of [`Finding`].
pub const SCHEMA: &str = "assay-bisect/1";

/// What is searched; a log of steps belongs to one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The program's version.
    pub assay_version: String,
    /// Of the checkpoint's weights.
    pub weights_sha256: String,
    /// Of its `config.json`.
    pub config_sha256: String,
    /// Of the token ids.
    pub tokens_sha256: String,
    /// How the port is fed.
    pub schedule: Schedule,
    /// The arithmetic of both sides.
    pub precision: Precision,
    /// The bugs planted in the port.
    pub port_mutant: Option<String>,
}

/// A part of the model that is compared on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartName {
    /// K5.
    Embedding,
    /// One layer, fed the reference's input.
    Layer(LayerId, LayerKind),
    /// Final norm and logits, fed the reference's input.
    Head,
}

/// One part, summarised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartRow {
    /// Which.
    pub part: PartName,
    /// The largest relative error of a row of any site.
    #[serde(with = "number")]
    pub error_max: f64,
    /// The site that comes closest to its bound, or leaves it furthest.
    pub site: Site,
    /// Its largest error over its bound.
    #[serde(with = "number")]
    pub share_of_bound: f64,
    /// Sites that leave their bound.
    pub out: Vec<Site>,
}

/// One site of the first wrong part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SiteRow {
    /// Which.
    pub site: Site,
    /// The largest error of a row.
    #[serde(with = "number")]
    pub error_max: f64,
    /// What was allowed.
    #[serde(with = "number")]
    pub bound: f64,
    /// Rows out of bound.
    pub rows_out: usize,
    /// The first of them.
    pub first: Option<usize>,
    /// Whether it is an origin: nothing that it is made of is out of bound.
    pub origin: bool,
}

/// Which of several parts of a row are out of bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    /// These, counted from 0.
    pub out: Vec<usize>,
    /// Of so many.
    pub of: usize,
}

/// The first wrong part, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Which part.
    pub part: PartName,
    /// Sites that are out of bound with nothing upstream of them out of bound.
    pub sites: Vec<Site>,
    /// The one that is wrong at the earliest position; of several the first of the forward pass.
    pub site: Site,
    /// The first row that is out of bound there.
    pub position: usize,
    /// Its relative error.
    #[serde(with = "number")]
    pub error: f64,
    /// What was allowed.
    #[serde(with = "number")]
    pub bound: f64,
    /// What the rows have in common.
    pub pattern: Pattern,
    /// Rows out of bound.
    pub rows_out: usize,
    /// Whether one call for all tokens up to the first such row shows it too, where there were several.
    pub in_one_call: Option<bool>,
    /// Whether errors grow with position.
    pub grows: bool,
    /// Of sites that hold heads.
    pub heads: Option<Which>,
    /// Of a site that holds the outputs of experts.
    pub experts: Option<Which>,
    /// Columns that carry the error, where they are less than half; within a head where there are heads.
    pub channels: Option<Which>,
    /// Every site of the part that is out of bound, and the closest to its bound of all others.
    pub evidence: Vec<SiteRow>,
}

/// One schedule, end to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRow {
    /// How the port was fed.
    pub schedule: Schedule,
    /// In words: "chunks of 128".
    pub name: String,
    /// The first row that is out of bound.
    pub position: Option<usize>,
    /// The first layer whose output is at that position; `None`: the logits alone.
    pub layer: Option<LayerId>,
    /// The largest error of a row of logits.
    #[serde(with = "number")]
    pub logits_error_max: f64,
    /// What was allowed.
    #[serde(with = "number")]
    pub logits_bound: f64,
}

/// The port end to end, where every part alone is right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndToEnd {
    /// The schedule of the search first, then others, if that one is wrong.
    pub schedules: Vec<ScheduleRow>,
}

/// A shorter sequence that shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shrunk {
    /// Where it starts in the sequence that was searched.
    pub start: usize,
    /// Where it ends, exclusive.
    pub end: usize,
    /// How it must be fed.
    pub schedule: Schedule,
    /// The layers that must be run: one on its own, or all up to one.
    pub layers: Option<[usize; 2]>,
    /// Whether a run of it shows the same first site; else it is the whole sequence.
    pub confirmed: bool,
}

/// How many runs were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// Of both sides over the whole sequence, part by part.
    pub sweeps: usize,
    /// Of the port end to end, one a schedule.
    pub schedules: usize,
    /// Of one part on a cut of the sequence.
    pub probes: usize,
    /// What bounds them: two, and the logarithms, rounded up, of the tokens up to the end of the first wrong
    /// row's call, and of those from the row on.
    pub probes_max: usize,
    /// Of the shrunk sequence.
    pub confirmations: usize,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was searched.
    pub key: Key,
    /// One sentence, for an issue.
    pub sentence: String,
    /// How many times its own rounding error the reference may be away: [`super::FACTOR`].
    pub factor: f64,
    /// Every part, in the order of the forward pass.
    pub parts: Vec<PartRow>,
    /// The first part that is wrong on its own.
    pub origin: Option<Origin>,
    /// End to end, where no part is wrong on its own.
    pub end_to_end: Option<EndToEnd>,
    /// The shortest sequence that shows it.
    pub shrunk: Option<Shrunk>,
    /// How many runs it took.
    pub runs: Runs,
}

impl Finding {
    /// Whether anything is wrong.
    pub fn is_wrong(&self) -> bool {
        self.shrunk.is_some()
    }
}

impl std::fmt::Display for PartName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PartName::Embedding => f.write_str("embedding"),
            PartName::Layer(layer, kind) => write!(f, "layer {layer} ({kind})"),
            PartName::Head => f.write_str("head"),
        }
    }
}

impl PartRow {
    /// Whether some site leaves its bound.
    pub fn is_out(&self) -> bool {
        !self.out.is_empty()
    }
}

impl Which {
    /// "all heads", "head 3", "heads 0-2, 5 of 8".
    pub fn words(&self, noun: &str) -> String {
        match self.out.as_slice() {
            all if all.len() == self.of => format!("all {noun}s"),
            [one] => format!("{noun} {one} of {}", self.of),
            some => format!("{noun}s {} of {}", ranges(some), self.of),
        }
    }
}

/// Ascending numbers as "0-2, 5", the first few of many.
pub fn ranges(ascending: &[usize]) -> String {
    const SHOWN_MAX: usize = 6;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in ascending {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let words =
        |&(from, to): &(usize, usize)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    let shown: Vec<String> = runs.iter().take(SHOWN_MAX).map(words).collect();
    let more = if runs.len() > SHOWN_MAX { ", …" } else { "" };
    shown.join(", ") + more
}
