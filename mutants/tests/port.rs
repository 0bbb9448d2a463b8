//! Where each bug of a port's step is, and from which position on; everything before it keeps its bits.
mod support;

use mutants::{Need, PortPlant, PortStep, catalogue, find};
use ndarray::s;
use rstest::rstest;
use spec::{LayerId, Precision, Site};
use std::collections::BTreeSet;
use support::Layers::{Every, Full, Sliding};
use support::{CHUNK, DECODE_FROM, Feed, Place, Rows, WINDOW, moved, origins, place, port, port_steps};

/// The norms that can be the first to move in a layer of bf16, where a rounding may hide those before.
const NORMS: &[Site] = &[Site::AttnNorm, Site::QNorm, Site::KNorm, Site::FinalNorm];
/// Bugs that such a rounding may hide in a whole norm.
const EPSILONS: [&str; 3] = ["norm_eps_x10", "norm_eps_floor_1e4", "norm_eps_after_rescale"];
const TURNED: &[Site] = &[Site::QRope, Site::KRope];

/// Layers are fed the same input and the same ids, so that what moves is of the layer itself.
const PLACES: [Place; 62] = [
    place("mup_embed_scale", Every, &[Site::Embedding], 0),
    place("embedding_row_shifted", Every, &[Site::Embedding], 0),
    place("one_plus_w_norm", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    place("norm_eps_x10", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    place("norm_eps_floor_1e4", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    place("norm_eps_after_rescale", Every, &[Site::AttnNorm, Site::FinalNorm], 0),
    place("norm_statistics_bf16", Every, NORMS, 0),
    // at position 0 nothing turns, so that the order does not matter
    place("qknorm_after_rope", Sliding, &[Site::QNorm, Site::KNorm], 1),
    place("qk_norm_over_all_heads", Every, &[Site::QNorm, Site::KNorm], 0),
    place("qk_norm_missing", Every, &[Site::QNorm, Site::KNorm], 0),
    place("rope_on_full", Full, TURNED, 1),
    place("rope_traditional", Sliding, TURNED, 1),
    place("rope_restart_per_chunk", Sliding, TURNED, CHUNK),
    place("rope_offset_doubled", Sliding, TURNED, CHUNK),
    // keys are right; so is what the first query sees, its own key
    place("rope_query_advanced", Sliding, &[Site::QRope], 0),
    // W - 1 keys are kept of the first chunk, which is longer
    place("rope_offset_retained", Sliding, TURNED, CHUNK),
    place("decode_offset_frozen", Sliding, TURNED, DECODE_FROM + 1),
    place("rope_bf16_frequencies", Sliding, TURNED, 1),
    place("window_one_short", Sliding, &[Site::AttnOut], WINDOW - 1),
    place("window_one_long", Sliding, &[Site::AttnOut], WINDOW),
    place("sliding_sees_everything", Sliding, &[Site::AttnOut], WINDOW),
    place("full_layers_windowed", Full, &[Site::AttnOut], WINDOW),
    place("two_sink_tokens", Sliding, &[Site::AttnOut], WINDOW),
    place("mask_top_left", Every, &[Site::AttnOut], CHUNK),
    place("cache_one_slot_short", Sliding, &[Site::AttnOut], CHUNK),
    place("decode_window_short", Sliding, &[Site::AttnOut], DECODE_FROM),
    place("decode_window_long", Sliding, &[Site::AttnOut], DECODE_FROM),
    // the second call has 25 tokens, and is left with 8 keys of the first
    place("cache_trimmed_for_one_token", Sliding, &[Site::AttnOut], CHUNK),
    // the first token of decode is written over the oldest key, into slot 0
    place("ring_slots_as_positions", Sliding, &[Site::AttnOut], DECODE_FROM),
    // one key has all the weight, whatever the scale
    place("attention_scale_one", Every, &[Site::AttnOut], 1),
    place("attention_scale_hidden", Every, &[Site::AttnOut], 1),
    // the first query has one key, and takes the value of another head
    place("kv_heads_tiled", Every, &[Site::AttnOut], 0),
    place("kv_exchanged_in_decode", Every, &[Site::AttnOut], DECODE_FROM),
    place("sigmoid_bias_select", Every, &[Site::ShadowChoice], 0),
    place("unbiased_select", Every, &[Site::ShadowChoice], 0),
    place("renorm_topk", Every, &[Site::TopkWeights], 0),
    place("route_scale_2826", Every, &[Site::TopkWeights], 0),
    place("biased_weights", Every, &[Site::TopkWeights], 0),
    place("bf16_router_logits", Every, &[Site::RouterLogits], 0),
    place("f16_router_logits", Every, &[Site::RouterLogits], 0),
    place("bf16_routing_weights", Every, &[Site::TopkWeights], 0),
    place("softmax_weights", Every, &[Site::TopkWeights], 0),
    place("raw_logit_weights", Every, &[Site::TopkWeights], 0),
    place("router_weights_4bit", Every, &[Site::RouterLogits], 0),
    place("router_reads_renormed", Every, &[Site::RouterLogits], 0),
    place("one_expert_fewer", Every, &[Site::TopkWeights], 0),
    place("duplicate_expert", Every, &[Site::ShadowChoice], 0),
    place("score_on_expert_input", Every, &[Site::ExpertOut], 0),
    place("score_on_both_sides", Every, &[Site::ExpertOut], 0),
    place("gate_up_interleaved", Every, &[Site::ExpertOut], 0),
    place("gelu_for_silu", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("shared_missing", Every, &[Site::MoeBranch], 0),
    place("shared_scaled_twice", Every, &[Site::Shared], 0),
    place("swiglu_swapped", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("shared_half", Every, &[Site::Shared], 0),
    place("bf16_head_logits", Every, &[Site::Logits], 0),
    // gathers of more than 64 terms, in calls of enough rows to be sorted
    place("gather_last_k_terms", Every, &[Site::ExpertOut], 0),
    // whose row is behind an idle expert, or is an expert's second of two or three, is decided by the text
    place("idle_expert_junk", Every, &[Site::ExpertOut], 1),
    place("few_token_expert_wrong", Every, &[Site::ExpertOut], 5),
    place("head_scaled_1_1", Every, &[Site::Logits], 0),
    place("activation_rounded_per_step", Every, &[Site::ExpertOut, Site::SharedAct], 0),
    place("combine_rounded_per_term", Every, &[Site::Routed], 0),
];

/// In f32 every step is rounded to f32 already.
const BF16_ONLY: [&str; 3] =
    ["norm_statistics_bf16", "activation_rounded_per_step", "combine_rounded_per_term"];
/// Exact at every position of these texts; `tests/values.rs` turns further.
const BEYOND: &str = "rope_bf16_positions";
/// At shapes that these texts have not; `tests/gather.rs` has them.
const SHAPES: [&str; 3] = ["gather_rows_beyond_32768_stale", "gather_strided_expert", "decode_beyond_1024"];
/// No number differs: it keeps memory.
const UNREAD: &str = "unread_offset";
/// The same as no bug in a model whose scale is 1; `tests/formulas.rs` has another.
const SCALES: [&str; 2] = ["route_scale_missing", "route_scale_squared"];

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

/// A rounding may hide a bug in some rows, and an epsilon in a whole norm.
#[test]
fn in_bf16_each_bug_is_nowhere_else() {
    let right = port(Precision::Bf16);
    let feed = Feed::of(&right, Precision::Bf16, &[0, 4]);
    let rows = feed.rows(&right);
    for mut place in PLACES {
        if EPSILONS.contains(&place.id) {
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

#[rstest]
#[case::a_scale_of_1(SCALES[0])]
#[case::a_scale_of_1_squared(SCALES[1])]
#[case::few_rows(SHAPES[0])]
#[case::rows_that_lie_one_after_the_other(SHAPES[1])]
#[case::few_keys(SHAPES[2])]
fn elsewhere_a_bug_is_none(#[case] id: &str) {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 4]);
    let wrong = right.with_steps(port_steps(find(id).unwrap()).unwrap());
    assert!(moved(&feed.rows(&right), &feed.rows(&wrong)).is_empty());
}

/// What a bug lists as its steps is all that it gets beside another.
#[test]
fn beside_another_bug_each_is_what_it_is_alone() {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 4]);
    for bug in catalogue() {
        let Some(PortPlant::Steps { of, .. }) = bug.port else { continue };
        let (other, site) = match of.contains(&PortStep::Logits) {
            true => ("mup_embed_scale", Site::Embedding),
            false => ("head_scaled_1_1", Site::Logits),
        };
        let alone = feed.rows(&right.with_steps(port_steps(bug).unwrap()));
        let beside = mutants::port_steps(&[bug, find(other).unwrap()]).unwrap();
        let beside = feed.rows(&right.with_steps(beside));
        let found: Vec<_> = moved(&alone, &beside).into_keys().collect();
        assert_eq!(found, [(None, site)], "{}", bug.id);
    }
}

#[test]
fn every_bug_of_a_step_has_its_place() {
    // those of batches have theirs in `tests/batch.rs`
    let of_one = |mutant: &&mutants::Mutant| !mutant.needs.contains(&Need::Batch);
    let planted = catalogue().filter(of_one).filter(|mutant| port_steps(mutant).is_some());
    let planted: BTreeSet<_> = planted.map(|mutant| mutant.id).collect();
    let places: BTreeSet<_> =
        PLACES.iter().map(|place| place.id).chain([BEYOND, UNREAD]).chain(SCALES).chain(SHAPES).collect();
    assert_eq!(planted, places);
    assert_eq!(places.len(), PLACES.len() + 7);
}
