//! What a record says of a set of text: layers, runs, top-1, likelihood.

use crate::compare::Place;
use crate::number;
use crate::stats::{Rate, Spread};
use serde::{Deserialize, Serialize};
use spec::{LayerId, LayerKind};

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
    /// What packing costs; `null` where no checkpoint was named that this one is a build of.
    pub build: Option<BuildRecord>,
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
    /// The port in f32 forced onto its own choices in order of id, against its own free run: the sorted
    /// floor.
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

/// A build against the checkpoint it was made of: the reference on the build, forced onto the choices of the
/// reference on the checkpoint, against the latter. Reported, not judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildRecord {
    /// KL of the checkpoint to the build, nats per position.
    pub kl_nats: Spread,
    /// Where the largest is.
    pub kl_worst: Place,
    /// Confident positions of the checkpoint with its top token.
    pub confident_top1: Rate,
    /// Tokens and layers where the build would choose another set of experts.
    pub differing_sets: Rate,
    /// Negative log-likelihood of the text on the checkpoint, nats per token.
    #[serde(with = "number")]
    pub checkpoint_nats: f64,
    /// On the build.
    #[serde(with = "number")]
    pub build_nats: f64,
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
