//! `schedule.batch` on sides that are tables. The control sequence has 5 tokens, so that the unit is one
//! token and the five rows have 5, 2, 2, 5 and 3.

use crate::assert_close;
use crate::fake::{Edit, Fake, LOGITS, LOGITS_OF_OTHERS};
use crate::gates::{blank, finding, gate_of, json_gate, judged, run_from};
use diff::gate::record::{Outcome, Record, Verdict};
use rstest::rstest;
use spec::Site;

const LEGS: [&str; 2] = ["left", "right"];

fn with(edit: Edit) -> Record {
    let mut fake = Fake::new();
    fake.f32.edits.push(edit);
    judged(&fake)
}

/// KL of [`LOGITS`] to [`LOGITS_OF_OTHERS`], nats.
fn kl_of_others() -> f64 {
    let log_softmax = |logits: [f32; 3]| {
        let total = logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        logits.map(|x| f64::from(x) - total)
    };
    let (p, q) = (log_softmax(LOGITS), log_softmax(LOGITS_OF_OTHERS));
    p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum()
}

#[test]
fn an_honest_port_passes_on_every_row() {
    let record = judged(&Fake::new());
    for leg in LEGS {
        let found = finding(&record, None, "schedule.batch", leg);
        assert_eq!((found.outcome, found.rows, found.value), (Outcome::Pass, 17, 0.0));
        assert_eq!((found.calibrator, found.limit), (Some(0.0), 1e-9));
    }
}

#[test]
fn one_wrong_row_of_a_batch_is_the_value_and_the_place() {
    let record = with(|row, values| {
        if row.together > 1 && row.is("batch-3", None, Site::Logits, 4) {
            *values = LOGITS_OF_OTHERS.to_vec();
        }
    });
    for leg in LEGS {
        let found = finding(&record, None, "schedule.batch", leg);
        // one of that row's five positions
        assert_close(found.value, kl_of_others() / 5.0);
        assert_eq!((found.outcome, found.calibrator), (Outcome::Fail, Some(0.0)));
        assert_eq!(found.place, "row 3, 5 tokens");
    }
    // nothing else is fed several sequences at once
    let failed = |outcome| record.findings.iter().filter(|found| found.outcome == outcome).count();
    assert_eq!(failed(Outcome::Fail), 2);
}

/// Wrong at every position of one row, alone or not.
const WRONG_ANYWHERE: Edit = |row, values| {
    if row.case == "batch-3" && row.site == Site::Logits {
        *values = LOGITS_OF_OTHERS.to_vec();
    }
};
/// The same, but alone at one of its five positions only.
const WRONG_TOGETHER: Edit = |row, values| {
    if row.together > 1 || row.position == 1 {
        WRONG_ANYWHERE(row, values);
    }
};

/// The limit is three times what the row reaches alone.
#[rstest]
#[case(WRONG_ANYWHERE, 1.0, Outcome::Pass)]
#[case(WRONG_TOGETHER, 0.2, Outcome::Fail)]
fn a_row_is_held_against_itself_alone(#[case] edit: Edit, #[case] alone: f64, #[case] expected: Outcome) {
    let record = with(edit);
    let found = finding(&record, None, "schedule.batch", "left");
    assert_close(found.value, kl_of_others());
    assert_close(found.calibrator.unwrap(), kl_of_others() * alone);
    assert_close(found.limit, kl_of_others() * alone * 3.0);
    assert_eq!(found.outcome, expected);
}

#[test]
fn a_port_that_executes_other_experts_is_not_measured() {
    let mut fake = Fake::new();
    fake.f32.obeys_forcing = false;
    fake.f32.edits.push(|row, values| {
        if row.is("batch-1", Some(0), Site::ShadowChoice, 1) {
            *values = vec![0.0, 3.0];
        }
    });
    let record = judged(&fake);
    let found = finding(&record, None, "schedule.batch", "right");
    assert!(found.value.is_nan() && found.outcome == Outcome::Fail);
    assert_eq!(found.place, "other experts ran than were forced");
}

#[test]
fn a_port_that_takes_no_batch_fails_in_words() {
    let mut fake = Fake::new();
    fake.f32.takes_batches = false;
    let record = judged(&fake);
    assert_eq!(record.verdict, Some(Verdict::Fail));
    for leg in LEGS {
        let found = finding(&record, None, "schedule.batch", leg);
        assert!(found.value.is_nan() && found.outcome == Outcome::Fail && found.rows == 17);
        assert!(found.place.contains("takes no batch") && found.place.contains("failed to use a batch"));
    }
}

#[test]
fn a_gate_without_the_check_asks_for_no_batch_and_no_pass() {
    let mut gate = json_gate();
    gate["checks"].as_object_mut().unwrap().remove("schedule.batch");
    gate["not_applicable"]["schedule.batch"] = "the port runs one sequence per call".into();
    let mut fake = Fake::new();
    fake.f32.takes_batches = false;
    let (record, _) = run_from(&fake, &gate_of(&gate), None, blank());
    assert_eq!(record.verdict, Some(Verdict::Pass), "{:?}", record.reasons);
    let passes = |record: &Record| record.bytes_read.iter().map(|read| read.pass.clone()).collect::<Vec<_>>();
    assert_eq!(passes(&record), ["short", "long", "control sequence"]);
    assert_eq!(passes(&judged(&Fake::new())), ["short", "long", "control sequence", "rows of the batch"]);
}
