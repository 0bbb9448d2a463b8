//! The port against the reference on the trained checkpoint and on seeded ones: the promised bounds.
//!
//! The bounds are those of an honest f32 port on these shapes with room (an honest one measures about 1e-6 a
//! branch and 1e-12 nats); a wrong one is off by far more, and so is bf16, as the last test shows.

mod support;

use rstest::rstest;
use serde_json::Value;
use support::{TEXT, TRAINED, json, stdout};

const BRANCH_MEDIAN_MAX: f64 = 5e-6;
const BRANCH_ERROR_MAX: f64 = 1e-4;
const FORCED_KL_NATS_MEAN_MAX: f64 = 1e-8;

/// A seeded checkpoint in a temporary folder.
fn made(preset: &str, seed: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("checkpoint").to_str().unwrap().to_owned();
    stdout(&["make", preset, "--seed", seed, "-o", &dir]);
    (folder, dir)
}

/// What is outside the promised bounds in a comparison, and how many numbers were looked at.
fn outside(found: &Value) -> (Vec<String>, usize) {
    let mut findings = Vec::new();
    let mut looked_at = 0;
    let mut at_most = |what: String, value: &Value, limit: f64| {
        looked_at += 1;
        // a NaN is a string in the JSON, and no number
        if !value.as_f64().is_some_and(|value| value <= limit) {
            findings.push(format!("{what} is {value}, at most {limit:e}"));
        }
    };
    for layer in found["layers"].as_array().unwrap() {
        for branch in ["attn_branch", "moe_branch"] {
            let name = format!("layer {} {branch}", layer["layer"]);
            at_most(format!("{name} median"), &layer[branch]["p50"], BRANCH_MEDIAN_MAX);
            at_most(format!("{name} max"), &layer[branch]["max"], BRANCH_ERROR_MAX);
        }
        let sets = format!("layer {} sets at a gap beyond a tie", layer["layer"]);
        at_most(sets, &layer["disagreements"]["beyond_tie"], 0.0);
        at_most(format!("layer {} rows not forced", layer["layer"]), &layer["unforced_rows"], 0.0);
    }
    let forced = &found["forced"];
    at_most("mean forced KL".into(), &forced["kl_nats"]["mean"], FORCED_KL_NATS_MEAN_MAX);
    at_most("executed sets that differ".into(), &forced["routing"]["differing"], 0.0);
    let confident = &forced["confident_top1"];
    let changed = confident["of"].as_f64().unwrap() - confident["count"].as_f64().unwrap();
    at_most("confident top-1 changes".into(), &changed.into(), 0.0);
    (findings, looked_at)
}

/// Compares, checks the bounds, and that enough was compared for them to mean something.
fn check(arguments: &[&str], layers: usize, positions: u64) -> Value {
    let found = json(&[arguments, &["--json"]].concat());
    let (findings, looked_at) = outside(&found);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert_eq!(looked_at, 6 * layers + 3);
    assert_eq!(found["forced"]["kl_nats"]["count"], positions);
    assert_eq!(found["forced"]["routing"]["forced_rows"], found["forced"]["routing"]["rows"]);
    assert_eq!(found["free"]["routing"]["forced_rows"], 0);
    assert!(
        found["forced"]["confident_top1"]["of"].as_u64().unwrap() > positions / 20,
        "confident positions"
    );
    found
}

#[rstest]
#[case::chunks_of_128("128")]
#[case::one_chunk("4096")]
#[case::an_odd_chunk("37")]
fn the_port_agrees_on_the_trained_checkpoint(#[case] chunk: &str) {
    let text = ["--text", TEXT, "--sequences", "3", "--length", "331", "--chunk", chunk];
    check(&[&["compare", TRAINED][..], &text].concat(), 10, 993);
}

#[rstest]
#[case("pattern5", "0", "150")]
#[case("pattern5", "3", "647")]
#[case("real-layout", "28", "600")]
#[case::renormalised("real-layout", "29", "600")]
fn the_port_agrees_on_seeded_checkpoints(#[case] preset: &str, #[case] seed: &str, #[case] tokens: &str) {
    let (_folder, dir) = made(preset, seed);
    check(&["compare", &dir, "--random-tokens", tokens, "--length", tokens], 10, tokens.parse().unwrap());
}

#[test]
fn only_the_layers_asked_for_are_in_the_table() {
    let found = json(&["compare", TRAINED, "--text", TEXT, "--length", "50", "--layers", "3..=5", "--json"]);
    let layers: Vec<&Value> = found["layers"].as_array().unwrap().iter().map(|row| &row["layer"]).collect();
    assert_eq!(layers, [3, 4, 5]);
    let kinds: Vec<&Value> = found["layers"].as_array().unwrap().iter().map(|row| &row["kind"]).collect();
    assert_eq!(kinds, ["sliding", "full", "sliding"]);
}

#[rstest]
#[case("free", true)]
#[case("forced", false)]
fn only_the_end_to_end_run_asked_for_is_made(#[case] routing: &str, #[case] free: bool) {
    let text = ["--text", TEXT, "--length", "50", "--routing", routing, "--json"];
    let found = json(&[&["compare", TRAINED][..], &text].concat());
    assert_eq!((found["free"].is_object(), found["forced"].is_object()), (free, !free));
}

#[test]
fn the_bounds_tell_f32_from_bf16() {
    let text = ["--text", TEXT, "--length", "64", "--sequences", "1", "--json", "--precision", "bf16"];
    let (findings, _) = outside(&json(&[&["compare", TRAINED][..], &text].concat()));
    assert!(findings.iter().any(|f| f.starts_with("layer 0 attn_branch median")), "{findings:?}");
    assert!(findings.iter().any(|f| f.starts_with("layer 9 moe_branch median")), "{findings:?}");
    assert!(findings.iter().any(|f| f.starts_with("mean forced KL")), "{findings:?}");
}
