//! What a comparison found: numbers and places, as serialised to JSON.
//!
//! An f64 that is not finite is written as a string ([`crate::number`]); `null` only ever means "there is
//! none". Absent on purpose: verdicts and limits, which are the gate's.

use super::options::Options;
use crate::number;
use crate::stats::{Rate, Spread};
use spec::{LayerId, LayerKind, SideInfo, Site, TokenId};

/// Version of the JSON form.
pub const SCHEMA: &str = "assay-compare/1";

/// Everything found by [`super::sides`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Who computed what is compared with.
    pub reference: SideInfo,
    /// Who computed what is compared.
    pub port: SideInfo,
    /// What was fed to both.
    pub cases: Vec<CaseInfo>,
    /// What was asked for.
    pub options: Options,
    /// Layer by layer: the port's layer fed the reference's own input, forced onto the reference's choices.
    pub layers: Vec<LayerRow>,
    /// How well the reference itself predicts the text.
    pub reference_nll: Nll,
    /// The port end to end, forced onto the reference's choices; `null` if that run was not asked for.
    pub forced: Option<EndToEnd>,
    /// The port end to end, choosing freely; `null` if that run was not asked for.
    pub free: Option<EndToEnd>,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CaseInfo {
    /// Its name.
    pub name: String,
    /// How many tokens it has.
    pub tokens: usize,
}

/// A position of a case.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// The case's name.
    pub case: String,
    /// Counted from 0.
    pub position: usize,
}

/// One layer. All numbers are over all rows (tokens) of all cases.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LayerRow {
    /// Counted from 0.
    pub layer: LayerId,
    /// Sliding or full.
    pub kind: LayerKind,
    /// Rows compared at each site.
    pub rows: usize,
    /// Relative L2 error of the attention branch per row, `||port - reference|| / ||reference||`.
    pub attn_branch: Spread,
    /// The same of the MoE branch.
    pub moe_branch: Spread,
    /// The row with the largest error of either branch; the first of equal ones.
    pub worst: WorstRow,
    /// RMS error of the port's router logits over tokens and experts, re-injected.
    #[serde(with = "number")]
    pub router_sigma: f64,
    /// RMS of the reference's router logits: what `router_sigma` is small or large against.
    #[serde(with = "number")]
    pub router_logits_rms: f64,
    /// Where the set the port's own router would choose is not the reference's.
    pub disagreements: Disagreements,
    /// Rows in which the port executed another set than it was forced onto; not 0: forcing did not work.
    pub unforced_rows: usize,
}

/// The row with the largest branch error.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct WorstRow {
    /// `attn_branch` or `moe_branch`.
    pub branch: Site,
    /// Its relative L2 error.
    #[serde(with = "number")]
    pub error: f64,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

/// Rows whose chosen sets differ; order within a row does not matter.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Disagreements {
    /// How many.
    pub count: usize,
    /// How many of them at a gap of at least [`crate::metrics::router::TIE_GAP`].
    pub beyond_tie: usize,
    /// The one with the largest gap, and so with the largest z of its layer; `null` if there is none.
    pub largest: Option<Disagreement>,
}

/// One row whose chosen sets differ.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Disagreement {
    /// The reference's k-th minus (k+1)-th selection score.
    #[serde(with = "number")]
    pub gap: f64,
    /// The gap over the layer's `router_sigma`.
    #[serde(with = "number")]
    pub z: f64,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

/// Negative log-likelihood of the next tokens, those of position 1 on.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Nll {
    /// How many next tokens.
    pub tokens: usize,
    /// Mean, nats per token; NaN of none.
    #[serde(with = "number")]
    pub nats_per_token: f64,
    /// The same in bits.
    #[serde(with = "number")]
    pub bits_per_token: f64,
}

/// One end-to-end run of the port against the reference's logits, over all positions of all cases.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct EndToEnd {
    /// KL of the reference to the port, nats per position, exact over the whole vocabulary.
    pub kl_nats: Spread,
    /// Where the largest is; the first of equal ones.
    pub kl_worst: Place,
    /// Positions at which a logit of either side is NaN; these agree in no top token.
    pub nan_positions: usize,
    /// Positions with the same top token, among all.
    pub top1: Rate,
    /// The same, among the reference's confident positions
    /// ([`crate::metrics::logits::CONFIDENT_LEAD_NATS`]).
    pub confident_top1: Rate,
    /// The confident positions with another top token, the first [`super::CHANGES_LISTED`] of them.
    pub confident_changes: Vec<TopChange>,
    /// Whether the port executed what the reference executed.
    pub routing: RoutingDifference,
}

/// A confident position at which the port prefers another token.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TopChange {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// The reference's top token.
    pub reference: TokenId,
    /// The port's; `null` if a logit of it is NaN.
    pub port: Option<TokenId>,
}

/// How the executed sets of two runs differ.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct RoutingDifference {
    /// (token, layer) rows compared.
    pub rows: usize,
    /// Rows whose ids came to the port from outside, by its own account: all in a forced run, none in a
    /// free one.
    pub forced_rows: usize,
    /// Rows whose executed sets differ: the share that routing moved in a free run, 0 where forcing works.
    pub differing: usize,
    /// `differing / rows`.
    #[serde(with = "number")]
    pub share: f64,
}
