//! What was frozen stays, or its change is dated and has a reason.

use crate::gates::blank;
use diff::gate::lock::{Lock, entries};
use rstest::rstest;
use std::path::Path;

const PATH: &str = "some.lock";

#[test]
fn the_entries_are_program_checkpoint_limits_and_texts() {
    let names: Vec<String> = entries(&blank().inputs).into_keys().collect();
    let expected = [
        "checkpoint config",
        "checkpoint weights",
        "limits and controls",
        "program",
        "text of set long",
        "text of set short",
    ];
    assert_eq!(names, expected);
}

#[test]
fn an_unchanged_run_holds_and_a_changed_one_is_refused_by_name() {
    let mut inputs = blank().inputs;
    let lock = Lock::new(entries(&inputs));
    lock.hold(Path::new(PATH), &entries(&inputs)).unwrap();
    inputs.gate.sha256 = "other".into();
    inputs.golden_sha256 = Some("new".into());
    inputs.sets.remove(1);
    let now = entries(&inputs);
    assert_eq!(lock.changed(&now), ["golden outputs", "limits and controls", "text of set long"]);
    let message = lock.hold(Path::new(PATH), &now).unwrap_err().to_string();
    for word in
        ["limits and controls: limits in the lock, other now", "text of set long", "nothing now", PATH]
    {
        assert!(message.contains(word), "no {word} in: {message}");
    }
}

#[test]
fn an_amendment_is_recorded_and_read_back() {
    let (folder, mut inputs) = (tempfile::tempdir().unwrap(), blank().inputs);
    let path = folder.path().join(PATH);
    let mut lock = Lock::new(entries(&inputs));
    inputs.program.sha256 = "next".into();
    let now = entries(&inputs);
    lock.amend(&path, now.clone(), "2024-02-03".into(), " a mended report ").unwrap();
    lock.hold(&path, &now).unwrap();
    lock.write(&path).unwrap();
    let (read, record) = Lock::read(&path).unwrap();
    assert_eq!(read, lock);
    assert_eq!(record.amendments, lock.amendments);
    let amendment = &record.amendments[0];
    assert_eq!(
        (amendment.reason.as_str(), amendment.changed.as_slice()),
        ("a mended report", &["program".into()][..])
    );
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("assay-lock/1", "assay-lock/2")).unwrap();
    assert!(Lock::read(&path).unwrap_err().to_string().contains("assay-lock/2"));
}

#[rstest]
#[case::without_a_reason("other", "  ", "a reason")]
#[case::of_nothing("limits", "why not", "something to amend")]
fn an_amendment_is_refused(#[case] gate: &str, #[case] reason: &str, #[case] word: &str) {
    let mut inputs = blank().inputs;
    let mut lock = Lock::new(entries(&inputs));
    let before = lock.clone();
    inputs.gate.sha256 = gate.into();
    let error = lock.amend(Path::new(PATH), entries(&inputs), "2024-02-03".into(), reason).unwrap_err();
    assert!(error.to_string().contains(word), "{error}");
    assert_eq!(lock, before);
}
