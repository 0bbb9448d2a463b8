//! What a comparison of two recordings found: numbers and places, as serialised to JSON.
//!
//! The types of the live comparison serve where they say the same. `null` means: not recorded on both sides.

use crate::compare::{CaseInfo, EndToEnd, Nll, Place, RoutingDifference, WorstRow};
use crate::number;
use crate::stats::Spread;
use spec::{LayerId, LayerKind, Precision};
use std::path::PathBuf;

/// Version of the JSON form.
pub const SCHEMA: &str = "assay-compare-traces/1";

/// Everything found by [`super::compare()`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TraceComparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What is compared with.
    pub reference: Source,
    /// What is compared.
    pub port: Source,
    /// The cases of both.
    pub cases: Vec<CaseInfo>,
    /// Layer by layer, end to end: errors of earlier layers are in later ones.
    pub layers: Vec<TraceLayer>,
    /// How well the reference itself predicts the text.
    pub reference_nll: Option<Nll>,
    /// The logits of both sides.
    pub end_to_end: Option<EndToEnd>,
    /// The executed sets of both sides, over all layers compared.
    pub routing: RoutingDifference,
}

/// Where one side's recordings come from; of several cases, what the first says.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Source {
    /// The folder or file as given.
    pub path: PathBuf,
    /// Who computed, as the trace says.
    pub engine: Option<serde_json::Value>,
    /// How the tokens were fed, as the trace says.
    pub calls: Option<serde_json::Value>,
    /// The arithmetic.
    pub precision: Option<Precision>,
}

/// One layer, over all rows (tokens) of all cases that have a route on both sides.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TraceLayer {
    /// Counted from 0.
    pub layer: LayerId,
    /// Sliding or full.
    pub kind: Option<LayerKind>,
    /// Rows whose sets were compared.
    pub rows: usize,
    /// Rows without a route on a side; nothing is said of them.
    pub missing: usize,
    /// Relative L2 error of the attention branch per row, end to end.
    pub attn_branch: Option<Spread>,
    /// The same of the MoE branch.
    pub moe_branch: Option<Spread>,
    /// The row with the largest error of either branch; the first of equal ones.
    pub worst: Option<WorstRow>,
    /// Relative L2 error of the weights of the executed experts per row, matched by expert; only of rows for
    /// which both sides executed the same set.
    pub topk_weights: Option<Spread>,
    /// RMS error of the port's router logits over tokens and experts, end to end.
    #[serde(with = "number::option")]
    pub router_sigma: Option<f64>,
    /// RMS of the reference's router logits.
    #[serde(with = "number::option")]
    pub router_logits_rms: Option<f64>,
    /// Rows for which the two routers chose different sets: `ties + flips + unjudged`. A forced side's own
    /// choice is its shadow.
    pub disagreements: usize,
    /// Those at a gap of exactly 0: either set is a correct choice.
    pub ties: usize,
    /// Those at any other gap, NaN included.
    pub flips: usize,
    /// Those for which the reference recorded no margin.
    pub unjudged: usize,
    /// The flips at a gap of at least [`crate::metrics::router::TIE_GAP`], wider than rounding.
    pub beyond_tie: usize,
    /// The disagreement with the largest gap; `null` if none has one.
    pub largest: Option<LargestGap>,
    /// Rows for which the two sides executed different sets.
    pub executed_differing: usize,
    /// Those of them that the port was forced onto; not 0: it was forced onto other choices than the
    /// reference's.
    pub unforced_rows: usize,
}

/// The disagreement with the largest gap.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LargestGap {
    /// The reference's k-th minus (k+1)-th selection score.
    #[serde(with = "number")]
    pub gap: f64,
    /// The gap over the layer's `router_sigma`.
    #[serde(with = "number::option")]
    pub z: Option<f64>,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}
