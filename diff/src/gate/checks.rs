//! The checks by name, the legs of each, and which measurement gives them (docs/gate.md, Checks).
//!
//! Absent on purpose: limits (a gate file has them) and how anything is measured.

use super::record::Bound;
use spec::Precision;

/// What is measured in one go: the unit a control runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The port loads the checkpoint, strictly.
    Census,
    /// The tensors as the port holds them.
    Weights,
    /// Forced onto its own choices, the port repeats its free run.
    ForcingExact,
    /// Forced onto other choices, the port does something else.
    ForcingActive,
    /// The reference's products against f64.
    Product,
    /// Layer by layer, fed the reference's inputs, forced onto its choices.
    Reinjected(Precision),
    /// Final norm and head, fed the reference's last rows.
    Head,
    /// End to end, forced.
    Forced(Precision),
    /// End to end in bf16, free.
    Free,
    /// Chunk sizes against one chunk.
    Chunk,
    /// Token by token against one chunk.
    Decode,
    /// What thousands of decoded tokens leave in memory.
    Buffers,
    /// The port's kernels by themselves.
    Kernels,
    /// Several sequences in one call.
    Batch,
    /// How well the reference predicts the text.
    Nll,
    /// The reference against recorded outputs of a third implementation.
    Golden,
}

/// A check: its name, its legs, and whether it is measured on every set of text.
#[derive(Debug)]
pub struct Check {
    /// "layer.branch".
    pub name: &'static str,
    /// Measured on every set, not once.
    pub by_set: bool,
    /// Its legs, in the order of tables.
    pub legs: &'static [(&'static str, Group)],
}

/// The reference's planted bugs that must cost likelihood on real text, each a leg of `nll.bits_per_byte`.
pub const NLL_MUTANTS: [&str; 6] = [
    "sigmoid_bias_select",
    "rope_traditional",
    "one_plus_w_norm",
    "swap_sandwich_norms",
    "rope_on_full",
    "qknorm_after_rope",
];

/// A planted bug of the reference whose cost is recorded and not judged.
pub const NLL_RECORDED: &str = "renorm_topk";

const F32: Group = Group::Reinjected(Precision::F32);
const BF16: Group = Group::Reinjected(Precision::Bf16);

/// Every check that this version can measure.
pub const CHECKS: [Check; 25] = [
    once("static.census", &[("problems", Group::Census)]),
    once("static.weights", &[("tensors", Group::Weights)]),
    once("harness.forcing_exact", &[("f32", Group::ForcingExact), ("bf16", Group::ForcingExact)]),
    once("harness.forcing_active", &[("kl", Group::ForcingActive), ("of_random", Group::ForcingActive)]),
    once("harness.reference_f64", &[("error", Group::Product)]),
    by_set(
        "layer.embedding",
        &[("f32", Group::Forced(Precision::F32)), ("bf16", Group::Forced(Precision::Bf16))],
    ),
    once("layer.head", &[("error", Group::Head)]),
    by_set(
        "layer.branch",
        &[
            ("attn.median", F32),
            ("attn.p99", F32),
            ("attn.max", F32),
            ("moe.median", F32),
            ("moe.p99", F32),
            ("moe.max", F32),
            ("attn.median.past_window", F32),
            ("attn.p99.past_window", F32),
            ("attn.max.past_window", F32),
            ("moe.median.past_window", F32),
            ("moe.p99.past_window", F32),
            ("moe.max.past_window", F32),
        ],
    ),
    by_set(
        "layer.branch_bf16",
        &[
            ("attn.median", BF16),
            ("attn.p99", BF16),
            ("moe.median", BF16),
            ("moe.p99", BF16),
            ("attn.median.past_window", BF16),
            ("attn.p99.past_window", BF16),
            ("moe.median.past_window", BF16),
            ("moe.p99.past_window", BF16),
        ],
    ),
    by_set("site.bf16_ulp", &[("norm", BF16), ("rope", BF16), ("activation", BF16), ("weighted_sum", BF16)]),
    by_set(
        "router.logits",
        &[
            ("sigma", F32),
            ("logits_in_bf16.f32", F32),
            ("weights_in_bf16.f32", F32),
            ("logits_in_bf16.bf16", BF16),
            ("weights_in_bf16.bf16", BF16),
        ],
    ),
    by_set("router.selection", &[("flips.f32", F32), ("sets", F32), ("flips.bf16", BF16)]),
    by_set("router.sigma", &[("share", BF16), ("largest_z", BF16)]),
    by_set("router.weights", &[("median", F32), ("max", F32)]),
    by_set(
        "forced.kl",
        &[
            ("mean", Group::Forced(Precision::F32)),
            ("bucket", Group::Forced(Precision::F32)),
            ("position", Group::Forced(Precision::F32)),
            ("growth", Group::Forced(Precision::F32)),
        ],
    ),
    by_set("forced.top1", &[("changes", Group::Forced(Precision::F32))]),
    by_set("forced.bf16", &[("mean", Group::Forced(Precision::Bf16))]),
    by_set("free.kl", &[("mean", Group::Free)]),
    by_set("free.top1", &[("shortfall", Group::Free)]),
    once("schedule.chunk", &[("mean", Group::Chunk)]),
    once("schedule.decode", &[("mean", Group::Decode)]),
    once(
        "kernel.gather",
        &[
            ("ratio", Group::Kernels),
            ("bad_rows", Group::Kernels),
            ("rotation", Group::Kernels),
            ("attention", Group::Kernels),
            ("repeats", Group::Kernels),
        ],
    ),
    once("runtime.buffers", &[("growth", Group::Buffers)]),
    once("schedule.batch", &[("left", Group::Batch), ("right", Group::Batch)]),
    by_set("dtype.head", &[("f32", Group::Forced(Precision::F32)), ("bf16", Group::Forced(Precision::Bf16))]),
];

/// Checks of the reference against text and against a third implementation; apart, as their legs are named
/// by planted bugs and by sites.
pub const REFERENCE_CHECKS: [Check; 2] = [
    once(
        "nll.bits_per_byte",
        &[
            (NLL_MUTANTS[0], Group::Nll),
            (NLL_MUTANTS[1], Group::Nll),
            (NLL_MUTANTS[2], Group::Nll),
            (NLL_MUTANTS[3], Group::Nll),
            (NLL_MUTANTS[4], Group::Nll),
            (NLL_MUTANTS[5], Group::Nll),
        ],
    ),
    once(
        "anchor.golden",
        &[
            ("attn", Group::Golden),
            ("moe", Group::Golden),
            ("sets", Group::Golden),
            ("logits", Group::Golden),
        ],
    ),
];

/// Every check that can be measured, in the order of tables.
pub fn all() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().chain(&REFERENCE_CHECKS)
}

/// The check of that name.
pub fn find(name: &str) -> Option<&'static Check> {
    all().find(|check| check.name == name)
}

impl Check {
    /// Which way its limits bound.
    pub fn bound(&self) -> Bound {
        match self.name {
            "harness.forcing_active" => Bound::AtLeast,
            "nll.bits_per_byte" => Bound::Above,
            _ => Bound::AtMost,
        }
    }

    /// What gives a leg; `None` for no leg of this check.
    pub fn group(&self, leg: &str) -> Option<Group> {
        self.legs.iter().find(|(name, _)| *name == leg).map(|(_, group)| *group)
    }
}

const fn once(name: &'static str, legs: &'static [(&'static str, Group)]) -> Check {
    Check { name, by_set: false, legs }
}

const fn by_set(name: &'static str, legs: &'static [(&'static str, Group)]) -> Check {
    Check { name, by_set: true, legs }
}
