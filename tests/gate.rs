//! `assay gate` from start to verdict: what it finds in an honest port and in broken ones, what it leaves
//! behind, that it repeats itself, and that a killed run goes on.

#[path = "support/gate.rs"]
mod small;
mod support;

use rstest::rstest;
use serde_json::{Value, json};
use small::{FAIL, INCOMPLETE, PASS, Run, Scratch, VOID, comparable, lean, list, small};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{TRAINED, assay};

/// The honest port through every check, with the record on stdout.
static WHOLE: LazyLock<(Scratch, Run)> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let run = scratch.gate(&small(), "whole", &["--json"]).ends_with(PASS);
    (scratch, run)
});

/// The honest port through the lean gate, with nothing but the verdict.
static LEAN: LazyLock<(Scratch, Run)> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let run = scratch.gate(&lean(), "lean", &["--quiet"]).ends_with(PASS);
    (scratch, run)
});

#[test]
fn the_honest_port_passes_every_check_on_rows_that_were_compared() {
    let record = WHOLE.1.record();
    assert_eq!(record["verdict"], "PASS");
    assert_eq!(record["reasons"], json!([]));
    for (check, applied) in small()["checks"].as_object().unwrap() {
        for leg in applied["legs"].as_object().unwrap().keys() {
            let of_leg = |finding: &&Value| finding["check"] == **check && finding["leg"] == **leg;
            let found: Vec<&Value> = list(&record, "findings").iter().filter(of_leg).collect();
            assert_eq!(found.len(), 1, "{check} {leg}");
            assert_eq!(found[0]["outcome"], "pass", "{check} {leg}");
            assert!(found[0]["rows"].as_u64().unwrap() > 0, "{check} {leg}");
        }
    }
}

#[test]
fn every_planted_bug_is_caught_by_a_number_and_none_by_an_error() {
    let record = WHOLE.1.record();
    let gate = small();
    let mut wanted: Vec<(&str, &str, &str)> = Vec::new();
    for (check, applied) in gate["checks"].as_object().unwrap() {
        for (bug, legs) in applied["controls"].as_object().unwrap() {
            wanted
                .extend(legs.as_array().unwrap().iter().map(|leg| (&**bug, &**check, leg.as_str().unwrap())));
        }
    }
    let mut caught: Vec<(&str, &str, &str)> = Vec::new();
    for control in list(&record, "controls") {
        assert_eq!(control["caught"], true, "{control}");
        for leg in list(control, "legs") {
            let words = |key: &str| leg[key].as_str().unwrap();
            assert!(leg["value"].is_number() && leg["unmutated"].is_number(), "{leg}");
            assert!(!words("place").contains("not measured"), "{leg}");
            let bug = control["mutant"].as_str().unwrap();
            caught.push((bug, words("check"), words("leg")));
        }
    }
    wanted.sort_unstable();
    caught.sort_unstable();
    assert_eq!(caught, wanted);
}

#[test]
fn no_pass_of_the_reference_reads_more_than_the_checkpoint() {
    let record = WHOLE.1.record();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(TRAINED).join("model.safetensors");
    let size = fs::metadata(file).unwrap().len();
    let passes = list(&record, "bytes_read");
    assert!(passes.len() >= 2, "{passes:?}");
    for pass in passes {
        let bytes = pass["bytes"].as_u64().unwrap();
        assert!(bytes > size / 2 && bytes <= size, "{pass} of {size}");
    }
}

#[test]
fn the_folder_holds_the_record_a_row_per_layer_and_the_controls() {
    let run = &WHOLE.1;
    let table = run.read("layers.csv");
    // one set of ten layers under one head
    assert_eq!(table.lines().count(), 11, "{table}");
    for (layer, row) in table.lines().skip(1).enumerate() {
        assert!(row.starts_with(&format!("short,{layer},")), "{row}");
    }
    let controls: Value = serde_json::from_str(&run.read("controls.json")).unwrap();
    assert_eq!(controls, run.record()["controls"]);
    assert_eq!(fs::read_dir(run.folder.as_ref().unwrap()).unwrap().count(), 3);
}

#[test]
fn json_is_the_record_that_was_written_and_quiet_is_the_verdict_alone() {
    let printed: Value = serde_json::from_slice(&WHOLE.1.output.stdout).unwrap();
    assert_eq!(printed, WHOLE.1.record());
    assert_eq!(String::from_utf8_lossy(&LEAN.1.output.stdout), "PASS\n");
    assert_eq!(String::from_utf8_lossy(&LEAN.1.output.stderr), "");
}

/// A bug in the judged port fails in its place, and nowhere it cannot reach. One in attention reaches the
/// router of its own layer, whose logits then differ but are still obeyed.
#[rstest]
#[case::weights("renorm_topk", &["router.weights median", "layer.branch moe.median"],
    &["layer.branch attn", "router.selection", "router.logits"])]
#[case::window("window_one_short", &["layer.branch attn.max.past_window"],
    &["router.selection flips", "router.logits logits_in_bf16"])]
#[case::selection("sigmoid_bias_select", &["router.selection flips.f32", "router.selection sets"],
    &["layer.branch attn", "router.weights", "router.logits"])]
#[case::logits("bf16_router_logits", &["router.logits sigma", "router.logits logits_in_bf16.f32"],
    &["layer.branch attn"])]
fn a_broken_port_fails_at_its_own_check(#[case] bug: &str, #[case] fires: &[&str], #[case] clean: &[&str]) {
    let scratch = Scratch::new();
    let run = scratch.gate(&lean(), "out", &["--port-mutant", bug]).ends_with(FAIL);
    let record = run.record();
    assert_eq!(record["verdict"], "FAIL");
    assert_eq!(record["inputs"]["port_mutant"], bug);
    let name = |finding: &Value| {
        format!("{} {}", finding["check"].as_str().unwrap(), finding["leg"].as_str().unwrap())
    };
    let failed: Vec<String> =
        list(&record, "findings").iter().filter(|f| f["outcome"] == "fail").map(name).collect();
    for leg in fires {
        assert!(failed.iter().any(|failed| failed == leg), "no {leg} in {failed:?}");
    }
    for prefix in clean {
        assert!(!failed.iter().any(|failed| failed.starts_with(prefix)), "{prefix} in {failed:?}");
    }
    let shown = String::from_utf8_lossy(&run.output.stdout);
    assert!(shown.contains("FAIL") && shown.contains(fires[0].split(' ').next().unwrap()), "{shown}");
}

#[test]
fn a_control_whose_bug_is_not_planted_leaves_the_gate_incomplete() {
    let scratch = Scratch::new();
    let run = scratch.gate(&lean(), "out", &["--disable-control", "window_one_short"]).ends_with(INCOMPLETE);
    let record = run.record();
    assert_eq!(record["verdict"], "INCOMPLETE");
    let reasons = list(&record, "reasons");
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].as_str().unwrap().contains("window_one_short"), "{reasons:?}");
}

#[test]
fn an_empty_text_is_void_names_set_and_checks_and_writes_nothing() {
    let scratch = Scratch::new();
    let empty = format!("short={}", scratch.file("empty.txt", ""));
    let run = scratch.gate(&lean(), "out", &["--set", &empty]).ends_with(VOID);
    let error = String::from_utf8_lossy(&run.output.stderr);
    for word in ["`short`", "layer.branch", "router.selection", "VOID"] {
        assert!(error.contains(word), "no {word} in {error}");
    }
    assert!(run.output.stdout.is_empty());
    assert!(!Path::new(&scratch.path("out")).exists());
}

#[test]
fn a_text_shorter_than_the_window_is_void_past_the_window() {
    let scratch = Scratch::new();
    let text = format!("short={}", scratch.file("text.txt", "In the beginning God"));
    let run = scratch.gate(&lean(), "out", &["--set", &text]).ends_with(VOID);
    let record = run.record();
    assert_eq!(record["verdict"], "VOID");
    for finding in list(&record, "findings") {
        let past_window = finding["leg"].as_str().unwrap().ends_with("past_window");
        assert_eq!(finding["outcome"] == "void", past_window, "{finding}");
        assert_eq!(finding["rows"] == 0, past_window, "{finding}");
    }
    let reasons = record["reasons"].to_string();
    assert!(reasons.contains("layer.branch attn.max.past_window"), "{reasons}");
}

#[rstest]
#[case::of_every_check(small, &WHOLE, "1")]
#[case::of_a_few(lean, &LEAN, "2")]
fn another_run_and_other_threads_give_the_same_numbers(
    #[case] gate: fn() -> Value,
    #[case] first: &LazyLock<(Scratch, Run)>,
    #[case] threads: &str,
) {
    let scratch = Scratch::new();
    let again = scratch.gate(&gate(), "again", &["--threads", threads]).ends_with(PASS);
    assert_eq!(comparable(again.record()), comparable(first.1.record()));
    for file in ["layers.csv", "controls.json"] {
        assert_eq!(again.read(file), first.1.read(file), "{file}");
    }
}

/// Starts `assay` and ends it with SIGKILL once its record has been through that many phases.
fn kill_after(phases: usize, arguments: &[&str], find: impl Fn() -> Option<std::path::PathBuf>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments);
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < Duration::from_secs(120), "no {phases} phases");
        assert!(child.try_wait().unwrap().is_none(), "ended before {phases} phases");
        let text = find().and_then(|folder| fs::read_to_string(folder.join("record.json")).ok());
        // a record is whole at every moment, or not there yet
        let record: Option<Value> = text.map(|text| serde_json::from_str(&text).unwrap());
        if record.is_some_and(|record| list(&record["times"], "phases").len() >= phases) {
            break;
        }
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Resumes with files limited to one block, as on a disk that is full.
fn resume_without_room(arguments: &[&str]) -> Option<i32> {
    let mut shell = Command::new("sh");
    shell.current_dir(env!("CARGO_MANIFEST_DIR"));
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_assay")]);
    let output = shell.args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("assay: failed to "), "{error}");
    assert!(output.stdout.is_empty());
    output.status.code()
}

#[test]
fn a_run_killed_at_several_moments_and_out_of_room_goes_on_to_the_same_record() {
    let scratch = Scratch::new();
    let gate = scratch.file("lean.json", &lean().to_string());
    let out = scratch.path("out");
    let folder = || small::only_entry(Path::new(&out));
    let judged = ["gate", TRAINED, "--gate", &gate];
    kill_after(0, &[&judged[..], &["-o", &out]].concat(), folder);
    let run_folder = folder().unwrap();
    let resume = [&judged[..], &["--resume", run_folder.to_str().unwrap()]].concat();
    kill_after(2, &resume, folder);
    kill_after(4, &resume, folder);

    let before = fs::read(run_folder.join("record.json")).unwrap();
    let code = resume_without_room(&resume);
    assert!(code == Some(2) || code == Some(70), "{code:?}");
    assert_eq!(fs::read(run_folder.join("record.json")).unwrap(), before);

    let resumed = Run { output: assay(&resume), folder: Some(run_folder) }.ends_with(PASS);
    assert_eq!(comparable(resumed.record()), comparable(LEAN.1.record()));
    for file in ["layers.csv", "controls.json"] {
        assert_eq!(resumed.read(file), LEAN.1.read(file), "{file}");
    }
}
