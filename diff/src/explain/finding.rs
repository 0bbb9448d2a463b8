//! What is found: the result that is printed, or written as JSON.

use crate::number;

/// Version of the JSON form.
pub const SCHEMA: &str = "assay.explain.v1";

/// The result.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    /// [`SCHEMA`].
    pub schema: String,
    /// How it ended.
    pub outcome: Outcome,
    /// One sentence, to be pasted.
    pub sentence: String,
    /// The correct reference.
    pub base: Hypothesis,
    /// Every hypothesis that was tried and changes something, best first.
    pub hypotheses: Vec<Hypothesis>,
    /// Bugs that change nothing on this text.
    pub without_effect: Vec<String>,
    /// Where maps were tried.
    pub maps_at: Option<MapsAt>,
    /// RMS over rows of the relative error of the port's logits end to end, forced onto the reference's
    /// experts.
    #[serde(with = "number")]
    pub end_to_end: f64,
    /// Passes of the reference over the checkpoint; the port ran each layer as often.
    pub passes: usize,
    /// Lanes in them.
    pub lanes: usize,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The port is at the honest level.
    NothingToExplain,
    /// Each layer by itself is at the honest level, and the logits end to end are not.
    BetweenLayers,
    /// The first hypothesis explains the divergence.
    Bugs,
    /// No bug does, and a map of rows does.
    Map,
    /// Nothing does.
    Unexplained,
}

/// Bugs in the reference, and how far the port is from it then.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hypothesis {
    /// Ids of the bugs; none is the correct reference.
    pub bugs: Vec<String>,
    /// What they do.
    pub what: Vec<String>,
    /// Other hypotheses that are the same to the last bit here.
    pub same_as: Vec<String>,
    /// The largest RMS over rows of the relative L2 error, over parts of the model and sites. Of the router's
    /// choice a row counts as 1 if another set was chosen.
    #[serde(with = "number")]
    pub residual: f64,
    /// Where it is.
    pub at: String,
    /// What is honest there.
    pub honest: f64,
    /// By how many orders of magnitude a row is beyond the honest level, on average. Ranks hypotheses.
    #[serde(with = "number")]
    pub orders: f64,
    /// Rows of all parts and sites that are beyond the honest level.
    pub rows_beyond: usize,
    /// Rows of all parts and sites.
    pub rows: usize,
    /// Whether it explains the divergence.
    pub explains: bool,
}

/// Maps at the first wrong place none of whose inputs are wrong.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MapsAt {
    /// The place.
    pub at: String,
    /// RMS over rows of the relative L2 error there.
    #[serde(with = "number")]
    pub residual: f64,
    /// What is honest there.
    pub honest: f64,
    /// The maps, best first, those that were not tried last.
    pub tried: Vec<MapTried>,
}

/// One map, fitted on every other row.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MapTried {
    /// "a factor".
    pub map: String,
    /// What the port's rows are under it, beside the reference's; or why it was not tried.
    pub what: String,
    /// What it leaves on the rows between; `None`: not tried.
    #[serde(with = "number::option")]
    pub residual: Option<f64>,
}
