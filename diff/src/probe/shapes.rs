//! The shapes that kernels are called with: a model's own, and those at which kernels have failed.

use super::Draws;
use spec::kernel::{RowLayout, StackLayout};
use spec::{Affine, ModelConfig, Precision};

/// How much is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything: some tens of seconds on two cores.
    Whole,
    /// One of each kind: about a second, for a gate that repeats it for every planted bug.
    Short,
}

/// Tokens of a prefill call.
const TOKENS: usize = 128;
/// Values of a stack at most; outputs of an expert beyond it are left out, as each is a sum of its own.
const STACK_VALUES_MAX: usize = 1 << 24;
/// Of the shapes that are not a model's own.
const EXPERTS: usize = 16;
const OUT: usize = 32;
/// 64 terms and some more; of dense matrices only, as groups divide packed ones.
const INNER: usize = 72;
const PACKINGS: [Affine; 2] = [Affine { bits: 8, group: 64 }, Affine { bits: 4, group: 64 }];
/// Groups that MLX has kernels for, the usual one first.
const GROUPS: [usize; 3] = [64, 32, 128];
/// Rows of heads, and sequences, of a rotation.
const SEQUENCES: usize = 5;
const HEADS_MAX: usize = 6;

/// A gather.
#[derive(Debug, Clone)]
pub(super) struct GatherShape {
    pub what: String,
    pub ids: Vec<u32>,
    pub experts: usize,
    pub out: usize,
    /// Outputs that the model has, where fewer are called.
    pub out_of: usize,
    pub inner: usize,
    pub packing: Option<Affine>,
    pub precision: Precision,
    pub row_layout: RowLayout,
    pub stack_layout: StackLayout,
}

/// A rotation of one token of each of some sequences.
#[derive(Debug, Clone)]
pub(super) struct RotationShape {
    pub what: &'static str,
    pub positions: Vec<usize>,
    /// All positions are the first.
    pub common: bool,
    pub heads: usize,
}

/// Attention of one sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionShape {
    pub what: &'static str,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub queries: usize,
    pub keys: usize,
    /// A query that sees no key; the others see what is causal. None: every query sees every key.
    pub hidden: Option<usize>,
}

impl GatherShape {
    /// A shape of no model.
    fn of(what: &str, ids: Vec<u32>) -> Self {
        Self {
            what: what.into(),
            ids,
            experts: EXPERTS,
            out: OUT,
            out_of: OUT,
            inner: INNER,
            packing: None,
            precision: Precision::F32,
            row_layout: RowLayout::Contiguous,
            stack_layout: StackLayout::Contiguous,
        }
    }

    fn packed(self, packing: Affine) -> Self {
        let inner = self.inner / packing.group * packing.group;
        Self { packing: Some(packing), inner, ..self }
    }

    /// In MLX's words.
    pub fn kernel(&self) -> String {
        let rows = if self.precision == Precision::Bf16 { ", bf16" } else { "" };
        match self.packing {
            None => format!("gather_mm{rows}"),
            Some(Affine { bits, .. }) => format!("gather_qmm {bits} bits{rows}"),
        }
    }

    /// Rows, terms, outputs, experts.
    pub fn words(&self) -> String {
        let Self { experts, out, out_of, inner, .. } = self;
        let of = if out < out_of { format!(" of {out_of}") } else { String::new() };
        format!("R {}, K {inner}, N {out}{of}, E {experts}", self.ids.len())
    }
}

/// Every gather of an extent.
pub(super) fn gathers(config: &ModelConfig, extent: Extent) -> Vec<GatherShape> {
    let mut all = of_the_model(config, extent);
    all.extend(boundaries(extent));
    let inner: &[usize] = if extent == Extent::Whole { &[72, 96, 100, 160, 2568] } else { &[100] };
    for &inner in inner {
        all.push(GatherShape { inner, ..GatherShape::of("K not a multiple of 64", drawn(640, EXPERTS)) });
    }
    let few = "experts of 0 to 3 rows";
    let counts = [0, 1, 2, 3, 0, 40, 3, 2, 1, 0, 65, 2, 0, 3, 1, 0];
    let one = vec![u32::try_from(EXPERTS / 2).expect("few experts"); 333];
    for packing in [None, Some(PACKINGS[1])] {
        let both = |shape: GatherShape| packing.map_or(shape.clone(), |packing| shape.packed(packing));
        all.push(both(GatherShape::of(few, of_counts(&counts))));
        all.push(both(GatherShape::of("all rows to one expert", one.clone())));
        all.extend(layouts(packing).into_iter().map(both));
    }
    all
}

/// The model's own products, prefill and one token, dense and packed, in f32 and bf16.
fn of_the_model(config: &ModelConfig, extent: Extent) -> Vec<GatherShape> {
    let (experts, k) = (config.num_experts, config.experts_per_token);
    let (hidden, width) = (config.hidden_size, config.expert_width);
    let shape = |what: &str, tokens: usize, [out_of, inner]: [usize; 2]| {
        let most = STACK_VALUES_MAX / (experts * inner);
        // whole tiles of 16 outputs where not all are called
        let out = if most < out_of { (most / 16).max(1) * 16 } else { out_of };
        let ids = drawn(tokens * k, experts);
        GatherShape { experts, out, out_of, inner, ..GatherShape::of(what, ids) }
    };
    let prefill =
        [shape("up, prefill", TOKENS, [width, hidden]), shape("down, prefill", TOKENS, [hidden, width])];
    let decode = shape("up, one token", 1, [width, hidden]);
    let mut all = Vec::new();
    for of in prefill {
        all.push(of.clone());
        let mut packings = packings(config, of.inner);
        if extent == Extent::Short {
            packings.truncate(1);
        }
        all.extend(packings.iter().map(|&packing| of.clone().packed(packing)));
        all.push(GatherShape { precision: Precision::Bf16, ..of.clone() });
        if let Some(&packing) = packings.first() {
            all.push(GatherShape { precision: Precision::Bf16, ..of.packed(packing) });
        }
    }
    all.extend(packings(config, decode.inner).last().map(|&packing| decode.clone().packed(packing)));
    all.push(decode);
    all
}

/// How the model is packed; of one that is not, 8 and 4 bits in groups that divide its rows, if any do.
fn packings(config: &ModelConfig, inner: usize) -> Vec<Affine> {
    let own = config.quantization.affine.as_ref().map(|build| build.default);
    let divides = |group: &usize| inner.is_multiple_of(*group);
    match own {
        Some(own) if divides(&own.group) => vec![own],
        _ => {
            let group = GROUPS.into_iter().find(divides);
            group.map_or_else(Vec::new, |group| [8, 4].map(|bits| Affine { bits, group }).into())
        }
    }
}

/// Row counts about 32,768, and its half and double.
fn boundaries(extent: Extent) -> Vec<GatherShape> {
    let counts: &[usize] = match extent {
        Extent::Whole => &[16_384, 32_767, 32_768, 32_769, 32_832, 33_001, 65_536, 65_601],
        Extent::Short => &[33_001],
    };
    let packings = if extent == Extent::Short { &PACKINGS[1..] } else { &PACKINGS };
    let shape = |&rows: &usize| GatherShape::of("rows about 32,768", drawn(rows, EXPERTS));
    let mut all: Vec<GatherShape> = counts.iter().map(shape).collect();
    for &packing in packings {
        all.extend(counts.iter().map(|rows| shape(rows).packed(packing)));
    }
    all
}

/// Rows and experts that do not lie one after the other.
fn layouts(packing: Option<Affine>) -> Vec<GatherShape> {
    let shape = |what| GatherShape::of(what, drawn(200, EXPERTS));
    let rows = [
        ("rows with a unit axis", RowLayout::UnitAxis),
        ("every second row", RowLayout::EverySecond),
        ("one row for all", RowLayout::OneForAll),
    ];
    let mut all: Vec<GatherShape> =
        rows.map(|(what, row_layout)| GatherShape { row_layout, ..shape(what) }).into();
    all.push(GatherShape { stack_layout: StackLayout::EverySecond, ..shape("every second expert") });
    if packing.is_none() {
        all.push(GatherShape { stack_layout: StackLayout::Transposed, ..shape("experts by columns") });
    }
    all
}

/// Experts of rows, drawn and sorted.
fn drawn(rows: usize, experts: usize) -> Vec<u32> {
    let experts = u32::try_from(experts).expect("ids are u32");
    let mut draws = Draws::new();
    let mut ids: Vec<u32> = (0..rows).map(|_| draws.index(experts)).collect();
    ids.sort_unstable();
    ids
}

/// As many rows of each expert.
fn of_counts(counts: &[usize; EXPERTS]) -> Vec<u32> {
    (0..).zip(counts).flat_map(|(expert, &count)| std::iter::repeat_n(expert, count)).collect()
}

/// One token of several sequences, at one position and at one each.
pub(super) fn rotations(config: &ModelConfig) -> Vec<RotationShape> {
    let heads = config.num_heads.clamp(2, HEADS_MAX);
    let common = |position| RotationShape {
        what: "one position for all",
        positions: vec![position; SEQUENCES],
        common: true,
        heads,
    };
    let each = RotationShape {
        what: "each at its own position",
        positions: vec![3, 0, 1025, 517, 2047],
        common: false,
        heads,
    };
    vec![common(1), common(1000), each]
}

/// One query over long caches; several, one of which sees nothing.
pub(super) fn attentions(config: &ModelConfig) -> Vec<AttentionShape> {
    let decode = |keys| AttentionShape {
        what: "one query",
        heads: config.num_heads,
        kv_heads: config.num_kv_heads,
        head_dim: config.head_dim,
        queries: 1,
        keys,
        hidden: None,
    };
    let mut all: Vec<AttentionShape> = [512, 1024, 1025, 2048, 2049].map(decode).into();
    all.push(AttentionShape { what: "a query that sees nothing", queries: 5, hidden: Some(2), ..decode(40) });
    all
}

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "tests of other modules have it too")]
#[path = "../../tests/support/config.rs"]
mod config;

#[cfg(test)]
mod tests {
    use super::*;

    /// K1
    fn released() -> ModelConfig {
        ModelConfig {
            hidden_size: 2560,
            expert_width: 512,
            num_experts: 384,
            experts_per_token: 6,
            num_heads: 48,
            num_kv_heads: 4,
            head_dim: 128,
            ..config::config()
        }
    }

    #[test]
    fn of_a_large_stack_as_many_outputs_are_called_as_the_limit_holds() {
        let words: Vec<String> = gathers(&released(), Extent::Whole).iter().map(GatherShape::words).collect();
        // 2^24 values over 384 * 2560 are 17, in tiles of 16: 16; over 384 * 512 they are 85: 80
        for expected in
            ["R 768, K 2560, N 16 of 512, E 384", "R 768, K 512, N 80 of 2560, E 384", "R 6, K 2560"]
        {
            assert!(words.iter().any(|words| words.starts_with(expected)), "{expected} in {words:?}");
        }
    }

    #[test]
    fn a_build_is_called_as_it_is_packed_and_any_other_in_8_and_4_bits() {
        let own = Affine { bits: 3, group: 128 };
        let build = |default| spec::quantization::AffineBuild { default, modules: [].into() };
        let quantization = spec::Quantization { affine: Some(build(own)), ..Default::default() };
        let packed = ModelConfig { quantization, ..released() };
        let plain = released();
        let bits = |config: &ModelConfig, inner| -> Vec<_> {
            packings(config, inner).iter().map(|p| (p.bits, p.group)).collect()
        };
        assert_eq!(bits(&packed, 2560), [(3, 128)]);
        assert_eq!(bits(&plain, 2560), [(8, 64), (4, 64)]);
        assert_eq!(bits(&plain, 96), [(8, 32), (4, 32)]);
        assert_eq!(bits(&plain, 72), []);
    }

    #[test]
    fn ids_ascend_and_counts_are_kept() {
        let ids = drawn(33_001, EXPERTS);
        assert!(ids.is_sorted() && ids.len() == 33_001 && ids.iter().all(|&id| id < 16));
        let mut counts = [0; EXPERTS];
        (counts[1], counts[15]) = (2, 1);
        assert_eq!(of_counts(&counts), [1, 1, 15]);
    }

    #[test]
    fn the_whole_extent_has_every_count_at_which_kernels_have_failed() {
        let shapes = gathers(&released(), Extent::Whole);
        for rows in [16_384, 32_767, 32_768, 32_769, 32_832, 33_001, 65_536, 65_601] {
            let packings: Vec<_> = shapes.iter().filter(|s| s.ids.len() == rows).map(|s| s.packing).collect();
            assert_eq!(packings, [None, Some(PACKINGS[0]), Some(PACKINGS[1])], "{rows}");
        }
    }
}
