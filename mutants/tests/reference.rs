//! Where each bug of a step of the reference is, and that the port with the same bug computes the same.
mod support;

use mutants::{PortPlant, catalogue, find};
use ndarray::{Array2, arr2};
use reference::steps::{Heads, Matrix};
use reference::{Correct, RopeTable, Steps};
use rstest::rstest;
use spec::{ExpertId, LayerId, ModelConfig, Precision, Site};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use support::Layers::{Every, Full, Only, Sliding};
use support::edited::planted;
use support::{Feed, Place, Rows, WINDOW, config, moved, place, port, reference, relative_l2};

/// Honest sides differ by less, layer by layer.
const SAME_MAX: f64 = 1e-4;
/// How much farther the right side is from a bug than the other side with the same bug.
const FARTHER_MIN: f64 = 10.0;

const LAYERS: &[usize] = &[0, 3, 4, 9];
const NORMS: &[Site] = &[Site::AttnNorm, Site::FinalNorm];
// what these sites show of queries and keys
const NORMED: &[Site] = &[Site::QNorm, Site::KNorm];
const TURNED: &[Site] = &[Site::QRope, Site::KRope];

const PLACES: [Place; 43] = [
    place("mup_embed_scale", Every, &[Site::Embedding], 0),
    place("one_plus_w_norm", Every, NORMS, 0),
    // the norm before the MoE moves too, but so does what it takes
    place("swap_sandwich_norms", Every, &[Site::AttnBranch], 0),
    place("norm_eps_x10", Every, NORMS, 0),
    place("norm_eps_floor_1e4", Every, NORMS, 0),
    place("norm_eps_after_rescale", Every, NORMS, 0),
    // what the site shows is the projection, not normed yet
    place("qknorm_after_rope", Sliding, NORMED, 0),
    place("qk_norm_over_all_heads", Every, NORMED, 0),
    place("qk_norm_missing", Every, NORMED, 0),
    // at position 0 nothing turns
    place("rope_on_full", Full, TURNED, 1),
    place("rope_traditional", Sliding, TURNED, 1),
    place("rope_bf16_frequencies", Sliding, TURNED, 1),
    // 4 and 9 are full and have the kind of 5 and 0; 3 has that of 4; 0 has that of 1, which is its own
    place("layer_types_shifted", Only(&[3, 4, 9]), TURNED, 1),
    place("window_one_short", Sliding, &[Site::AttnOut], WINDOW - 1),
    place("window_one_long", Sliding, &[Site::AttnOut], WINDOW),
    place("sliding_sees_everything", Sliding, &[Site::AttnOut], WINDOW),
    place("full_layers_windowed", Full, &[Site::AttnOut], WINDOW),
    // one key has all the weight, whatever the scale
    place("attention_scale_one", Every, &[Site::AttnOut], 1),
    place("attention_scale_hidden", Every, &[Site::AttnOut], 1),
    place("kv_heads_tiled", Every, &[Site::AttnOut], 0),
    place("q_heads_interleaved", Every, &[Site::QNorm], 0),
    place("sigmoid_bias_select", Every, &[Site::SelectionScores], 0),
    place("unbiased_select", Every, &[Site::SelectionScores], 0),
    place("renorm_topk", Every, &[Site::TopkWeights], 0),
    place("route_scale_2826", Every, &[Site::TopkWeights], 0),
    place("biased_weights", Every, &[Site::TopkWeights], 0),
    place("softmax_weights", Every, &[Site::TopkWeights], 0),
    place("raw_logit_weights", Every, &[Site::TopkWeights], 0),
    place("bf16_routing_weights", Every, &[Site::TopkWeights], 0),
    place("one_expert_fewer", Every, &[Site::TopkWeights], 0),
    place("duplicate_expert", Every, &[Site::ShadowChoice], 0),
    place("bf16_router_logits", Every, &[Site::RouterLogits], 0),
    place("f16_router_logits", Every, &[Site::RouterLogits], 0),
    place("router_weights_4bit", Every, &[Site::RouterLogits], 0),
    place("router_reads_renormed", Every, &[Site::RouterLogits], 0),
    place("swiglu_swapped", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("gelu_for_silu", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("shared_half", Every, &[Site::Shared], 0),
    place("shared_scaled_twice", Every, &[Site::Shared], 0),
    place("shared_missing", Every, &[Site::MoeBranch], 0),
    place("bf16_head_logits", Every, &[Site::Logits], 0),
    place("head_scaled_1_1", Every, &[Site::Logits], 0),
    place("reference_tf32", Every, &[Site::Q, Site::K, Site::V, Site::Logits], 0),
];

/// This text is short, the base 10000, the scale 1 and the bias BF16 already.
const NOTHING_HERE: [&str; 5] =
    ["rope_bf16_positions", "rope_base_10000", "bf16_bias", "route_scale_missing", "route_scale_squared"];

/// The reference without a bug, and what it was fed.
static RIGHT: LazyLock<(Feed, Rows)> = LazyLock::new(|| {
    let right = reference();
    let feed = Feed::of(&right, Precision::F32, LAYERS);
    let rows = feed.rows(&right);
    (feed, rows)
});

fn steps(id: &str) -> Box<dyn Steps> {
    (find(id).unwrap().reference().unwrap().make)()
}

fn wrong(id: &str) -> Rows {
    RIGHT.0.rows(&reference().with_steps(steps(id)))
}

#[test]
fn each_bug_is_where_it_says() {
    for place in PLACES {
        place.check(&RIGHT.1, &wrong(place.id));
    }
}

#[test]
fn a_bug_that_this_checkpoint_cannot_show_moves_nothing() {
    for id in NOTHING_HERE {
        assert!(moved(&RIGHT.1, &wrong(id)).is_empty(), "{id}");
    }
}

#[test]
fn a_product_of_tf32_is_off_by_about_the_rounding_of_its_operands() {
    let wrong = wrong("reference_tf32");
    for key in [(Some(LayerId(3)), Site::Q), (None, Site::Logits)] {
        let distance = relative_l2(&wrong[&key], &RIGHT.1[&key]);
        // BF16 weights are TF32 already; the other operand is off by 2^-11 at most
        assert!((1e-5..2_f64.powi(-11)).contains(&distance), "{key:?}: {distance:e}");
    }
}

#[test]
fn every_bug_of_the_reference_has_its_place() {
    let planted = catalogue().filter(|mutant| mutant.reference().is_some());
    let planted: BTreeSet<_> = planted.map(|mutant| mutant.id).collect();
    assert_eq!(planted, PLACES.iter().map(|place| place.id).chain(NOTHING_HERE).collect());
}

/// The port's rows with a bug, of what the reference was fed.
fn port_with(id: &str) -> Rows {
    match find(id).unwrap().port.unwrap() {
        PortPlant::Steps { make, .. } => RIGHT.0.rows(&port(Precision::F32).with_steps(make())),
        PortPlant::Checkpoint(_) => RIGHT.0.rows(&planted(id, RIGHT.0.idle(), false).port().unwrap()),
    }
}

#[rstest]
#[case("mup_embed_scale", Site::Embedding)]
#[case("one_plus_w_norm", Site::AttnBranch)]
#[case("swap_sandwich_norms", Site::MoeNorm)]
#[case("norm_eps_x10", Site::AttnNorm)]
#[case("norm_eps_floor_1e4", Site::AttnNorm)]
#[case("norm_eps_floor_1e4", Site::KNorm)]
#[case("norm_eps_after_rescale", Site::AttnNorm)]
#[case("qknorm_after_rope", Site::AttnOut)]
#[case("qk_norm_over_all_heads", Site::AttnOut)]
#[case("qk_norm_missing", Site::AttnOut)]
#[case("rope_on_full", Site::AttnOut)]
#[case("rope_traditional", Site::AttnOut)]
#[case("rope_bf16_frequencies", Site::QRope)]
#[case("layer_types_shifted", Site::AttnOut)]
#[case("window_one_short", Site::AttnOut)]
#[case("window_one_long", Site::AttnOut)]
#[case("sliding_sees_everything", Site::AttnOut)]
#[case("full_layers_windowed", Site::AttnOut)]
#[case("attention_scale_one", Site::AttnOut)]
#[case("attention_scale_hidden", Site::AttnOut)]
#[case("kv_heads_tiled", Site::AttnOut)]
#[case("q_heads_interleaved", Site::AttnOut)]
#[case("sigmoid_bias_select", Site::ShadowChoice)]
#[case("unbiased_select", Site::ShadowChoice)]
#[case("duplicate_expert", Site::ShadowChoice)]
#[case("renorm_topk", Site::Routed)]
#[case("route_scale_2826", Site::TopkWeights)]
#[case("biased_weights", Site::TopkWeights)]
#[case("softmax_weights", Site::TopkWeights)]
#[case("raw_logit_weights", Site::TopkWeights)]
#[case("bf16_routing_weights", Site::TopkWeights)]
#[case("one_expert_fewer", Site::Routed)]
#[case("bf16_router_logits", Site::RouterLogits)]
#[case("f16_router_logits", Site::RouterLogits)]
#[case("router_weights_4bit", Site::RouterLogits)]
#[case("router_reads_renormed", Site::RouterLogits)]
#[case("swiglu_swapped", Site::Routed)]
#[case("gelu_for_silu", Site::Routed)]
#[case("gelu_for_silu", Site::Shared)]
#[case("shared_half", Site::Shared)]
#[case("shared_scaled_twice", Site::Shared)]
#[case("shared_missing", Site::MoeBranch)]
#[case("bf16_head_logits", Site::Logits)]
#[case("head_scaled_1_1", Site::Logits)]
fn the_same_bug_in_both_sides_computes_the_same(#[case] id: &str, #[case] site: Site) {
    let (wrong, planted) = (wrong(id), port_with(id));
    let mut seen = 0;
    for (key, wrong) in wrong.iter().filter(|((_, at), _)| *at == site) {
        let distance = relative_l2(&planted[key], wrong);
        assert!(distance <= SAME_MAX, "{key:?}: {distance:e}");
        let from_right = relative_l2(&RIGHT.1[key], wrong);
        // sums of f32 are some 1e-6 apart where both sides are right
        seen += usize::from(from_right > FARTHER_MIN * distance.max(1e-6));
    }
    assert!(seen > 0, "{id} is seen in no layer's {site}");
}

#[test]
fn a_base_that_falls_back_is_10000() {
    // D 16: frequencies 10^(-j/2)
    let other = ModelConfig { rope_theta: 5000.0, ..config() };
    for (j, found) in steps("rope_base_10000").inv_freq(&other).into_iter().enumerate() {
        let expected = 10_f64.powf(-(j as f64) / 2.0);
        assert!((f64::from(found) / expected - 1.0).abs() <= 1e-6, "pair {j}");
    }
}

#[test]
fn positions_beyond_256_are_rounded_to_bf16() {
    let config = config();
    let table = RopeTable::new(400, &Correct.inv_freq(&config));
    let turned = |steps: &dyn Steps, first: usize, rows: usize| {
        let mut rows = Array2::from_shape_fn((rows, 16), |(_, column)| column as f32 / 8.0 - 1.0);
        let heads = Heads { config: &config, layer: LayerId(0), first, weight: &[1.0; 16], table: &table };
        steps.qk_rope(&heads, rows.view_mut());
        rows
    };
    // from 256 on bf16 holds every other number; a tie goes to the even multiple
    let found = turned(&*steps("rope_bf16_positions"), 255, 6);
    for (row, position) in [255, 256, 256, 258, 260, 260].into_iter().enumerate() {
        assert_eq!(found.row(row), turned(&Correct, position, 1).row(0), "position {}", 255 + row);
    }
}

#[test]
fn a_bias_is_rounded_to_bf16() {
    // between 1 and 1 + 2^-7 bf16 holds nothing
    let (logits, bias) = ([0.0, 0.5, 2.0], [1.0 + 2_f32.powi(-9), -3.0, 1.0 + 3.0 * 2_f32.powi(-9)]);
    let mut scores = [0.0; 3];
    steps("bf16_bias").selection_scores(&config(), &logits, &bias, &mut scores);
    assert_eq!(scores, [1.0, -2.5, 3.0 + 2_f32.powi(-7)]);
}

#[rstest]
#[case("route_scale_missing", 0.5)]
#[case("route_scale_squared", 0.5 * 2.5 * 2.5)]
#[case("route_scale_2826", 0.5 * 2.5 * 2.826)]
fn a_scale_of_weights_is(#[case] id: &str, #[case] expected: f32) {
    let other = ModelConfig { route_scale: 2.5, ..config() };
    let weights = steps(id).topk_weights(&other, &[9.0, 0.0], &[9.0, 0.0], &[ExpertId(1)]);
    assert!((weights[0] / expected - 1.0).abs() <= 1e-6, "{weights:?}");
}

#[test]
fn a_matrix_of_4_bits_has_16_values_in_each_32() {
    // two groups: -1 to 14.3 in steps of 1.02, and one that is constant
    let gate =
        Array2::from_shape_fn((1, 64), |(_, i)| if i < 32 { (i % 16) as f32 * 1.02 - 1.0 } else { 0.3 });
    let x = Array2::from_diag(&ndarray::Array1::<f32>::ones(64));
    let mut out = Array2::zeros((64, 1));
    steps("router_weights_4bit").product(Matrix::Router, x.view(), gate.view(), out.view_mut());
    let distance = (&out.t() - &gate).mapv(f32::abs);
    // the values are 16 equal steps already
    assert!(distance.iter().all(|d| *d <= 2e-6), "{distance}");
    let off = arr2(&[[0.0, 0.2, 0.49, 0.51, 15.0]]);
    let gate = Array2::from_shape_fn((1, 32), |(_, i)| off[[0, i.min(4)]]);
    let mut out = Array2::zeros((32, 1));
    let x = Array2::from_diag(&ndarray::Array1::<f32>::ones(32));
    steps("router_weights_4bit").product(Matrix::Router, x.view(), gate.view(), out.view_mut());
    assert_eq!(out.column(0).to_vec()[..5], [0.0, 0.0, 0.0, 1.0, 15.0]);
}
