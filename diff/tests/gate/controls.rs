//! Planted bugs: caught only where their leg fires and passes without them.

use crate::fake::Fake;
use crate::gates::{blank, gate_of, json_gate, judged, run_from};
use diff::gate::record::{Control, Record, Verdict};
use rstest::rstest;
use serde_json::json;
use spec::{ExpertId, LayerId};

fn control<'a>(record: &'a Record, mutant: &str) -> &'a Control {
    record.controls.iter().find(|control| control.mutant == mutant).unwrap()
}

#[test]
fn every_bug_of_the_honest_run_is_caught_on_every_leg() {
    let fake = Fake::new();
    let record = judged(&fake);
    assert_eq!(record.verdict, Some(Verdict::Pass), "{:#?}", record.reasons);
    assert!(record.reasons.is_empty());
    assert_eq!(record.controls.len(), 6 + 6);
    assert!(record.controls.iter().flat_map(|control| &control.legs).all(|leg| leg.caught));
    // 5 tokens: experts 0 and 1 at three positions, 2 and 3 at two
    assert!(!fake.idle.borrow().is_empty());
    assert!(fake.idle.borrow().iter().all(|idle| *idle == (LayerId(1), ExpertId(2))));
}

#[rstest]
#[case::that_crashes("crashes", "the table is on fire")]
#[case::that_does_nothing("harmless", "")]
fn a_bug_is_not_caught(#[case] id: &str, #[case] words: &str) {
    let mut gate = json_gate();
    gate["checks"]["forced.top1"]["controls"] = json!({id: ["changes"]});
    let record = run_from(&Fake::new(), &gate_of(&gate), None, blank()).0;
    let control = control(&record, id);
    assert!(!control.caught && !control.legs[0].caught);
    assert!(control.legs[0].place.contains(words), "{}", control.legs[0].place);
    assert_eq!(record.verdict, Some(Verdict::Incomplete));
    assert!(record.reasons.iter().any(|reason| reason.contains(id) && reason.contains("power not shown")));
}

#[test]
fn a_disabled_control_is_noticed() {
    let record = run_from(&Fake::new(), &gate_of(&json_gate()), Some("zeroed"), blank()).0;
    assert!(!control(&record, "zeroed").caught);
    assert_eq!(record.verdict, Some(Verdict::Incomplete));
}

#[test]
fn a_missing_tensor_is_named_by_the_control_that_takes_it_away() {
    let record = judged(&Fake::new());
    let leg = &control(&record, "missing").legs[0];
    assert_eq!((leg.value, leg.unmutated), (1.0, 0.0));
    assert!(leg.place.contains("model.norm.weight"), "{}", leg.place);
}
