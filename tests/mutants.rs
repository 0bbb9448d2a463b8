//! `assay mutants` and `assay mutate`: the catalogue shown, run, and carried by a checkpoint.

mod support;

use rstest::rstest;
use serde_json::Value;
use std::collections::BTreeSet;
use support::{TRAINED, assay, json, refusal, stdout};

fn ids(rows: &Value) -> BTreeSet<&str> {
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[test]
fn the_list_has_every_bug_and_rewrite_and_of_a_stage_only_those_of_it() {
    let all = json(&["mutants", "list", "--json"]);
    for mutant in mutants::catalogue().chain(mutants::variants()) {
        assert!(ids(&all).contains(mutant.id), "{}", mutant.id);
    }
    let norms = json(&["mutants", "list", "--stage", "norm", "--json"]);
    assert!(norms.as_array().unwrap().iter().all(|row| row["stage"] == "norm"));
    assert!(ids(&norms).contains("one_plus_w_norm") && !ids(&norms).contains("renorm_topk"));
    let text = stdout(&["mutants", "list"]);
    assert!(text.contains("| rope_on_full "), "{text}");
}

#[test]
fn one_is_shown_with_who_met_it_what_sees_it_and_what_does_not() {
    let shown = stdout(&["mutants", "show", "window_one_short"]);
    let parts = ["mlx-lm#390", "A01", "more tokens than the window", "kolibri-tiny-kjv", "subtlety", "blind"];
    for words in parts {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    let fires = shown.lines().filter(|line| line.trim_start().starts_with("fires"));
    assert!(fires.into_iter().any(|line| line.contains("layer.branch")), "{shown}");
}

#[test]
fn a_few_rows_are_run_and_each_comes_out_as_it_should() {
    let only = "window_one_short,renorm_topk,layers_exchanged,experts_descending";
    let run = ["mutants", "run", TRAINED, "--only", only, "--tokens", "96", "--format", "json"];
    let matrix = json(&run);
    let sheet = &matrix["sheets"][0];
    assert_eq!(sheet["tokens"], 96);
    assert_eq!(sheet["failing"], serde_json::json!([]));
    let outcome = |id: &str, side: &str| {
        let rows = sheet["rows"].as_array().unwrap().iter();
        let row = rows.clone().find(|row| row["id"] == id && row["side"] == side);
        row.unwrap_or_else(|| panic!("{id} in {side}"))["outcome"].as_str().unwrap()
    };
    assert_eq!(outcome("window_one_short", "port"), "caught");
    assert_eq!(outcome("window_one_short", "reference"), "caught");
    assert_eq!(outcome("renorm_topk", "port"), "caught");
    assert_eq!(outcome("layers_exchanged", "checkpoint"), "caught");
    assert_eq!(outcome("experts_descending", "port"), "quiet");
}

#[test]
fn a_window_that_is_longer_than_the_text_is_not_exercised_and_no_failure() {
    let text = stdout(&["mutants", "run", TRAINED, "--only", "window_one_short", "--tokens", "24"]);
    assert!(text.contains("not exercised") && text.contains("more tokens than the window"), "{text}");
}

#[test]
fn the_committed_matrix_has_every_row_of_the_catalogue_and_none_is_missed() {
    let text = include_str!("../mutants/measured.json");
    let matrix: diff::matrix::Matrix = serde_json::from_str(text).unwrap();
    assert!(matrix.whole);
    assert_eq!(matrix.sheets[0].checkpoint.name, "kolibri-tiny-kjv");
    let overall = matrix.overall();
    for mutant in mutants::catalogue().chain(mutants::variants()) {
        let rows: Vec<_> = overall.iter().filter(|row| row.id == mutant.id).collect();
        let sides = usize::from(mutant.port.is_some()) + usize::from(mutant.reference().is_some());
        assert_eq!(rows.len(), sides, "{} was measured with another catalogue", mutant.id);
    }
    let failed: Vec<_> = overall.iter().filter(|row| row.outcome.is_failure()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(matrix.score().0, matrix.score().1);
}

#[rstest]
#[case::an_unknown_id(&["mutants", "show", "window_two_short"], "window_two_short")]
#[case::an_unknown_stage(&["mutants", "list", "--stage", "kitchen"], "embedding")]
#[case::an_unknown_row(&["mutants", "run", TRAINED, "--only", "renorm_topk,nothing"], "`nothing`")]
#[case::no_checkpoint(&["mutants", "run", "fixtures/texts"], "config.json")]
#[case::of_a_step(&["mutate", TRAINED, "--mutant", "renorm_topk", "-o", "/nowhere"], "layers_exchanged")]
#[case::nothing_to_break(&["mutate", TRAINED, "--mutant", "rope_base_10000", "-o", "/no"], "than 10000")]
#[case::an_unknown_bug(&["mutate", TRAINED, "--mutant", "nothing", "-o", "/nowhere"], "nothing")]
#[case::no_folder(&["mutate", TRAINED, "--mutant", "layers_exchanged", "-o", "/no/where"], "/no")]
fn bad_input_is_refused_by_name(#[case] arguments: &[&str], #[case] words: &str) {
    let line = refusal(arguments);
    assert!(line.contains(words), "{line}");
}

#[test]
fn a_mutated_checkpoint_loads_and_differs_where_the_bug_is() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("exchanged");
    let target = target.to_str().unwrap();
    stdout(&["mutate", TRAINED, "--mutant", "layers_exchanged", "-o", target]);
    let sha = |checkpoint: &str| json(&["inspect", checkpoint, "--json"])["scan"]["weights_sha256"].clone();
    assert!(sha(target).is_string() && sha(target) != sha(TRAINED));
    assert!(refusal(&["mutate", TRAINED, "--mutant", "layers_exchanged", "-o", target]).contains("free"));
}

#[test]
fn a_mutated_checkpoint_without_a_tensor_is_refused_by_a_census() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("missing");
    let target = target.to_str().unwrap();
    stdout(&["mutate", TRAINED, "--mutant", "missing_tensor", "-o", target]);
    assert_eq!(assay(&["inspect", target]).status.code(), Some(2));
}
