//! Where each bug of a port's step is, and from which position on; everything before it keeps its bits.
mod support;

use mutants::{catalogue, find};
use ndarray::s;
use rstest::rstest;
use spec::{LayerId, Precision, Site};
use std::collections::BTreeSet;
use support::Layers::{Every, Full, Sliding};
use support::{CHUNK, DECODE_FROM, Feed, Place, Rows, WINDOW, moved, origins, place, port, port_steps};

/// The norms that can be the first to move in a layer of bf16, where a rounding may hide those before.
const NORMS: &[Site] = &[Site::AttnNorm, Site::QNorm, Site::KNorm, Site::FinalNorm];
const TURNED: &[Site] = &[Site::QRope, Site::KRope];

/// Layers are fed the same input and the same ids, so that what moves is of the layer itself.
const PLACES: [Place; 31] = [
    place("mup_embed_scale", Every, &[Site::Embedding], 0),
    place("one_plus_w_norm", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    place("norm_eps_x10", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    place("norm_statistics_bf16", Every, NORMS, 0),
    // at position 0 nothing turns, so that the order does not matter
    place("qknorm_after_rope", Sliding, &[Site::QNorm, Site::KNorm], 1),
    place("rope_on_full", Full, TURNED, 1),
    place("rope_traditional", Sliding, TURNED, 1),
    place("rope_restart_per_chunk", Sliding, TURNED, CHUNK),
    place("decode_offset_frozen", Sliding, TURNED, DECODE_FROM + 1),
    place("rope_bf16_frequencies", Sliding, TURNED, 1),
    place("window_one_short", Sliding, &[Site::AttnOut], WINDOW - 1),
    place("full_layers_windowed", Full, &[Site::AttnOut], WINDOW),
    place("two_sink_tokens", Sliding, &[Site::AttnOut], WINDOW),
    place("mask_top_left", Every, &[Site::AttnOut], CHUNK),
    place("cache_one_slot_short", Sliding, &[Site::AttnOut], CHUNK),
    place("decode_window_short", Sliding, &[Site::AttnOut], DECODE_FROM),
    // one key has all the weight, whatever the scale
    place("attention_scale_one", Every, &[Site::AttnOut], 1),
    place("attention_scale_hidden", Every, &[Site::AttnOut], 1),
    place("sigmoid_bias_select", Every, &[Site::ShadowChoice], 0),
    place("unbiased_select", Every, &[Site::ShadowChoice], 0),
    place("renorm_topk", Every, &[Site::TopkWeights], 0),
    place("route_scale_2826", Every, &[Site::TopkWeights], 0),
    place("biased_weights", Every, &[Site::TopkWeights], 0),
    place("bf16_router_logits", Every, &[Site::RouterLogits], 0),
    place("f16_router_logits", Every, &[Site::RouterLogits], 0),
    place("bf16_routing_weights", Every, &[Site::TopkWeights], 0),
    place("swiglu_swapped", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("shared_half", Every, &[Site::Shared], 0),
    place("bf16_head_logits", Every, &[Site::Logits], 0),
    place("activation_rounded_per_step", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("combine_rounded_per_term", Every, &[Site::Routed], 0),
];

/// In f32 every step is rounded to f32 already.
const BF16_ONLY: [&str; 3] =
    ["norm_statistics_bf16", "activation_rounded_per_step", "combine_rounded_per_term"];
/// Exact at every position of these texts; `tests/values.rs` turns further.
const BEYOND: &str = "rope_bf16_positions";

#[test]
fn in_f32_each_bug_is_where_it_says() {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 4, 8, 9]);
    let rows = feed.rows(&right);
    for place in PLACES {
        let steps = port_steps(find(place.id).unwrap()).unwrap();
        let wrong = feed.rows(&right.with_steps(steps));
        if BF16_ONLY.contains(&place.id) {
            assert!(moved(&rows, &wrong).is_empty(), "{}", place.id);
        } else {
            place.check(&rows, &wrong);
        }
    }
}

/// A rounding may hide a bug in some rows, and a tenfold epsilon in a whole norm.
#[test]
fn in_bf16_each_bug_is_nowhere_else() {
    let right = port(Precision::Bf16);
    let feed = Feed::of(&right, Precision::Bf16, &[0, 4]);
    let rows = feed.rows(&right);
    for mut place in PLACES {
        if place.id == "norm_eps_x10" {
            place.sites = NORMS;
        }
        let steps = port_steps(find(place.id).unwrap()).unwrap();
        let found = origins(&moved(&rows, &feed.rows(&right.with_steps(steps))));
        let allowed = place.keys(&rows);
        assert!(found.keys().all(|key| allowed.contains(key)), "{}: {found:?}", place.id);
        assert!(found.values().min().is_some_and(|&first| first >= place.first), "{}: {found:?}", place.id);
    }
}

#[rstest]
#[case(Precision::F32)]
#[case(Precision::Bf16)]
fn up_to_256_a_position_is_exact_in_bf16(#[case] precision: Precision) {
    let right = port(precision);
    let feed = Feed::of(&right, precision, &[0]);
    let wrong = right.with_steps(port_steps(find(BEYOND).unwrap()).unwrap());
    let (right, wrong) = (feed.rows(&right), feed.rows(&wrong));
    for (key, right) in &right {
        let distance = support::relative_l2(&wrong[key], right);
        let limit = if precision == Precision::F32 { 1e-6 } else { 1e-2 };
        assert!(distance <= limit, "{key:?}: {distance:e}");
    }
}

#[rstest]
#[case("decode_window_short")]
#[case("cache_one_slot_short")]
fn decode_sees_what_a_window_one_short_sees(#[case] id: &str) {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 8]);
    let rows = |id| feed.rows(&right.with_steps(port_steps(find(id).unwrap()).unwrap()));
    let (found, short) = (rows(id), rows("window_one_short"));
    for layer in [0, 8] {
        let key = (Some(LayerId(layer)), Site::AttnOut);
        let decode = |rows: &Rows| rows[&key].slice(s![DECODE_FROM.., ..]).to_owned();
        assert_eq!(decode(&found), decode(&short), "layer {layer}");
    }
}

#[test]
fn every_bug_of_a_step_has_its_place() {
    let planted = catalogue().filter(|mutant| port_steps(mutant).is_some());
    let planted: BTreeSet<_> = planted.map(|mutant| mutant.id).collect();
    let places: BTreeSet<_> = PLACES.iter().map(|place| place.id).chain([BEYOND]).collect();
    assert_eq!(planted, places);
    assert_eq!(places.len(), PLACES.len() + 1);
}
