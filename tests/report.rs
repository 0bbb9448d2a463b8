//! `assay report`: a record as Markdown, CSV, JSON and HTML, and what it refuses.

#[path = "support/gate.rs"]
mod small;
mod support;

use rstest::rstest;
use serde_json::{Value, json};
use small::{PASS, Run, Scratch, lean, list};
use std::fs;
use std::sync::LazyLock;
use support::{refusal, stdout};

/// A record to report on.
static RUN: LazyLock<(Scratch, Run)> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let run = scratch.gate(&lean(), "out", &["--quiet"]).ends_with(PASS);
    (scratch, run)
});

fn folder() -> &'static str {
    RUN.1.folder.as_ref().unwrap().to_str().unwrap()
}

fn report(format: &str) -> String {
    stdout(&["report", folder(), "--format", format])
}

#[test]
fn markdown_shows_the_verdict_every_finding_and_every_planted_bug() {
    let shown = stdout(&["report", folder()]);
    assert_eq!(shown, report("md"));
    let record = RUN.1.record();
    assert!(shown.starts_with('#') && shown.contains("PASS"), "{shown}");
    for finding in list(&record, "findings") {
        let (check, leg) = (finding["check"].as_str().unwrap(), finding["leg"].as_str().unwrap());
        let row =
            shown.lines().find(|line| line.starts_with('|') && line.contains(check) && line.contains(leg));
        assert!(row.is_some(), "no row of {check} {leg}");
    }
    for control in list(&record, "controls") {
        let bug = control["mutant"].as_str().unwrap();
        assert!(shown.lines().any(|line| line.starts_with('|') && line.contains(bug)), "no row of {bug}");
    }
    for skipped in list(&record, "not_applicable") {
        assert!(shown.contains(skipped["check"].as_str().unwrap()), "{skipped}");
    }
}

#[test]
fn csv_is_the_table_of_layers_that_the_run_wrote() {
    assert_eq!(report("csv"), RUN.1.read("layers.csv"));
}

#[test]
fn json_is_the_record_and_its_file_serves_as_well_as_its_folder() {
    let from_folder: Value = serde_json::from_str(&report("json")).unwrap();
    assert_eq!(from_folder, RUN.1.record());
    let file = format!("{}/record.json", folder());
    assert_eq!(stdout(&["report", &file, "--format", "json"]), report("json"));
}

#[test]
fn html_is_one_page_with_plots_that_fetches_nothing() {
    let page = report("html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("<svg") && page.contains("PASS"));
    let lower = page.to_lowercase();
    // a namespace is a name, not an address that is fetched
    let names = lower.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for fetch in ["http://", "https://", "<script", "<link", "<iframe", "@import", "url(", "src=\"/"] {
        assert!(!names.contains(fetch), "{fetch} in the page");
    }
    for finding in list(&RUN.1.record(), "findings") {
        assert!(page.contains(finding["leg"].as_str().unwrap()), "{finding}");
    }
}

#[test]
fn a_report_goes_into_a_new_file_and_not_over_an_old_one() {
    let scratch = Scratch::new();
    let file = scratch.path("report.md");
    let write = ["report", folder(), "-o", &file];
    stdout(&write);
    assert_eq!(fs::read_to_string(&file).unwrap(), report("md"));
    fs::write(&file, "mine").unwrap();
    let message = refusal(&write);
    assert!(message.contains("report.md") && message.contains("free"), "{message}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let message = refusal(&["report", folder(), "-o", &scratch.path("no/such/folder.md")]);
    assert!(message.contains("no/such"), "{message}");
}

#[rstest]
#[case::of_a_newer_schema(|record: &mut Value| record["schema"] = json!("assay-record/999"),
    &["assay-record/999", "newer"])]
#[case::without_a_schema(|record: &mut Value| drop(record.as_object_mut().unwrap().remove("schema")),
    &["no schema"])]
#[case::without_findings(|record: &mut Value| drop(record.as_object_mut().unwrap().remove("findings")),
    &["findings"])]
#[case::with_a_key_of_somebody_else(|record: &mut Value| record["nonsense"] = json!(1), &["nonsense"])]
#[case::with_a_value_of_another_type(|record: &mut Value| record["sets"] = json!(3), &["a record"])]
fn a_record_that_cannot_be_read_is_refused(#[case] edit: fn(&mut Value), #[case] words: &[&str]) {
    let scratch = Scratch::new();
    let mut record = RUN.1.record();
    edit(&mut record);
    let message = refusal(&["report", &scratch.file("record.json", &record.to_string())]);
    for word in [&["record.json"][..], words].concat() {
        assert!(message.contains(word), "no {word} in {message}");
    }
}

#[rstest]
#[case::no_json("plain words")]
#[case::an_empty_file("")]
#[case::a_list("[1, 2]")]
#[case::half_a_record("{\"schema\": \"assay-record/1\", \"name\":")]
fn what_is_no_record_is_refused(#[case] content: &str) {
    let scratch = Scratch::new();
    let message = refusal(&["report", &scratch.file("record.json", content)]);
    assert!(message.contains("record.json") && message.contains("a record of a gate run"), "{message}");
}

#[test]
fn a_folder_without_a_record_and_a_missing_path_are_refused() {
    let scratch = Scratch::new();
    let message = refusal(&["report", &scratch.path("")]);
    assert!(message.contains("record.json"), "{message}");
    let message = refusal(&["report", "no-such-run"]);
    assert!(message.contains("no-such-run"), "{message}");
}
