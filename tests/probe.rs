//! `assay probe`: the port's kernels by themselves, honest and with each planted bug of a kernel.

#[allow(dead_code, reason = "the verbs use the rest of it")]
#[path = "../src/bench.rs"]
mod bench;
mod support;

use diff::probe::{Extent, Finding, Kind};
use mutants::{PortPlant, PortStep};
use rstest::rstest;
use serde_json::Value;
use spec::config_file;
use std::collections::BTreeSet;
use support::{TRAINED, assay, refusal, stdout};

/// The short extent at the shapes of the trained checkpoint.
fn probed(mutant: Option<&str>) -> Vec<Finding> {
    let config = config_file::read(&fixtures::data("kolibri-tiny-kjv")).unwrap();
    let kernels = bench::kernels(&config, mutant).unwrap();
    diff::probe::run(&*kernels, &config, Extent::Short, &mut ()).unwrap()
}

fn bad(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|found| !found.is_fine()).collect()
}

/// Kernel, what, shape and verdict of a table; no number that was measured.
fn words(table: &str) -> String {
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let cells = |row: &str| {
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        [&cells[1..5], &cells[10..11]].concat().join(" | ") + "\n"
    };
    rows.map(cells).collect()
}

#[test]
fn the_table_of_the_trained_checkpoint_says_what_was_called_and_that_metal_was_not() {
    let text = stdout(&["probe", TRAINED]);
    insta::assert_snapshot!("probe", words(&text));
    for said in [
        "MLX 0.32.2",
        std::env::consts::OS,
        "H 96, I 32, E 32, k 4, heads 8:2, D 16",
        "the query that sees nothing gets the average of all values",
        "63 shapes, none bad.",
    ] {
        assert!(text.contains(said), "{said} in\n{text}");
    }
    let on_cpu = text.contains(", cpu, ");
    assert_eq!(on_cpu, text.contains("Metal was not run"), "{text}");
}

#[test]
fn with_a_bug_the_exit_code_is_1_and_json_says_where() {
    let output = assay(&["probe", TRAINED, "--port-mutant", "decode_beyond_1024", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["port_mutant"], &report["port"]["side"]),
        (&"decode_beyond_1024".into(), &"port".into())
    );
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 63);
    let shapes = findings.iter().filter(|found| found["bad_rows"] != 0).map(|found| &found["shape"]);
    let beyond = [1025, 2048, 2049].map(|keys| Value::from(format!("heads 8:2, D 16, T 1, S {keys}")));
    assert!(shapes.eq(&beyond), "{findings:#?}");
}

#[test]
fn honest_kernels_are_fine_at_the_shapes_of_the_gate() {
    let findings = probed(None);
    assert!(bad(&findings).is_empty(), "{:#?}", bad(&findings));
}

/// What of the shapes is bad, and nothing of another kind.
#[rstest]
#[case::stale("gather_rows_beyond_32768_stale", Kind::Gather, &["rows about 32,768"])]
#[case::terms("gather_last_k_terms", Kind::Gather, &[
    "K not a multiple of 64", "all rows to one expert", "every second expert", "every second row",
    "experts by columns", "experts of 0 to 3 rows", "one row for all", "rows about 32,768",
    "rows with a unit axis", "up, one token", "up, prefill"])]
#[case::strides("gather_strided_expert", Kind::Gather, &[
    "every second expert", "every second row", "experts by columns"])]
#[case::keys("decode_beyond_1024", Kind::Attention, &["one query"])]
#[case::first_row("rope_one_token_first_row", Kind::Rotation, &["each at its own position"])]
#[case::pairs("rope_traditional", Kind::Rotation, &["each at its own position", "one position for all"])]
fn each_bug_of_a_kernel_is_bad_where_it_acts(
    #[case] id: &str,
    #[case] kind: Kind,
    #[case] expected: &[&str],
) {
    let findings = probed(Some(id));
    let bad = bad(&findings);
    assert!(bad.iter().all(|found| found.kind == kind), "{bad:#?}");
    let what: BTreeSet<&str> = bad.iter().map(|found| found.what.as_str()).collect();
    assert_eq!(what.into_iter().collect::<Vec<_>>(), expected);
}

/// Experts of few rows or none are in other shapes too, as they were drawn.
#[rstest]
// of 16 experts 1, 5, 10 and 13 follow one without rows
#[case::behind_none("idle_expert_junk", 4)]
// two and three rows: 1 + 2 + 2 + 1 + 1 + 2 that are not the first
#[case::of_few("few_token_expert_wrong", 9)]
fn each_bug_of_few_rows_is_bad_in_as_many_as_it_spoils(#[case] id: &str, #[case] rows: usize) {
    let findings = probed(Some(id));
    assert!(bad(&findings).iter().all(|found| found.kind == Kind::Gather));
    let few: Vec<usize> = findings
        .iter()
        .filter(|found| found.what == "experts of 0 to 3 rows")
        .map(|found| found.bad_rows)
        .collect();
    assert_eq!(few, [rows; 2]);
}

#[test]
fn correct_rewrites_of_a_kernel_are_fine() {
    let of_kernels = [PortStep::ExpertProduct, PortStep::Rotate, PortStep::Attend];
    let mut count = 0;
    for rewrite in mutants::variants() {
        let Some(PortPlant::Steps { of, .. }) = rewrite.port else { continue };
        if of.iter().any(|step| of_kernels.contains(step)) {
            count += 1;
            let findings = probed(Some(rewrite.id));
            assert!(bad(&findings).is_empty(), "{}: {:#?}", rewrite.id, bad(&findings));
        }
    }
    assert!(count > 5, "{count}");
}

#[rstest]
#[case::no_folder(&["probe", "fixtures/nothing"], "fixtures/nothing")]
#[case::no_checkpoint(&["probe", "fixtures/texts"], "config.json")]
#[case::an_unknown_bug(&["probe", TRAINED, "--port-mutant", "gather_backwards"], "gather_backwards")]
#[case::of_a_checkpoint(&["probe", TRAINED, "--port-mutant", "missing_tensor"], "in a step of the port")]
#[case::of_the_reference(&["probe", TRAINED, "--port-mutant", "reference_tf32"], "the port can have")]
fn bad_input_is_refused_by_name(#[case] arguments: &[&str], #[case] words: &str) {
    let line = refusal(arguments);
    assert!(line.contains(words), "{line}");
}
