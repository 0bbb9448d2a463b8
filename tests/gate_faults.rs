//! What `assay gate` and `assay freeze` refuse, and that a refusal leaves nothing behind and spoils nothing.

#[path = "support/gate.rs"]
mod small;
mod support;

use rstest::rstest;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use small::{PASS, Run, Scratch, lean, list, small};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use support::{Checkpoint, TEXT, TRAINED, assay, refusal};

/// A gate that is refused: exit 2, all the words in one line, no folder.
fn refused(gate: &str, more: &[&str], words: &[&str]) {
    let scratch = Scratch::new();
    let file = scratch.file("small.json", gate);
    let out = scratch.path("out");
    let message = refusal(&[&["gate", TRAINED, "--gate", &file, "-o", &out], more].concat());
    for word in words {
        assert!(message.contains(word), "no {word} in {message}");
    }
    assert!(!Path::new(&out).exists());
}

#[rstest]
#[case::bug_in_the_port(&["--port-mutant", "nonsense"], &["nonsense", "renorm_topk", "window_one_short"])]
#[case::of_the_reference(&["--port-mutant", "reference_tf32"], &["reference_tf32", "the port can have"])]
#[case::control(&["--disable-control", "nonsense"], &["--disable-control", "nonsense"])]
#[case::control_that_this_gate_does_not_bind(&["--disable-control", "shared_half"], &["shared_half"])]
#[case::set(&["--set", "nonsense=README.md"], &["nonsense", "short"])]
#[case::text(&["--set", "short=no-such-file.txt"], &["no-such-file.txt"])]
#[case::lock(&["--lock", "no-such.lock"], &["no-such.lock", "assay freeze"])]
#[case::name(&["--name", "a/b"], &["--name", "a/b"])]
fn what_is_not_there_is_refused_by_name(#[case] more: &[&str], #[case] words: &[&str]) {
    refused(&lean().to_string(), more, words);
}

#[rstest]
#[case::no_file("short")]
#[case::no_name("=README.md")]
#[case::nothing_after("short=")]
fn a_set_that_is_not_name_and_file_is_a_usage_error(#[case] typed: &str) {
    let output = assay(&["gate", TRAINED, "--set", typed]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("short=text.txt"), "{error}");
}

#[rstest]
#[case::an_unknown_bug(
    |gate: &mut Value| gate["checks"]["router.weights"]["controls"]["nonsense"] = json!(["median"]),
    &["router.weights", "nonsense"])]
#[case::a_bug_on_an_unknown_leg(
    |gate: &mut Value| gate["checks"]["router.weights"]["controls"]["renorm_topk"] = json!(["mean"]),
    &["router.weights", "renorm_topk", "mean"])]
#[case::no_bug(
    |gate: &mut Value| gate["checks"]["router.weights"]["controls"] = json!({}), &["router.weights"])]
#[case::an_unknown_check(|gate: &mut Value| {
    gate["checks"]["nonsense.check"] = gate["checks"]["router.weights"].clone();
}, &["nonsense.check"])]
#[case::a_check_left_out(|gate: &mut Value| {
    gate["checks"].as_object_mut().unwrap().remove("router.weights");
}, &["router.weights", "not applicable"])]
#[case::a_check_that_applies_and_does_not(
    |gate: &mut Value| gate["not_applicable"]["router.weights"] = json!("a reason"), &["router.weights"])]
#[case::no_reason_why_a_check_does_not_apply(
    |gate: &mut Value| gate["not_applicable"]["forced.kl"] = json!(" "), &["forced.kl"])]
#[case::an_unknown_leg(|gate: &mut Value| {
    let legs = &mut gate["checks"]["router.weights"]["legs"];
    legs["nonsense"] = legs["median"].clone();
}, &["router.weights", "nonsense"])]
#[case::a_leg_left_out(|gate: &mut Value| {
    gate["checks"]["router.weights"]["legs"].as_object_mut().unwrap().remove("max");
}, &["router.weights", "max"])]
#[case::a_limit_without_why(|gate: &mut Value| {
    gate["checks"]["router.weights"]["legs"]["max"].as_object_mut().unwrap().remove("why");
}, &["why"])]
#[case::a_limit_with_an_empty_why(
    |gate: &mut Value| gate["checks"]["router.weights"]["legs"]["max"]["why"] = json!(""),
    &["router.weights", "max", "why"])]
#[case::a_limit_calibrated_by_nothing(
    |gate: &mut Value| gate["checks"]["router.weights"]["legs"]["max"]["calibrated_by"] = json!(" "),
    &["router.weights", "max", "calibrated_by"])]
#[case::a_misspelt_key(|gate: &mut Value| gate["chunks"] = json!(32), &["chunks"])]
#[case::a_chunk_of_none(|gate: &mut Value| gate["chunk"] = json!(0), &["chunk"])]
#[case::no_sets(|gate: &mut Value| gate["sets"] = json!([]), &["set"])]
#[case::a_newer_schema(|gate: &mut Value| gate["schema"] = json!("assay-gate/999"), &["assay-gate/999"])]
fn a_gate_file_is_refused_with(#[case] edit: fn(&mut Value), #[case] words: &[&str]) {
    let mut gate = lean();
    edit(&mut gate);
    refused(&gate.to_string(), &[], &[&["small.json"], words].concat());
}

#[test]
fn a_key_given_twice_a_gate_file_cut_short_and_none_are_refused() {
    let text = lean().to_string();
    let twice = text.replacen("\"chunk\":32", "\"chunk\":32,\"chunk\":64", 1);
    assert_ne!(twice, text);
    refused(&twice, &[], &["small.json", "chunk"]);
    refused(&text[..text.len() / 2], &[], &["small.json", "JSON"]);
    let message = refusal(&["gate", TRAINED, "--gate", "no-such-gate.json"]);
    assert!(message.contains("no-such-gate.json") && message.contains("`trained`"), "{message}");
}

#[test]
fn golden_outputs_that_are_missing_or_of_another_shape_are_refused() {
    let gate = small().to_string();
    refused(&gate, &["--golden", "no-such.safetensors"], &["no-such.safetensors", "--golden"]);
    refused(&gate, &["--golden", "README.md"], &["README.md", "safetensors"]);

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/kolibri-tiny-kjv.safetensors");
    let bytes = fs::read(source).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let name = "moe_branch.4";
    let scratch = Scratch::new();
    for (shape, words) in [(Some(vec![96, 256]), &[name, "(256, 96)", "[96, 256]"][..]), (None, &[name])] {
        let views =
            file.tensors().into_iter().filter(|(of, _)| shape.is_some() || of != name).map(|(of, view)| {
                let put = shape.clone().filter(|_| of == name).unwrap_or(view.shape().to_vec());
                (of, TensorView::new(view.dtype(), put, view.data()).unwrap())
            });
        let path = scratch.path("golden.safetensors");
        safetensors::serialize_to_file(views, None, Path::new(&path)).unwrap();
        refused(&gate, &["--golden", &path], words);
    }
}

#[test]
fn an_output_folder_that_is_a_file_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let gate = scratch.file("small.json", &lean().to_string());
    let file = scratch.file("mine", "mine");
    let message = refusal(&["gate", TRAINED, "--gate", &gate, "-o", &file]);
    assert!(message.contains("mine"), "{message}");
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

/// A finished run of the lean gate.
static FINISHED: LazyLock<(Scratch, Run)> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let run = scratch.gate(&lean(), "out", &[]).ends_with(PASS);
    (scratch, run)
});

/// Resumes a record; the folder must be as it was.
fn resume_refused(record: &str, gate: &Value, more: &[&str], words: &[&str]) {
    let scratch = Scratch::new();
    let gate = scratch.file("small.json", &gate.to_string());
    fs::create_dir(scratch.path("run")).unwrap();
    let file = scratch.file("run/record.json", record);
    let resume = ["gate", TRAINED, "--gate", &gate, "--resume", &scratch.path("run")];
    let message = refusal(&[&resume[..], more].concat());
    for word in words {
        assert!(message.contains(word), "no {word} in {message}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), record);
    assert_eq!(fs::read_dir(scratch.path("run")).unwrap().count(), 1);
}

/// The record as it was before its last step.
fn stopped() -> Value {
    let mut record = FINISHED.1.record();
    record["verdict"] = Value::Null;
    record
}

#[test]
fn a_finished_run_is_not_resumed() {
    resume_refused(&FINISHED.1.read("record.json"), &lean(), &[], &["--resume", "PASS", "assay report"]);
}

#[test]
fn a_record_of_a_newer_schema_and_what_is_no_record_are_not_resumed() {
    let mut record = stopped();
    record["schema"] = json!("assay-record/999");
    resume_refused(&record.to_string(), &lean(), &[], &["record.json", "assay-record/999"]);
    resume_refused("words", &lean(), &[], &["record.json", "a record of a gate run"]);
}

#[test]
fn a_folder_without_a_record_is_not_resumed() {
    let scratch = Scratch::new();
    let message = refusal(&["gate", TRAINED, "--resume", &scratch.path("")]);
    assert!(message.contains("record.json"), "{message}");
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 0);
}

#[test]
fn a_run_is_not_resumed_with_other_arguments() {
    let record = stopped().to_string();
    let mut other = lean();
    other["checks"]["router.weights"]["legs"]["max"]["value"] = json!(1.0);
    resume_refused(&record, &other, &[], &["limits and controls", "same arguments"]);
    let text = format!("short={TEXT}");
    let mut longer = lean();
    longer["sets"][0]["length"] = json!(161);
    resume_refused(&record, &longer, &["--set", &text], &["text of set short"]);
    resume_refused(&record, &lean(), &["--port-mutant", "renorm_topk"], &["planted bugs"]);
    resume_refused(&record, &lean(), &["--disable-control", "renorm_topk"], &["planted bugs"]);
}

/// Arguments after the verb: the checkpoint, the gate, more.
fn verb(verb: &str, checkpoint: &str, gate: &str, more: &[&str]) -> Vec<String> {
    [&[verb, checkpoint, "--gate", gate], more].concat().into_iter().map(String::from).collect()
}

#[test]
fn a_lock_holds_until_something_it_froze_changes() {
    let scratch = Scratch::new();
    let gate = scratch.file("small.json", &lean().to_string());
    let (lock, out) = (scratch.path("gate.lock"), scratch.path("out"));
    let shown = support::stdout(&verb("freeze", TRAINED, &gate, &["-o", &lock]));
    assert!(shown.contains("5 entries frozen"), "{shown}");
    let frozen: Value = serde_json::from_str(&fs::read_to_string(&lock).unwrap()).unwrap();
    let held = |checkpoint: &str, gate: &str, more: &[&str]| {
        // a name that is refused after the lock was held keeps this short
        let locked = ["--lock", &lock, "-o", &out, "--name", "a/b"];
        refusal(&verb("gate", checkpoint, gate, &[&locked, more].concat()))
    };
    assert!(held(TRAINED, &gate, &[]).contains("--name"));

    let mut other = lean();
    other["checks"]["router.weights"]["legs"]["max"]["value"] = json!(1.0);
    let other = scratch.file("other.json", &other.to_string());
    let text = format!("short={}", scratch.file("text.txt", &"Another text. ".repeat(20)));
    let mut changed = Checkpoint::trained();
    changed.tensor("model.norm.weight").2[0] ^= 1;
    let changed = changed.write();
    for (checkpoint, gate, more, entry) in [
        (TRAINED, &other, &[][..], "limits and controls"),
        (TRAINED, &gate, &["--set", &text], "text of set short"),
        (changed.to_str().unwrap(), &gate, &[], "checkpoint weights"),
    ] {
        let message = held(checkpoint, gate, more);
        assert!(message.contains("gate.lock") && message.contains(entry), "no {entry} in {message}");
        let others = frozen["entries"].as_object().unwrap().keys().filter(|name| *name != entry);
        others.for_each(|name| assert!(!message.contains(&format!("{name}: ")), "{name} in {message}"));
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_lock_is_not_overwritten_and_an_amendment_is_dated_reasoned_and_recorded() {
    let scratch = Scratch::new();
    let gate = scratch.file("small.json", &lean().to_string());
    let lock = scratch.path("gate.lock");
    support::stdout(&verb("freeze", TRAINED, &gate, &["-o", &lock]));
    let first = fs::read_to_string(&lock).unwrap();
    let freeze = |gate: &str, more: &[&str]| verb("freeze", TRAINED, gate, &[&["-o", &lock], more].concat());
    let message = refusal(&freeze(&gate, &[]));
    assert!(message.contains("gate.lock") && message.contains("--amend"), "{message}");
    let message = refusal(&freeze(&gate, &["--amend", "no reason at all"]));
    assert!(message.contains("something to amend"), "{message}");

    let mut tighter = lean();
    tighter["checks"]["router.weights"]["legs"]["max"]["value"] = json!(2e-5);
    let amended = scratch.file("tighter.json", &tighter.to_string());
    let message = refusal(&freeze(&amended, &["--amend", " "]));
    assert!(message.contains("reason"), "{message}");
    assert_eq!(fs::read_to_string(&lock).unwrap(), first);
    support::stdout(&freeze(&amended, &["--amend", "the limit was too wide"]));

    let run = scratch.gate(&tighter, "run", &["--lock", &lock]).ends_with(PASS);
    let of_record = &run.record()["inputs"]["lock"];
    let amendments = list(of_record, "amendments");
    assert_eq!(amendments.len(), 1, "{amendments:?}");
    assert_eq!(amendments[0]["reason"], "the limit was too wide");
    assert_eq!(amendments[0]["changed"], json!(["limits and controls"]));
    let date: Vec<&str> = amendments[0]["date"].as_str().unwrap().split('-').collect();
    assert_eq!(date.iter().map(|part| part.len()).collect::<Vec<_>>(), [4, 2, 2], "{date:?}");
    assert_eq!(of_record["sha256"], spec::hash::of_bytes(&fs::read(&lock).unwrap()));
    let shown = support::stdout(&["report", run.folder.as_ref().unwrap().to_str().unwrap()]);
    assert!(shown.contains("the limit was too wide"), "{shown}");
}

#[rstest]
#[case::of_a_newer_schema(
    "{\"schema\": \"assay-lock/999\", \"entries\": {}, \"amendments\": []}",
    "assay-lock/999"
)]
#[case::cut_short("{\"schema\": \"assay-lock/1\", \"entries\"", "a lock of `assay freeze`")]
#[case::of_nothing(
    "{\"schema\": \"assay-lock/1\", \"entries\": {}, \"amendments\": []}",
    "checkpoint weights"
)]
fn a_lock_is_refused(#[case] content: &str, #[case] word: &str) {
    let scratch = Scratch::new();
    let lock = scratch.file("gate.lock", content);
    refused(&lean().to_string(), &["--lock", &lock], &["gate.lock", word]);
}
