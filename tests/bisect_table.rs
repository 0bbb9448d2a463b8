//! Every bug that a port can have, found by bisection where its definition puts it: part, site, position.

#[allow(dead_code, reason = "the verbs use the rest of it")]
#[path = "../src/bench.rs"]
mod bench;

use bench::Workbench;
use diff::bisect::{Finding, Key, PartName, Plan, run};
use rstest::rstest;
use spec::{Case, LayerId, LayerKind, Precision, Schedule, Site, TokenId};
use std::collections::BTreeSet;

const TOKENS: usize = 64;
const CHUNK: usize = 36;
const DECODE_FROM: usize = 61;
/// The checkpoint's window.
const WINDOW: usize = 33;

/// Where a bug shows first.
struct Place {
    id: &'static str,
    part: PartName,
    sites: &'static [Site],
    position: usize,
}

const fn place(id: &'static str, part: PartName, sites: &'static [Site], position: usize) -> Place {
    Place { id, part, sites, position }
}

/// The first layer, which is sliding; layers 4 and 9 are full.
const FIRST: PartName = PartName::Layer(LayerId(0), LayerKind::Sliding);
const FULL: PartName = PartName::Layer(LayerId(4), LayerKind::Full);
const LAST: PartName = PartName::Layer(LayerId(9), LayerKind::Full);
const HEAD: PartName = PartName::Head;
const EMBEDDING: PartName = PartName::Embedding;

const TURNED: &[Site] = &[Site::QRope, Site::KRope];
const NORMED: &[Site] = &[Site::QNorm, Site::KNorm];
const ACTIVATED: &[Site] = &[Site::ExpertOut, Site::SharedAct];

const PLACES: &[Place] = &[
    place("mup_embed_scale", EMBEDDING, &[Site::Embedding], 0),
    place("embedding_row_shifted", EMBEDDING, &[Site::Embedding], 0),
    place("one_plus_w_norm", FIRST, &[Site::AttnNorm], 0),
    place("norm_eps_x10", FIRST, &[Site::AttnNorm], 0),
    place("norm_eps_floor_1e4", FIRST, &[Site::AttnNorm], 0),
    place("norm_eps_after_rescale", FIRST, &[Site::AttnNorm], 0),
    place("layers_exchanged", FIRST, &[Site::AttnNorm], 0),
    place("stale_duplicate_shard", FIRST, &[Site::OProj], 0),
    // last in the file are the attention projections of layer 9 and the final norm
    place("shard_tail_zero", LAST, &[Site::Q, Site::K, Site::V], 0),
    place("q_heads_interleaved", FIRST, &[Site::Q], 0),
    place("qk_norm_over_all_heads", FIRST, NORMED, 0),
    place("qk_norm_missing", FIRST, NORMED, 0),
    // at position 0 nothing turns
    place("qknorm_after_rope", FIRST, NORMED, 1),
    place("rope_on_full", FULL, TURNED, 1),
    // full where `i % 5 == 3`: layer 3 no longer turns
    place("layer_types_shifted", PartName::Layer(LayerId(3), LayerKind::Sliding), TURNED, 1),
    place("rope_traditional", FIRST, TURNED, 1),
    place("rope_bf16_frequencies", FIRST, TURNED, 1),
    place("rope_query_advanced", FIRST, &[Site::QRope], 0),
    place("rope_restart_per_chunk", FIRST, TURNED, CHUNK),
    place("rope_offset_doubled", FIRST, TURNED, CHUNK),
    place("rope_offset_retained", FIRST, TURNED, CHUNK),
    // the first call of one token has the right offset still
    place("decode_offset_frozen", FIRST, TURNED, DECODE_FROM + 1),
    // the first query to see W keys sees W - 1
    place("window_one_short", FIRST, &[Site::AttnOut], WINDOW - 1),
    // the first query to lose a key keeps it
    place("window_one_long", FIRST, &[Site::AttnOut], WINDOW),
    place("sliding_sees_everything", FIRST, &[Site::AttnOut], WINDOW),
    place("two_sink_tokens", FIRST, &[Site::AttnOut], WINDOW),
    place("full_layers_windowed", FULL, &[Site::AttnOut], WINDOW),
    place("mask_top_left", FIRST, &[Site::AttnOut], CHUNK),
    // the first query of a call needs W - 1 keys of earlier calls, and there are W - 2
    place("cache_one_slot_short", FIRST, &[Site::AttnOut], CHUNK),
    place("decode_window_short", FIRST, &[Site::AttnOut], DECODE_FROM),
    place("decode_window_long", FIRST, &[Site::AttnOut], DECODE_FROM),
    place("cache_trimmed_for_one_token", FIRST, &[Site::AttnOut], CHUNK),
    place("ring_slots_as_positions", FIRST, &[Site::AttnOut], DECODE_FROM),
    place("kv_exchanged_in_decode", FIRST, &[Site::AttnOut], DECODE_FROM),
    // one key has all the weight, whatever the scale
    place("attention_scale_one", FIRST, &[Site::AttnOut], 1),
    place("attention_scale_hidden", FIRST, &[Site::AttnOut], 1),
    place("kv_heads_tiled", FIRST, &[Site::AttnOut], 0),
    place("swap_sandwich_norms", FIRST, &[Site::AttnBranch], 0),
    place("bf16_router_logits", FIRST, &[Site::RouterLogits], 0),
    place("f16_router_logits", FIRST, &[Site::RouterLogits], 0),
    place("router_weights_4bit", FIRST, &[Site::RouterLogits], 0),
    place("router_reads_renormed", FIRST, &[Site::RouterLogits], 0),
    place("sigmoid_bias_select", FIRST, &[Site::ShadowChoice], 0),
    place("unbiased_select", FIRST, &[Site::ShadowChoice], 0),
    place("duplicate_expert", FIRST, &[Site::ShadowChoice], 0),
    place("renorm_topk", FIRST, &[Site::TopkWeights], 0),
    place("route_scale_2826", FIRST, &[Site::TopkWeights], 0),
    place("biased_weights", FIRST, &[Site::TopkWeights], 0),
    place("bf16_routing_weights", FIRST, &[Site::TopkWeights], 0),
    place("softmax_weights", FIRST, &[Site::TopkWeights], 0),
    place("raw_logit_weights", FIRST, &[Site::TopkWeights], 0),
    place("one_expert_fewer", FIRST, &[Site::TopkWeights], 0),
    place("score_on_expert_input", FIRST, &[Site::ExpertOut], 0),
    place("score_on_both_sides", FIRST, &[Site::ExpertOut], 0),
    place("gate_up_interleaved", FIRST, &[Site::ExpertOut], 0),
    place("gate_up_exchanged", FIRST, &[Site::ExpertOut], 0),
    place("experts_in_string_order", FIRST, &[Site::ExpertOut], 0),
    // sums of 96 terms
    place("gather_last_k_terms", FIRST, &[Site::ExpertOut], 0),
    // whose row is behind an idle expert, and whose shares one with few others, is the text's
    place("idle_expert_junk", FIRST, &[Site::ExpertOut], 1),
    place("few_token_expert_wrong", FIRST, &[Site::ExpertOut], 5),
    place("gelu_for_silu", FIRST, ACTIVATED, 0),
    place("swiglu_swapped", FIRST, ACTIVATED, 0),
    place("shared_is_routed", FIRST, &[Site::SharedGate, Site::SharedUp], 0),
    place("shared_half", FIRST, &[Site::Shared], 0),
    place("shared_scaled_twice", FIRST, &[Site::Shared], 0),
    place("shared_missing", FIRST, &[Site::MoeBranch], 0),
    place("embedding_as_head", HEAD, &[Site::Logits], 0),
    place("bf16_head_logits", HEAD, &[Site::Logits], 0),
    place("head_scaled_1_1", HEAD, &[Site::Logits], 0),
];

/// A bug of batches.
const ONE: &str = "one sequence is no batch";

/// What these tokens of this checkpoint in f32 cannot show, and why.
const UNSEEN: &[(&str, &str)] = &[
    ("norm_statistics_bf16", "the statistics of f32 rows are f32"),
    ("activation_rounded_per_step", "a step in f32 is rounded to f32 already"),
    ("combine_rounded_per_term", "a term in f32 is rounded to f32 already"),
    ("rope_bf16_positions", "bf16 holds every position up to 256"),
    ("unread_offset", "no number differs"),
    ("codes_reversed", "nothing is packed"),
    ("route_scale_missing", "the scale is 1"),
    ("route_scale_squared", "the scale is 1"),
    ("bf16_bias", "the biases are stored in bf16"),
    ("rope_base_10000", "the base is 10000"),
    ("batched_rope_positions_in_padded_frame", ONE),
    ("batch_decode_pos_frozen", ONE),
    ("rope_one_token_first_row", ONE),
    ("batch_decode_pad_keys_visible", ONE),
    ("left_padding_visible", ONE),
    ("masked_row_nan", ONE),
    ("rows_misaligned_after_leave", ONE),
    ("rows_misaligned_after_join", ONE),
    ("gather_rows_beyond_32768_stale", "a call has 144 rows"),
    ("gather_strided_expert", "rows and experts lie one after the other"),
    ("decode_beyond_1024", "a query sees 64 keys at most"),
    ("f16_weights", "f16 holds these weights as well as f32 sums them"),
];

/// What never runs: the port, or the edit, refuses the checkpoint.
const REFUSED: &[&str] = &[
    "attn_output_gate",
    "missing_tensor",
    "misshaped_tensor",
    "square_expert_transposed",
    "zero_point_negated",
    "group_size_doubled",
    "scale_grid_transposed",
];

/// An expert of the last layer; the position is the text's.
const IDLE: &str = "zeroed_idle_expert";

fn bisect(id: &str) -> spec::Result<Finding> {
    let checkpoint = fixtures::data("kolibri-tiny-kjv");
    let text = std::fs::read(fixtures::data("texts/kjv-heldout.txt")).unwrap();
    let tokens = text[..TOKENS].iter().map(|&byte| TokenId(byte.into())).collect();
    let case = Case::new("text", tokens).unwrap();
    let schedule = Schedule { decode_from: Some(DECODE_FROM), ..Schedule::chunks_of(CHUNK) };
    let key = Key {
        assay_version: "test".into(),
        weights_sha256: String::new(),
        config_sha256: String::new(),
        tokens_sha256: String::new(),
        schedule,
        precision: Precision::F32,
        port_mutant: Some(id.into()),
    };
    let folder = tempfile::tempdir().unwrap();
    let bench = Workbench::open(&checkpoint, None, Some(id))?;
    run(&bench, &Plan { case: &case, key: &key, folder: folder.path() }, &mut ())
}

/// In two halves, for two cores.
#[rstest]
#[case::even(0)]
#[case::odd(1)]
fn every_bug_is_found_where_its_definition_puts_it(#[case] half: usize) {
    for place in PLACES.iter().skip(half).step_by(2) {
        let finding = bisect(place.id).unwrap();
        let origin = finding.origin.as_ref().unwrap_or_else(|| panic!("{}: {}", place.id, finding.sentence));
        let found = (origin.part, origin.sites.as_slice(), origin.position);
        assert_eq!(found, (place.part, place.sites, place.position), "{}: {}", place.id, finding.sentence);
        let shrunk = finding.shrunk.as_ref().unwrap();
        assert!(shrunk.confirmed, "{}", place.id);
        // the longest need a chunk, and two tokens of the next
        assert!(shrunk.end - shrunk.start <= CHUNK + 2, "{}: {shrunk:?}", place.id);
        assert!(finding.runs.probes <= finding.runs.probes_max, "{}: {:?}", place.id, finding.runs);
    }
}

#[test]
fn what_cannot_show_here_is_not_found() {
    for (id, why) in UNSEEN {
        let finding = bisect(id).unwrap();
        assert!(!finding.is_wrong(), "{id}, although {why}: {}", finding.sentence);
    }
    for id in REFUSED {
        assert!(bisect(id).is_err(), "{id}");
    }
}

#[test]
fn an_expert_without_output_is_named() {
    let origin = bisect(IDLE).unwrap().origin.unwrap();
    assert_eq!(origin.part, PartName::Layer(LayerId(9), LayerKind::Full));
    assert_eq!(origin.sites, [Site::ExpertOut]);
    assert_eq!(origin.experts.unwrap().out, [0]);
}

#[test]
fn every_bug_of_a_port_has_its_place() {
    let of_ports: BTreeSet<&str> =
        mutants::catalogue().filter(|mutant| mutant.port.is_some()).map(|mutant| mutant.id).collect();
    let places = PLACES.iter().map(|place| place.id).chain(UNSEEN.iter().map(|(id, _)| *id));
    let places: Vec<&str> = places.chain(REFUSED.iter().copied()).chain([IDLE]).collect();
    let named: BTreeSet<&str> = places.iter().copied().collect();
    assert_eq!(named.len(), places.len(), "each once");
    assert_eq!(named, of_ports);
}

/// An honest port and every correct rewrite of one: nothing is found.
#[test]
fn correct_rewrites_are_not_found() {
    for rewrite in mutants::variants().filter(|rewrite| rewrite.port.is_some()) {
        let finding = bisect(rewrite.id).unwrap();
        assert!(!finding.is_wrong(), "{}: {}", rewrite.id, finding.sentence);
    }
}
