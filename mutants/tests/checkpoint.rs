//! The catalogue's edits of a checkpoint: where each moves the numbers first, or who refuses it.
mod support;

use half::{bf16, f16};
use mutants::edit::apply;
use mutants::{Facts, PortPlant, catalogue, find};
use rstest::rstest;
use safetensors::tensor::Dtype;
use spec::{Error, ExpertId, LayerId, Precision, Site, config_file};
use std::collections::BTreeSet;
use support::Layers::{Every, Only};
use support::edited::{Edited, planted, read};
use support::{Feed, Place, checkpoint, config, moved, place, port};

/// The catalogue's edits want an expert without tokens; where it does not matter, this one.
const ANY: (LayerId, ExpertId) = (LayerId(0), ExpertId(0));

const PLACES: [Place; 9] = [
    place("stale_duplicate_shard", Only(&[0]), &[Site::OProj], 0),
    // the first two sliding layers
    place("layers_exchanged", Only(&[0, 1]), &[Site::AttnNorm], 0),
    // the norm before the MoE moves too, but so does what it takes
    place("swap_sandwich_norms", Every, &[Site::AttnBranch], 0),
    // of the 32 experts 0 and 1 alone stay, and every token has four
    place("experts_in_string_order", Every, &[Site::ExpertOut], 0),
    place("gate_up_exchanged", Every, &[Site::ExpertOut], 0),
    place("embedding_as_head", Every, &[Site::Logits], 0),
    // 4 and 9 see everything, now 3 and 8 do; at position 0 nothing turns
    place("layer_types_shifted", Only(&[3, 4, 8, 9]), &[Site::QRope, Site::KRope], 1),
    place("q_heads_interleaved", Every, &[Site::Q], 0),
    place("shared_is_routed", Every, &[Site::SharedGate, Site::SharedUp], 0),
];

/// Where loaders have to find them.
const REFUSED: [&str; 3] = ["attn_output_gate", "missing_tensor", "misshaped_tensor"];
/// They do nothing to this checkpoint: its base is 10000, its bias BF16, its experts are not square, and no
/// matrix is packed or FP8.
const NOT_EXERCISED: [&str; 7] = [
    "rope_base_10000",
    "bf16_bias",
    "square_expert_transposed",
    "codes_reversed",
    "zero_point_negated",
    "group_size_doubled",
    "scale_grid_transposed",
];
/// They change weights that these tokens do not meet, or hardly; or all that comes last in a file.
const VALUES: [&str; 3] = ["zeroed_idle_expert", "f16_weights", "shard_tail_zero"];

#[test]
fn each_edit_moves_first_what_it_says() {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 1, 2, 3, 4, 8, 9]);
    let rows = feed.rows(&right);
    for place in PLACES {
        place.check(&rows, &feed.rows(&planted(place.id, ANY, false).port().unwrap()));
    }
}

#[test]
fn every_edit_of_the_catalogue_is_in_a_list_here() {
    let edits = catalogue().filter(|m| matches!(m.port, Some(PortPlant::Checkpoint(_))));
    let listed = PLACES.iter().map(|place| place.id).chain(REFUSED).chain(NOT_EXERCISED).chain(VALUES);
    assert_eq!(edits.map(|m| m.id).collect::<BTreeSet<_>>(), listed.collect());
}

#[rstest]
#[case::extra(REFUSED[0], "model.layers.0.self_attn.gate_proj.weight")]
#[case::missing(REFUSED[1], "model.layers.9.self_attn.k_norm.weight")]
#[case::misshaped(REFUSED[2], "model.layers.0.self_attn.q_proj.weight")]
fn both_loaders_refuse_by_name(#[case] id: &str, #[case] name: &str, #[values(false, true)] sharded: bool) {
    let edited = planted(id, ANY, sharded);
    let errors = [edited.port().err().unwrap(), edited.reference().err().unwrap()];
    for error in errors {
        assert!(matches!(&error, Error::Tensor { name: found, .. } if found == name), "{error}");
    }
}

/// Names of the tensors that differ.
fn changed(edited: &Edited) -> Vec<String> {
    let after = read(edited.to.path());
    read(&edited.from).into_iter().filter(|(name, t)| after[name] != *t).map(|(name, _)| name).collect()
}

#[test]
fn an_expert_that_no_token_chose_is_missed_by_no_layer() {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let (layer, expert) = feed.idle();
    let edited = planted("zeroed_idle_expert", (layer, expert), false);
    let name = format!("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight");
    assert_eq!(changed(&edited), [name]);
    assert!(moved(&feed.rows(&right), &feed.rows(&edited.port().unwrap())).is_empty());
}

#[test]
fn the_last_hundredth_of_the_data_is_zero_and_nothing_else_differs() {
    let edited = planted("shard_tail_zero", ANY, false);
    let (before, after) = (read(&edited.from), read(edited.to.path()));
    let bytes: usize = before.values().map(|(_, _, bytes)| bytes.len()).sum();
    let mut zeroed = 0;
    for (name, (_, _, bytes)) in &before {
        let now = &after[name].2;
        let kept = now.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        assert_eq!(now[..kept], bytes[..kept], "{name}");
        zeroed += if now == bytes { 0 } else { bytes.len() - kept };
    }
    // a tensor may have ended in zeros before
    assert!((bytes / 100 - 8..bytes / 100 + 64).contains(&zeroed), "{zeroed} of {bytes}");
}

#[test]
fn experts_stand_in_the_order_of_words() {
    let edited = planted("experts_in_string_order", ANY, false);
    let (before, after) = (read(&edited.from), read(edited.to.path()));
    let words = "0 1 10 11 12 13 14 15 16 17 18 19 2 20 21 22 23 24 25 26 27 28 29 3 30 31 4 5 6 7 8 9";
    assert_eq!(words.split(' ').count(), 32);
    for (place, word) in words.split(' ').enumerate() {
        for (layer, part) in [(0, "gate_proj"), (4, "up_proj"), (9, "down_proj")] {
            let name = |id: &str| format!("model.layers.{layer}.mlp.experts.{id}.{part}.weight");
            assert!(after[&name(&place.to_string())] == before[&name(word)], "{word} in place {place}");
        }
    }
}

#[test]
fn every_matrix_that_is_multiplied_passes_through_f16_and_nothing_else() {
    let edited = planted("f16_weights", ANY, false);
    let (before, after) = (read(&edited.from), read(edited.to.path()));
    let mut rounded = 0;
    for (name, (dtype, shape, bytes)) in &before {
        let through = shape.len() == 2 && !name.contains("embed_tokens");
        let round = |x: &[u8]| {
            let x = bf16::from_le_bytes([x[0], x[1]]);
            if through { bf16::from_f32(f16::from_f32(x.to_f32()).to_f32()) } else { x }
        };
        assert_eq!(*dtype, Dtype::BF16);
        let expected: Vec<u8> = bytes.chunks(2).flat_map(|x| round(x).to_le_bytes()).collect();
        rounded += bytes.chunks(2).zip(expected.chunks(2)).filter(|(a, b)| a != b).count();
        assert!(after[name].2 == expected, "{name}");
    }
    assert!(rounded > 0, "no weight of this checkpoint is beyond f16");
}

#[rstest]
#[case("rope_base_10000")]
#[case("bf16_bias")]
fn what_is_so_already_does_nothing(#[case] id: &str) {
    let edited = planted(id, ANY, false);
    assert!(changed(&edited).is_empty());
    assert_eq!(config_file::read(edited.to.path()).unwrap(), config());
    edited.port().unwrap();
}

/// A base in either of its two places, or in both.
#[rstest]
#[case::flat(r#""rope_theta": 5000.0"#)]
#[case::nested(r#""rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}"#)]
#[case::both(r#""rope_parameters": {"rope_theta": 5000.0}, "rope_theta": 5000.0"#)]
fn a_base_falls_back_to_10000_wherever_it_is(#[case] key: &str) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = std::fs::read_to_string(checkpoint().join("config.json")).unwrap();
    let start = text.find(r#""rope_parameters""#).unwrap();
    let end = start + text[start..].find('}').unwrap() + 1;
    std::fs::write(from.path().join("config.json"), text[..start].to_owned() + key + &text[end..]).unwrap();
    std::fs::copy(checkpoint().join("model.safetensors"), from.path().join("model.safetensors")).unwrap();
    let before = config_file::read(from.path()).unwrap();
    assert_eq!(before.rope_theta, 5000.0);
    let Some(PortPlant::Checkpoint(edits)) = find("rope_base_10000").unwrap().port else { panic!() };
    apply(from.path(), &edits(&Facts { config: &before, idle: ANY }), to.path()).unwrap();
    assert_eq!(config_file::read(to.path()).unwrap(), config());
}

#[rstest]
#[case(ANY, 1)]
#[case((LayerId(0), ExpertId(7)), 0)]
fn an_expert_with_tokens_is_the_one_that_is_transposed(
    #[case] idle: (LayerId, ExpertId),
    #[case] expert: usize,
) {
    let config = config();
    let Some(PortPlant::Checkpoint(edits)) = find("square_expert_transposed").unwrap().port else { panic!() };
    let edits = edits(&Facts { config: &config, idle });
    let name = format!("model.layers.0.mlp.experts.{expert}.down_proj.weight");
    let error = apply(&checkpoint(), &edits, tempfile::tempdir().unwrap().path()).unwrap_err();
    assert!(matches!(&error, Error::Tensor { name: found, .. } if *found == name), "{error}");
}
