//! A run that goes on from any saved record ends where the uninterrupted one does.

use crate::fake::{Fake, LOGITS_OF_OTHERS};
use crate::gates::{blank, case, gate_of, json_gate, run_from, sets};
use diff::gate::record::{Record, Verdict};
use diff::gate::{Plan, run};
use rstest::rstest;
use spec::{Error, Site};

/// Everything but the times; text, so that a NaN is equal to itself.
fn lasting(record: &Record) -> String {
    let mut record = record.clone();
    record.times.phases.iter_mut().for_each(|phase| phase.seconds = 0.0);
    serde_json::to_string_pretty(&record).unwrap()
}

fn honest() -> Fake {
    Fake::new()
}

/// Fails with a NaN in it.
fn not_a_number() -> Fake {
    let mut fake = Fake::new();
    fake.bf16.edits.push(|row, values| {
        if row.is("short-1", None, Site::Logits, 2) {
            values[1] = f32::NAN;
        }
    });
    fake
}

/// Fails end to end in the control sequence too.
fn other_logits() -> Fake {
    let mut fake = Fake::new();
    fake.f32.edits.push(|row, values| {
        if row.site == Site::Logits && row.position == 2 && row.call == 1 {
            *values = LOGITS_OF_OTHERS.to_vec();
        }
    });
    fake
}

#[rstest]
#[case::honest(honest, Verdict::Pass)]
#[case::not_a_number(not_a_number, Verdict::Fail)]
#[case::other_logits(other_logits, Verdict::Fail)]
fn going_on_from_any_saved_record_ends_in_the_record_of_the_whole_run(
    #[case] fake: fn() -> Fake,
    #[case] verdict: Verdict,
) {
    let gate = gate_of(&json_gate());
    let (whole, saved) = run_from(&fake(), &gate, None, blank());
    assert_eq!(whole.verdict, Some(verdict), "{:#?}", whole.reasons);
    // the census, two sets, four steps of what is measured once, 6 bugs and the 6 of likelihood; the verdict
    let steps: Vec<&str> = whole.times.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(steps.len(), 1 + 2 + 4 + 6 + 6, "{steps:?}");
    assert_eq!(saved.len(), steps.len() + 1);
    for (at, record) in saved.iter().enumerate() {
        let (resumed, saved_after) = run_from(&fake(), &gate, None, record.clone());
        assert_eq!(lasting(&resumed), lasting(&whole), "from saved record {at}");
        // what was done is not done again
        assert_eq!(saved_after.len(), saved.len() - at - usize::from(at + 1 < saved.len()), "from {at}");
    }
}

#[test]
fn only_the_last_saved_record_has_a_verdict() {
    let (_, saved) = run_from(&honest(), &gate_of(&json_gate()), None, blank());
    let (last, others) = saved.split_last().unwrap();
    assert!(last.verdict.is_some());
    assert!(others.iter().all(|record| record.verdict.is_none() && record.reasons.is_empty()));
}

#[test]
fn a_run_whose_record_cannot_be_saved_stops_with_the_reason() {
    let (gate, sets, control_case) = (gate_of(&json_gate()), sets(), case("control", 5));
    let plan = Plan {
        gate: &gate,
        sets: &sets,
        control_case: &control_case,
        decoded: 3,
        golden: None,
        disabled_control: None,
    };
    let mut calls = 0;
    let mut save = |_: &Record| {
        calls += 1;
        let full = std::io::Error::other("the disk is full");
        if calls < 3 { Ok(()) } else { Err(Error::io("write", "record.json", "make room")(full)) }
    };
    let error = run(&honest(), &plan, blank(), &mut save, &mut ()).unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(calls, 3);
}
