//! Cases, schedules, choices and output files.

use rstest::rstest;
use spec::{Case, Choices, Error, ExpertId, LayerId, Schedule, Site, TokenId, output};
use std::path::Path;

#[rstest]
#[case::one_call(10, None, 10, std::slice::from_ref(&(0..10)))]
#[case::a_last_short_call(4, None, 10, &[0..4, 4..8, 8..10])]
#[case::decode_after_a_prefill(4, Some(6), 8, &[0..4, 4..6, 6..7, 7..8])]
#[case::decode_from_the_start(4, Some(0), 2, &[0..1, 1..2])]
#[case::decode_past_the_end(4, Some(99), 5, &[0..4, 4..5])]
fn a_schedule_cuts_a_case_into_calls(
    #[case] prefill_chunk: usize,
    #[case] decode_from: Option<usize>,
    #[case] len: usize,
    #[case] calls: &[std::ops::Range<usize>],
) {
    assert_eq!(Schedule { decode_from, ..Schedule::chunks_of(prefill_chunk) }.calls(len), calls);
}

#[test]
fn an_empty_text_is_refused() {
    let error = Case::new("empty", vec![]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to run case `empty`: expected at least one token, found an empty text; give a text that is \
         not empty"
    );
}

#[test]
fn control_characters_of_a_file_are_escaped_in_messages() {
    let error = Error::Tensor {
        path: "a\nb".into(),
        name: "x\u{1b}[31m\r\u{2028}é".into(),
        expected: "\"quoted\" \\ words".into(),
        found: "two\nlines".into(),
        next: "go\ton".into(),
    };
    assert_eq!(
        error.to_string(),
        "failed to load tensor `x\\u{1b}[31m\\r\\u{2028}é` of a\\nb: expected \"quoted\" \\ words, found \
         two\\nlines; go\\ton"
    );
}

#[rstest]
#[case("")]
#[case("a/b")]
#[case(".hidden")]
fn a_name_that_cannot_name_a_file_is_refused(#[case] name: &str) {
    assert!(matches!(Case::new(name, vec![TokenId(0)]), Err(Error::Case { .. })));
}

fn config() -> spec::ModelConfig {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/kolibri-tiny-kjv");
    spec::config_file::read(&dir).unwrap()
}

/// Sound choices for the committed checkpoint: experts 0, 1, 2, 3 everywhere.
fn sound(tokens: usize) -> Choices {
    let mut choices = Choices::unset(tokens, 10, 4);
    for token in 0..tokens {
        (0..10).for_each(|layer| choices.set(token, LayerId(layer), &[0, 1, 2, 3].map(ExpertId)));
    }
    choices
}

#[test]
fn sound_choices_pass_and_keep_their_order() {
    let mut choices = sound(3);
    choices.set(1, LayerId(7), &[9, 3, 31, 0].map(ExpertId));
    choices.check("c", 3, &config()).unwrap();
    assert_eq!(choices.at(1, LayerId(7)), [9, 3, 31, 0].map(ExpertId));
    assert_eq!(choices.at(1, LayerId(6)), [0, 1, 2, 3].map(ExpertId));
    assert_eq!(choices.as_slice().len(), 120);
}

#[rstest]
#[case::repeated([5, 6, 5, 7], "5 twice at token 2, layer 9")]
#[case::out_of_range([0, 1, 2, 32], "32 at token 2, layer 9")]
#[case::never_set([0, 0, 0, 0], "0 twice at token 2, layer 9")]
fn choices_that_are_no_route_are_refused_with_their_place(#[case] row: [u16; 4], #[case] found: &str) {
    let mut choices = sound(3);
    choices.set(2, LayerId(9), &row.map(ExpertId));
    let error = choices.check("c", 3, &config()).unwrap_err();
    assert!(error.to_string().contains(found), "{error}");
}

#[test]
fn choices_of_another_length_are_refused() {
    let error = sound(3).check("c", 4, &config()).unwrap_err();
    assert!(error.to_string().contains("[4, 10, 4]") && error.to_string().contains("[3, 10, 4]"), "{error}");
}

#[test]
fn a_token_outside_the_vocabulary_is_refused_with_its_position() {
    let case = Case::new("c", vec![TokenId(255), TokenId(256)]).unwrap();
    let error = case.check_vocabulary(&config()).unwrap_err();
    assert!(error.to_string().contains("id 256 at position 1"), "{error}");
}

#[test]
fn a_file_that_fails_half_way_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("record.json");
    let fail = output::write_file(&path, |out| {
        out.write_all(b"half")?;
        Err(std::io::Error::other("no more room"))
    });
    assert!(fail.unwrap_err().to_string().contains("no more room"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    output::write_file(&path, |out| out.write_all(b"whole")).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
}

#[test]
fn a_folder_appears_only_when_it_is_finished_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    drop(output::NewFolder::create(&target).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let folder = output::NewFolder::create(&target).unwrap();
    std::fs::write(folder.path().join("a"), "a").unwrap();
    assert!(!target.exists());
    folder.finish().unwrap();
    assert_eq!(std::fs::read(target.join("a")).unwrap(), b"a");
    assert!(matches!(output::NewFolder::create(&target), Err(Error::Argument { .. })));
}

#[test]
fn a_hash_is_that_of_the_standard() {
    // FIPS 180-4, the one-block message "abc"
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(spec::hash::of_bytes(b"abc"), expected);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "abc").unwrap();
    let mut seen = 0;
    assert_eq!(spec::hash::of_file(file.path(), &mut |bytes| seen += bytes).unwrap(), expected);
    assert_eq!(seen, 3);
}

/// Sizes that differ from each other, so that no width passes for another.
const SIZES: &str = r#"{
    "model_type": "kolibri1", "hidden_act": "silu", "hidden_size": 11, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 19, "rms_norm_eps": 1e-6,
    "sliding_window": 3, "layer_types": ["sliding_attention"], "rope_theta": 10000.0, "num_experts": 7,
    "num_experts_per_tok": 3, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 13
}"#;

#[test]
fn every_site_has_its_place_its_name_and_its_width() {
    let config = spec::config_file::parse(Path::new("config.json"), SIZES).unwrap();
    let expected = [
        ("embedding", 11),
        ("attn_norm", 11),
        ("q", 24),
        ("k", 12),
        ("v", 12),
        ("q_norm", 24),
        ("k_norm", 12),
        ("q_rope", 24),
        ("k_rope", 12),
        ("attn_out", 24),
        ("o_proj", 11),
        ("attn_branch", 11),
        ("attn_residual", 11),
        ("moe_norm", 11),
        ("router_logits", 7),
        ("selection_scores", 7),
        ("choice", 3),
        ("shadow_choice", 3),
        ("topk_weights", 3),
        ("expert_out", 33),
        ("routed", 11),
        ("shared_gate", 13),
        ("shared_up", 13),
        ("shared_act", 13),
        ("shared", 11),
        ("moe_branch", 11),
        ("layer_out", 11),
        ("final_norm", 11),
        ("logits", 19),
    ];
    let found = Site::ALL.map(|site| (site.name(), site.width(&config)));
    assert_eq!(found, expected);
    assert!(Site::ALL.is_sorted());
    for site in Site::ALL {
        assert_eq!(Site::from_name(site.name()), Some(site));
        assert_eq!(serde_json::to_value(site).unwrap(), site.name());
    }
}
