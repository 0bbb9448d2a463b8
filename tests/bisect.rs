//! `assay bisect` on the trained checkpoint: what it says, what it leaves, and that it goes on.

mod support;

use rstest::rstest;
use serde_json::Value;
use std::path::Path;
use support::{TEXT, TRAINED, assay, json, refusal};

/// Output of a search, and its exit code.
fn bisect(folder: &Path, options: &[&str]) -> (String, Option<i32>) {
    let folder = folder.to_str().unwrap();
    let fixed = ["bisect", TRAINED, "--text", TEXT, "-o", folder];
    let output = assay(&[&fixed, options].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.is_empty(), "{error}");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

fn finding(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("finding.json")).unwrap()).unwrap()
}

/// The largest error of a branch that `compare` sees in one layer, with the command that was printed.
fn compared(printed: &str) -> f64 {
    let line = printed.lines().find(|line| line.trim_start().starts_with("assay compare")).unwrap();
    let mut arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
    arguments.push("--json");
    let layer = &json(&arguments)["layers"][0];
    let max = |branch: &str| layer[branch]["max"].as_f64().unwrap();
    max("attn_branch").max(max("moe_branch"))
}

#[test]
fn a_window_one_short_is_first_wrong_where_the_window_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let (printed, code) = bisect(folder.path(), &["--length", "96", "--port-mutant", "window_one_short"]);
    assert_eq!(code, Some(1));
    let sentence = printed.lines().next().unwrap();
    assert_eq!(
        sentence,
        "first wrong at layer 0 (sliding), site attn_out, position 32, all heads; from position 32 on, where \
         the window of 33 is full; in every sliding layer; the embedding agrees exactly"
    );
    // bytes 9 to 32 of the text
    assert!(printed.contains("Text up to position 32: `By faith Jacob, when he `"), "{printed}");
    // W tokens show it, W - 1 cannot
    let ids: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("case.json")).unwrap()).unwrap();
    assert_eq!(ids[0].as_array().unwrap().len(), 33);
    assert_eq!(finding(folder.path())["sentence"], sentence);
    assert!(compared(&printed) > 1e-3);
}

#[rstest]
#[case::chunks("rope_restart_per_chunk", &["--chunk", "36"], "from the second call on (position 36)", 37)]
#[case::first_rows("cache_one_slot_short", &["--chunk", "36"],
    "only the first row of each call, from position 36 on", 37)]
#[case::masks("mask_top_left", &["--chunk", "36"], "from the second call on (position 36)", 38)]
#[case::decode("decode_offset_frozen", &["--decode-from", "60"],
    "only in calls of one token, from the second on (position 61)", 2)]
#[case::wrap("cache_one_slot_short", &["--decode-from", "20"],
    "from position 32 on, only after the rotating cache of the window of 33 wraps", 33)]
#[case::full_layers("rope_on_full", &[], "from position 1 on", 2)]
#[case::growing("rope_bf16_frequencies", &[], "grows with position", 2)]
fn a_shrunk_case_shows_it_in_compare(
    #[case] bug: &str,
    #[case] fed: &[&str],
    #[case] pattern: &str,
    #[case] tokens_max: usize,
) {
    let folder = tempfile::tempdir().unwrap();
    let (printed, code) = bisect(folder.path(), &[&["--length", "96", "--port-mutant", bug], fed].concat());
    assert_eq!(code, Some(1));
    let sentence = printed.lines().next().unwrap();
    assert!(sentence.contains(pattern), "{sentence}");
    let finding = finding(folder.path());
    let shrunk = &finding["shrunk"];
    assert_eq!(shrunk["confirmed"], true);
    let tokens = shrunk["end"].as_u64().unwrap() - shrunk["start"].as_u64().unwrap();
    assert!(tokens as usize <= tokens_max, "{tokens} tokens");
    let runs = &finding["runs"];
    assert!(runs["probes"].as_u64() <= runs["probes_max"].as_u64(), "{runs}");
    // an honest port reaches 2e-6
    let error = compared(&printed);
    assert!(error > 2e-5, "{error:e}");
}

#[rstest]
#[case::in_chunks(&["--length", "128", "--chunk", "36"])]
#[case::token_by_token(&["--length", "64", "--decode-from", "24"])]
#[case::one_token(&["--length", "1"])]
fn of_a_correct_port_there_is_nothing_to_find(#[case] options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (printed, code) = bisect(folder.path(), options);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.starts_with("nothing to find: every part agrees to "), "{printed}");
    assert!(!folder.path().join("case.json").exists());
    // half of every bound is left
    for part in finding(folder.path())["parts"].as_array().unwrap() {
        assert!(part["share_of_bound"].as_f64().unwrap() <= 0.5, "{part}");
    }
}

/// Angles rounded otherwise are further off the later the position; they are right all the same.
#[test]
fn angles_rounded_otherwise_are_no_defect() {
    let folder = tempfile::tempdir().unwrap();
    let (printed, code) =
        bisect(folder.path(), &["--length", "1024", "--port-mutant", "rope_angles_divided"]);
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn positions_in_bf16_are_first_wrong_at_the_first_that_bf16_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (printed, _) = bisect(folder.path(), &["--length", "300", "--port-mutant", "rope_bf16_positions"]);
    let sentence = printed.lines().next().unwrap();
    assert!(sentence.contains("layer 0 (sliding), sites q_rope and k_rope, position 257,"), "{sentence}");
}

#[test]
fn a_search_goes_on_from_its_log_and_ends_alike() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--length", "64", "--port-mutant", "window_one_short", "--json"];
    let (whole, _) = bisect(folder.path(), &options);
    let log = folder.path().join("replay.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() > 4, "{text}");
    // stopped in the middle of its third step
    let half = &lines[3][..lines[3].len() / 2];
    std::fs::write(&log, format!("{}\n{half}", lines[..3].join("\n"))).unwrap();
    let (again, code) = bisect(folder.path(), &options);
    assert_eq!((again, code), (whole, Some(1)));
    let resumed = std::fs::read_to_string(&log).unwrap();
    assert_eq!(resumed.lines().take(3).collect::<Vec<_>>(), lines[..3]);
    assert_eq!(resumed.lines().count(), lines.len());

    let other = ["bisect", TRAINED, "--text", TEXT, "--length", "64", "-o", folder.path().to_str().unwrap()];
    let message = refusal(&other);
    assert!(message.contains("one of another planted bugs"), "{message}");
}

#[test]
fn a_shrunk_case_is_a_set_of_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("case.json");
    std::fs::write(&case, "[[66, 121, 32, 102, 97, 105, 116, 104]]").unwrap();
    let (set, out) = (format!("short={}", case.display()), folder.path().join("gate"));
    let options = ["gate", TRAINED, "--set", &set, "-o", out.to_str().unwrap(), "--json"];
    let record: Value = serde_json::from_slice(&assay(&options).stdout).unwrap();
    let cases = &record["inputs"]["sets"][0]["cases"];
    assert_eq!(cases.as_array().unwrap().len(), 1);
    assert_eq!(cases[0]["tokens"], 8);
}

#[rstest]
#[case::bf16(&["--precision", "bf16"], "bisect in f32")]
#[case::two_sequences(&["--sequences", "2"], "one sequence to search")]
fn what_cannot_be_searched_is_refused(#[case] options: &[&str], #[case] said: &str) {
    let folder = tempfile::tempdir().unwrap();
    let fixed = ["bisect", TRAINED, "--text", TEXT, "-o", folder.path().to_str().unwrap()];
    let message = refusal(&[&fixed, options].concat());
    assert!(message.contains(said), "{message}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn help_says_the_exit_codes() {
    let help = support::stdout(&["bisect", "--help"]);
    assert!(help.contains("0 nothing to find, 1 something was found"), "{help}");
}
