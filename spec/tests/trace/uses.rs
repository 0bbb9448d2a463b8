//! Forcing from a trace, and refusing a trace of something else.

use super::file::{IDS, Parts};
use rstest::rstest;
use spec::{Case, Error, ExpertId, LayerId, TokenId, config_file};
use std::path::Path;

/// The least file with experts in both of two layers.
fn whole() -> Parts {
    let mut parts = Parts::least();
    parts.strings.insert("num_hidden_layers".into(), "2".into());
    parts.i32s("layers", &[2], &[0, 1]);
    parts
}

fn case(tokens: &[u32]) -> Case {
    Case::new("text", tokens.iter().copied().map(TokenId).collect()).unwrap()
}

#[test]
fn forced_choices_are_what_was_recorded_in_its_order() {
    let choices = whole().read().unwrap().choices().unwrap();
    assert_eq!([choices.tokens(), choices.layers(), choices.k()], [3, 2, 2]);
    let ids: Vec<i16> = choices.as_slice().iter().map(|id| i16::try_from(id.0).unwrap()).collect();
    assert_eq!(ids, IDS);
    assert_eq!(choices.at(1, LayerId(1)), [ExpertId(5), ExpertId(0)]);
}

#[test]
fn a_missing_row_cannot_be_forced() {
    let mut parts = whole();
    let mut ids = IDS;
    (ids[4], ids[5]) = (-1, -1);
    parts.ids(&ids);
    let refusal = parts.read().unwrap().choices().unwrap_err().to_string();
    assert!(refusal.contains("no route at token 1, layer 0"), "{refusal}");
}

#[test]
fn rows_for_a_part_of_the_tokens_cannot_be_forced() {
    let mut parts = whole();
    parts.i32s("tokens", &[4], &[7, 8, 9, 10]);
    let refusal = parts.read().unwrap().choices().unwrap_err().to_string();
    assert!(refusal.contains("a row for each of 4 tokens, found rows for 3"), "{refusal}");
}

#[test]
fn layers_without_routes_cannot_be_forced() {
    let refusal = Parts::least().read().unwrap().choices().unwrap_err().to_string();
    assert!(refusal.contains("routes for all 4 layers, found routes for layers [1, 3]"), "{refusal}");
}

#[rstest]
#[case::the_same(&[7, 8, 9], None)]
#[case::another_token(&[7, 6, 9], Some("id 6 at position 1 of 3"))]
#[case::a_longer_text(&[7, 8, 9, 10], Some("id 10 at position 3 of 4"))]
#[case::a_shorter_text(&[7, 8], Some("id 9 at position 2 of 3"))]
fn a_trace_is_of_its_own_tokens(#[case] tokens: &[u32], #[case] said: Option<&str>) {
    let checked = whole().read().unwrap().check_tokens(&case(tokens));
    match said {
        None => checked.unwrap(),
        Some(said) => {
            let refusal = checked.unwrap_err().to_string();
            assert!(refusal.contains(said) && refusal.contains("a trace of other tokens"), "{refusal}");
        }
    }
}

#[rstest]
#[case::the_same("aa", "bb", None)]
#[case::other_weights("ab", "bb", Some("whose weights_sha256 is ab"))]
#[case::another_config("aa", "bc", Some("whose config_sha256 is bc"))]
fn a_trace_is_of_its_own_checkpoint(#[case] weights: &str, #[case] config: &str, #[case] said: Option<&str>) {
    let mut parts = whole();
    parts.strings.insert("weights_sha256".into(), "aa".into());
    parts.strings.insert("config_sha256".into(), "bb".into());
    let checked = parts.read().unwrap().check_same_checkpoint(weights, config);
    assert_eq!(checked.is_ok(), said.is_none());
    if let (Err(error), Some(said)) = (checked, said) {
        assert!(error.to_string().contains(said), "{error}");
        assert!(error.to_string().contains("a trace of another checkpoint"), "{error}");
    }
}

#[test]
fn a_trace_without_hashes_is_of_no_known_checkpoint() {
    let refusal = whole().read().unwrap().check_same_checkpoint("aa", "bb").unwrap_err().to_string();
    assert!(refusal.contains("no such hash"), "{refusal}");
}

/// Two sliding layers of six experts, two per token.
const CONFIG: &str = r#"{
    "model_type": "kolibri1", "hidden_act": "silu", "hidden_size": 4, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 16, "rms_norm_eps": 1e-6,
    "sliding_window": 3, "layer_types": ["sliding_attention", "sliding_attention"], "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 2, "shared_expert_intermediate_size": 2,
    "rope_theta": 10000.0
}"#;

#[rstest]
#[case::the_same("\"k\"", true, whole())]
#[case::layers_with_experts_only("another number of layers", false, Parts::least())]
fn a_trace_is_of_its_own_layers(#[case] said: &str, #[case] sound: bool, #[case] parts: Parts) {
    let config = config_file::parse(Path::new("config.json"), CONFIG).unwrap();
    let checked = parts.read().unwrap().check_layers(&config);
    assert_eq!(checked.is_ok(), sound, "{checked:?}");
    if let Err(error) = checked {
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_trace_of_more_experts_is_refused() {
    let config = config_file::parse(Path::new("config.json"), CONFIG).unwrap();
    let mut parts = whole();
    parts.strings.insert("num_experts".into(), "7".into());
    let error: Error = parts.read().unwrap().check_layers(&config).unwrap_err();
    assert!(error.to_string().contains("2 layers of 7 experts, k 2"), "{error}");
}

#[test]
fn the_metadata_of_a_config_says_its_router() {
    let config = config_file::parse(Path::new("config.json"), CONFIG).unwrap();
    let meta = spec::trace::Meta::of("text", &config);
    let router = meta.router.unwrap();
    assert_eq!((&router["score"], &router["renormalise"]), (&"sigmoid".into(), &false.into()));
    assert_eq!((meta.num_experts, meta.k, meta.num_hidden_layers), (6, 2, 2));
}
