//! That correct rewrites are correct, and that each does something: other bits, or the reason why not.
mod support;

use mutants::{Kind, Mutant, PortPlant, find, variants};
use ndarray::{Array2, arr2};
use reference::steps::{Matrix, Norm};
use rstest::rstest;
use spec::{Precision, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use support::{Feed, Moved, Rows, moved, origins, port, reference, relative_l2};

const LAYERS: &[usize] = &[0, 4, 8, 9];
/// Sums of f32 in another order are some 1e-7 apart where nothing cancels.
const F32_MAX: f64 = 1e-5;
/// A bf16 is off by 2^-9 at most, some 1e-3 of a tensor; a layer rounds about ten times one after another.
const BF16_MAX: f64 = 2e-2;

/// Where a rewrite may act.
const ORIGINS: [(&str, &[Site]); 40] = [
    ("embedding_as_product", &[]),
    ("norm_divided", NORMS),
    ("norm_rounded_before_weight", NORMS),
    ("norm_in_working_dtype", NORMS),
    ("residual_exchanged", &[]),
    ("rope_from_table", TURNED),
    ("rope_on_halves", TURNED),
    ("rope_angles_divided", TURNED),
    ("rope_pairs_side_by_side", TURNED),
    ("mask_added", &[Site::AttnOut]),
    ("full_cache_with_window_mask", &[Site::AttnOut]),
    ("cache_with_spare_slots", &[Site::AttnOut]),
    ("products_in_halves", LINEAR),
    ("products_weight_first", LINEAR),
    ("attention_explicit", &[Site::AttnOut]),
    ("kv_heads_repeated", &[Site::AttnOut]),
    ("router_weight_first", &[Site::RouterLogits]),
    ("router_in_halves", &[Site::RouterLogits]),
    ("select_by_partition", &[]),
    ("sigmoid_by_exp", &[Site::TopkWeights]),
    ("sigmoid_before_choice", &[]),
    ("experts_unsorted", &[Site::ExpertOut]),
    ("experts_descending", &[Site::ExpertOut]),
    ("experts_permuted", &[Site::ExpertOut]),
    ("experts_fused", &[Site::ExpertOut]),
    ("shared_fused", &[Site::SharedGate, Site::SharedUp]),
    ("expert_products_in_halves", &[Site::ExpertOut]),
    ("silu_by_exp", &[Site::ExpertOut, Site::SharedAct]),
    ("sigmoid_last", &[Site::ExpertOut, Site::SharedAct]),
    ("combine_last_first", &[Site::Routed]),
    ("combine_as_product", &[Site::Routed]),
    ("moe_sum_exchanged", &[]),
    ("logits_in_blocks", &[Site::Logits]),
    ("reference_norm_divided", NORMS),
    ("reference_products_reversed", PRODUCTS),
    ("reference_products_in_blocks", PRODUCTS),
    ("reference_softmax_unshifted", &[Site::AttnOut]),
    ("reference_softmax_sum_in_f64", &[Site::AttnOut]),
    ("reference_combine_last_first", &[Site::Routed]),
    ("steps_in_f64", &[Site::AttnNorm, Site::FinalNorm]),
];
/// In a layer, all but the first have inputs that moved already, if the first moved.
const NORMS: &[Site] = &[
    Site::AttnNorm,
    Site::QNorm,
    Site::KNorm,
    Site::AttnBranch,
    Site::MoeNorm,
    Site::MoeBranch,
    Site::FinalNorm,
];
const TURNED: &[Site] = &[Site::QRope, Site::KRope];
const LINEAR: &[Site] =
    &[Site::Q, Site::K, Site::V, Site::OProj, Site::SharedGate, Site::SharedUp, Site::Shared];
const PRODUCTS: &[Site] = &[
    Site::Q,
    Site::K,
    Site::V,
    Site::OProj,
    Site::RouterLogits,
    Site::ExpertOut,
    Site::SharedGate,
    Site::SharedUp,
    Site::Shared,
    Site::Logits,
];

/// One side without a rewrite in one precision, and what it was fed.
type Right = LazyLock<(Feed, Rows)>;

static PORT_F32: Right = LazyLock::new(|| right(&port(Precision::F32), Precision::F32));
static PORT_BF16: Right = LazyLock::new(|| right(&port(Precision::Bf16), Precision::Bf16));
static REFERENCE_F32: Right = LazyLock::new(|| right(&reference(), Precision::F32));
static REFERENCE_BF16: Right = LazyLock::new(|| right(&reference(), Precision::Bf16));

fn right(side: &dyn spec::Side, precision: Precision) -> (Feed, Rows) {
    let feed = Feed::of(side, precision, LAYERS);
    let rows = feed.rows(side);
    (feed, rows)
}

/// A side without and with a rewrite.
fn pair(variant: &Mutant, precision: Precision) -> (&'static Rows, Rows) {
    match (variant.port, precision) {
        (Some(PortPlant::Steps { make, .. }), _) => {
            let (feed, right) = if precision == Precision::F32 { &*PORT_F32 } else { &*PORT_BF16 };
            (right, feed.rows(&port(precision).with_steps(make())))
        }
        (None, _) => {
            let (feed, right) = if precision == Precision::F32 { &*REFERENCE_F32 } else { &*REFERENCE_BF16 };
            let make = variant.reference().expect("planted somewhere").make;
            (right, feed.rows(&reference().with_steps(make())))
        }
        (other, _) => panic!("{} is {other:?}", variant.id),
    }
}

/// Tokens and layers whose chosen sets differ.
fn other_sets(right: &Array2<f32>, found: &Array2<f32>) -> usize {
    let set =
        |row: ndarray::ArrayView1<'_, f32>| -> BTreeSet<u32> { row.iter().map(|&id| id as u32).collect() };
    right.rows().into_iter().zip(found.rows()).filter(|(a, b)| set(*a) != set(*b)).count()
}

fn check(variant: &Mutant, precision: Precision) -> Moved {
    let (right, found) = pair(variant, precision);
    let limit = if precision == Precision::F32 { F32_MAX } else { BF16_MAX };
    let (mut sets, mut rows) = (0, 0);
    for (key @ (_, site), right) in right {
        let found = &found[key];
        match site {
            Site::Choice => assert_eq!(right, found, "{}: {key:?}", variant.id),
            Site::ShadowChoice => {
                sets += other_sets(right, found);
                rows += right.nrows();
            }
            _ => {
                let distance = relative_l2(found, right);
                assert!(distance <= limit, "{}: {key:?}: {distance:e}", variant.id);
            }
        }
    }
    // in bf16 a score may be rounded to the other side of another
    let allowed = if precision == Precision::F32 { 0 } else { rows / 20 };
    assert!(rows == 4 * 64 && sets <= allowed, "{}: {sets} of {rows}", variant.id);
    moved(right, &found)
}

/// What gives the same bits in f32, and why; on Metal the kernels differ.
const SAME_BITS: [(&str, &str); 14] = [
    ("embedding_as_product", "a sum of one number and zeros is that number"),
    ("norm_in_working_dtype", "in f32 nothing is rounded"),
    ("residual_exchanged", "a sum of two does not depend on their order"),
    ("rope_on_halves", "on a CPU MLX has no kernel, and turns by the same operations"),
    ("rope_pairs_side_by_side", "each pair is turned by itself, as on halves"),
    ("mask_added", "a hidden key's weight is 0 either way"),
    ("kv_heads_repeated", "each head is a product by itself"),
    ("select_by_partition", "ids are ids"),
    ("sigmoid_before_choice", "a sigmoid does not depend on its neighbours"),
    ("experts_unsorted", "on a CPU each row is a product by itself"),
    ("experts_descending", "on a CPU each row is a product by itself"),
    ("experts_permuted", "on a CPU each row is a product by itself"),
    ("experts_fused", "each column is a sum by itself"),
    ("moe_sum_exchanged", "a sum of two does not depend on their order"),
];

#[test]
fn in_f32_every_rewrite_is_close_and_does_something() {
    let (same, origins_of) = (BTreeMap::from(SAME_BITS), BTreeMap::from(ORIGINS));
    let on_gpu = port::engine::on_gpu().unwrap();
    let mut wrong = Vec::new();
    for variant in variants() {
        let moved = check(variant, Precision::F32);
        let expected: BTreeSet<_> = origins_of[variant.id].iter().copied().collect();
        let found: BTreeSet<_> = origins(&moved).keys().map(|(_, site)| *site).collect();
        let as_said = moved.is_empty() == same.contains_key(variant.id) || on_gpu;
        if !as_said || !found.is_subset(&expected) {
            wrong.push((variant.id, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn in_bf16_every_rewrite_is_close_and_norms_round_elsewhere() {
    let moved = variants().map(|variant| (variant.id, check(variant, Precision::Bf16)));
    let moved: BTreeMap<_, _> = moved.collect();
    for id in ["norm_in_working_dtype", "norm_rounded_before_weight"] {
        let found: BTreeSet<_> = origins(&moved[id]).keys().map(|(_, site)| *site).collect();
        assert!(
            found.contains(&Site::AttnNorm) && found.iter().all(|site| NORMS.contains(site)),
            "{found:?}"
        );
    }
}

#[test]
fn every_rewrite_is_marked_as_one_has_its_origins_and_is_found_by_its_id() {
    let ids: BTreeSet<_> = variants().map(|variant| variant.id).collect();
    assert_eq!(ids, ORIGINS.iter().map(|(id, _)| *id).collect());
    assert_eq!(ids.len(), variants().count());
    for variant in variants() {
        assert_eq!((variant.kind, find(variant.id).unwrap().id), (Kind::Rewrite, variant.id));
        assert!(variant.port.is_some() != variant.reference().is_some(), "{}", variant.id);
        assert!(!variant.seen_in.is_empty() && variant.what.split(' ').count() > 3, "{}", variant.id);
    }
}

/// Largest distances of the sites in f64 from those in f32.
#[rstest]
#[case(Site::AttnNorm)]
#[case(Site::OProj)]
#[case(Site::ExpertOut)]
#[case(Site::Logits)]
fn steps_in_f64_are_off_by_some_roundings_of_f32(#[case] site: Site) {
    let (right, found) = pair(find("steps_in_f64").unwrap(), Precision::F32);
    for (key, right) in right.iter().filter(|((_, at), _)| *at == site) {
        let distance = relative_l2(&found[key], right);
        assert!((1e-8..5e-6).contains(&distance), "{key:?}: {distance:e}");
    }
}

#[test]
fn steps_in_f64_lose_nothing_before_they_round() {
    let wide = (find("steps_in_f64").unwrap().reference().unwrap().make)();
    // 2^25 + 1 is no f32
    let big = 2_f32.powi(25);
    let (x, w) = (arr2(&[[big, 1.0, -big]]), arr2(&[[1.0, 1.0, 1.0]]));
    let mut out = arr2(&[[0.0]]);
    wide.product(Matrix::Head, x.view(), w.view(), out.view_mut());
    assert_eq!(out, arr2(&[[1.0]]));
    let mut sum = [0.0];
    wide.combine(&[&[big], &[0.5], &[-big]], &[1.0, 3.0, 1.0], &mut sum);
    assert_eq!(sum, [1.5]);
    // 2^24 in its square: mean 2^24 + 1/2, eps 1/2, so that the root is that of 2^24 + 1
    let mut rows = arr2(&[[2_f32.powi(12) * 2_f32.sqrt(), 1.0]]);
    wide.rms_norm(Norm::Final, rows.view_mut(), &[1.0, 1.0], 0.5);
    assert!((f64::from(rows[[0, 1]]) - 1.0 / (2_f64.powi(24) + 1.0).sqrt()).abs() <= 1e-11);
}
