//! Gate files: the committed ones are read, a damaged one is refused by name.

use crate::gates::{RANDOM, TRAINED};
use diff::gate::limits::Gate;
use rstest::rstest;
use serde_json::{Value, json};
use std::path::Path;

/// The bugs that a gate names.
fn named(gate: &str) -> Vec<String> {
    let gate: Value = serde_json::from_str(gate).unwrap();
    let checks = gate["checks"].as_object().unwrap().values();
    checks.flat_map(|check| check["controls"].as_object().unwrap().keys().cloned()).collect()
}

fn refusal(text: &str) -> String {
    Gate::parse(text, Path::new("gates/edited.json"), &named(TRAINED)).unwrap_err().to_string()
}

#[rstest]
#[case::trained(TRAINED, "trained", 27)]
#[case::random(RANDOM, "random", 25)]
fn the_committed_gates_apply_what_can_be_measured(
    #[case] text: &str,
    #[case] name: &str,
    #[case] checks: usize,
) {
    let gate = Gate::parse(text, Path::new("gates/committed.json"), &named(text)).unwrap();
    assert_eq!((gate.name.as_str(), gate.checks.len()), (name, checks));
    // docs/gate.md
    assert_eq!(gate.limit("layer.head", "error").unwrap().value, 5e-6);
    assert_eq!(gate.limit("forced.bf16", "mean").unwrap().times_calibrator, Some(9.0));
}

/// A leg of a check, as JSON.
fn leg<'a>(gate: &'a mut Value, check: &str, leg: &str) -> &'a mut Value {
    &mut gate["checks"][check]["legs"][leg]
}

fn without(value: &mut Value, key: &str) {
    assert!(value.as_object_mut().unwrap().remove(key).is_some());
}

#[rstest]
#[case::unknown_key(|g: &mut Value| g["extra"] = 1.into(), &["extra"])]
#[case::unknown_key_of_a_leg(|g: &mut Value| leg(g, "layer.head", "error")["valeu"] = 1.into(), &["valeu"])]
#[case::no_why(|g: &mut Value| without(leg(g, "layer.head", "error"), "why"), &["why"])]
#[case::empty_why(|g: &mut Value| leg(g, "layer.head", "error")["why"] = " ".into(), &["why", "error",
    "layer.head"])]
#[case::empty_calibrated_by(|g: &mut Value| leg(g, "layer.head", "error")["calibrated_by"] = "".into(),
    &["calibrated_by", "error", "layer.head"])]
#[case::missing_leg(|g: &mut Value| without(&mut g["checks"]["forced.kl"]["legs"], "growth"), &["growth",
    "forced.kl"])]
#[case::unknown_leg(|g: &mut Value| { let same = leg(g, "forced.kl", "mean").clone(); *leg(g, "forced.kl",
    "mode") = same },
    &["mode", "forced.kl"])]
#[case::unknown_check(|g: &mut Value| g["not_applicable"]["forced.luck"] = "no".into(), &["forced.luck"])]
#[case::both(|g: &mut Value| g["not_applicable"]["forced.kl"] = "no".into(), &["forced.kl",
    "reason against it"])]
#[case::neither(|g: &mut Value| without(&mut g["checks"], "forced.kl"), &["forced.kl", "neither"])]
#[case::empty_reason(|g: &mut Value| { without(&mut g["checks"], "kernel.gather");
    g["not_applicable"]["kernel.gather"] = "".into() }, &["kernel.gather", "an empty reason"])]
#[case::unknown_bug(|g: &mut Value| g["checks"]["forced.kl"]["controls"]["gremlin"] = json!(["mean"]),
    &["gremlin", "forced.kl"])]
#[case::bug_on_unknown_leg(
    |g: &mut Value| g["checks"]["forced.kl"]["controls"]["renorm_topk"] = json!(["mode"]),
    &["mode", "renorm_topk", "forced.kl"])]
#[case::bug_on_no_leg(|g: &mut Value| g["checks"]["forced.kl"]["controls"]["renorm_topk"] = json!([]),
    &["[]", "renorm_topk", "forced.kl"])]
#[case::no_controls(|g: &mut Value| g["checks"]["forced.kl"]["controls"] = json!({}), &["planted bug",
    "forced.kl"])]
#[case::factor_of_zero(|g: &mut Value| leg(g, "forced.bf16", "mean")["times_calibrator"] = 0.into(),
    &["times_calibrator 0", "mean", "forced.bf16"])]
#[case::factor_below_zero(|g: &mut Value| leg(g, "forced.bf16", "mean")["times_calibrator"] = (-1).into(),
    &["times_calibrator -1", "mean", "forced.bf16"])]
#[case::a_word_for_a_number(|g: &mut Value| leg(g, "forced.bf16", "mean")["value"] = "NaN".into(), &["NaN"])]
#[case::null_for_a_number(|g: &mut Value| leg(g, "forced.bf16", "mean")["value"] = Value::Null, &["null"])]
#[case::other_schema(|g: &mut Value| g["schema"] = "assay-gate/2".into(), &["assay-gate/1", "assay-gate/2"])]
#[case::no_chunk(|g: &mut Value| g["chunk"] = 0.into(), &["`chunk`", "0"])]
#[case::no_control_tokens(|g: &mut Value| g["control_tokens"] = 0.into(), &["`control_tokens`", "0"])]
#[case::no_length(|g: &mut Value| g["sets"][1]["length"] = 0.into(), &["`length`", "0"])]
#[case::no_sequences(|g: &mut Value| g["sets"][0]["sequences"] = 0.into(), &["`sequences`", "0"])]
#[case::no_sets(|g: &mut Value| g["sets"] = json!([]), &["a name of its own", "0 sets"])]
#[case::two_sets_of_one_name(|g: &mut Value| g["sets"][1]["name"] = json!("short"),
    &["a name of its own", "2 sets with 1 names"])]
#[case::a_bound_turned_round(|g: &mut Value| leg(g, "layer.head", "error")["bound"] = json!("at_least"),
    &["layer.head", "AtMost"])]
#[case::a_leg_without_a_bug(|g: &mut Value| without(leg(g, "harness.forcing_exact", "bf16"), "no_control"),
    &["`bf16` of `harness.forcing_exact`", "neither"])]
#[case::both_a_bug_and_a_reason(|g: &mut Value| leg(g, "layer.head", "error")["no_control"] = json!("why"),
    &["`error` of `layer.head`", "both"])]
fn a_damaged_gate_is_refused_by_name(#[case] damage: fn(&mut Value), #[case] named: &[&str]) {
    let mut gate: Value = serde_json::from_str(TRAINED).unwrap();
    damage(&mut gate);
    let message = refusal(&gate.to_string());
    assert!(message.contains("gates/edited.json"), "{message}");
    named.iter().for_each(|word| assert!(message.contains(word), "no {word} in: {message}"));
}

#[rstest]
#[case::twice("\"chunk\": 128", "\"chunk\": 128, \"chunk\": 64", "key `chunk` twice")]
#[case::beyond_f64("\"value\": 5e-06", "\"value\": 1e999", "number out of range")]
#[case::nan("\"value\": 5e-06", "\"value\": NaN", "expected value")]
fn text_that_is_no_sound_json_is_refused(#[case] from: &str, #[case] to: &str, #[case] word: &str) {
    assert!(TRAINED.contains(from));
    let message = refusal(&TRAINED.replacen(from, to, 1));
    assert!(message.contains("gates/edited.json") && message.contains(word), "{message}");
}
