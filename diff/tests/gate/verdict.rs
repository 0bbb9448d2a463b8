//! FAIL before VOID before INCOMPLETE before PASS.

use crate::fake::Fake;
use crate::gates::{blank, case, finding, gate_of, json_gate, judged, sets};
use diff::gate::record::{Outcome, Record, Verdict};
use diff::gate::{Plan, Set, refuse_empty, run};
use rstest::rstest;
use serde_json::json;
use spec::Site;

/// A run in which a control may be harmless, every sequence be one token long, and the port be wrong.
fn verdict(missed: bool, one_token: bool, wrong: bool) -> Record {
    let (mut gate, mut fake, mut sets) = (json_gate(), Fake::new(), sets());
    if missed {
        gate["checks"]["forced.top1"]["controls"] = json!({"harmless": ["changes"]});
    }
    if one_token {
        // no position has a full window behind it, no bucket a second
        sets = vec![Set { name: "short".into(), cases: vec![case("short-0", 1)] }];
    }
    if wrong {
        fake.f32.edits.push(|row, values| {
            if row.is("short-0", Some(0), Site::MoeBranch, 0) {
                values[0] = 3.0;
            }
        });
    }
    let (gate, control_case) = (gate_of(&gate), case("control", 5));
    let plan = Plan {
        gate: &gate,
        sets: &sets,
        control_case: &control_case,
        decoded: 3,
        golden: None,
        disabled_control: None,
    };
    run(&fake, &plan, blank(), &mut |_| Ok(()), &mut ()).unwrap()
}

#[rstest]
#[case(false, false, false, Verdict::Pass)]
#[case(true, false, false, Verdict::Incomplete)]
#[case(false, false, true, Verdict::Fail)]
#[case(true, false, true, Verdict::Fail)]
#[case(false, true, false, Verdict::Void)]
#[case(true, true, false, Verdict::Void)]
#[case(true, true, true, Verdict::Fail)]
fn the_gravest_says_the_verdict(
    #[case] missed: bool,
    #[case] one_token: bool,
    #[case] wrong: bool,
    #[case] expected: Verdict,
) {
    let record = verdict(missed, one_token, wrong);
    assert_eq!(record.verdict, Some(expected), "{:#?}", record.reasons);
    assert_eq!(record.reasons.is_empty(), expected == Verdict::Pass);
}

#[test]
fn a_nan_fails_and_is_named() {
    let mut fake = Fake::new();
    fake.f32.edits.push(|row, values| {
        if row.is("short-1", Some(1), Site::AttnBranch, 3) {
            values[0] = f32::NAN;
        }
    });
    let record = judged(&fake);
    assert_eq!(record.verdict, Some(Verdict::Fail));
    let found = finding(&record, Some("short"), "layer.branch", "attn.max");
    assert!(found.value.is_nan() && found.outcome == Outcome::Fail);
    let named =
        "layer.branch attn.max on short: NaN against a limit of 1.00e-4 (layer 1, short-1, position 3)";
    assert!(record.reasons.iter().any(|reason| reason == named), "{:#?}", record.reasons);
}

#[test]
fn a_set_without_text_is_refused_with_what_would_be_void() {
    let empty = [Set { name: "short".into(), cases: Vec::new() }];
    let message = refuse_empty(&empty, &gate_of(&json_gate())).unwrap_err().to_string();
    assert!(
        message.contains("`short`") && message.contains("VOID") && message.contains("forced.kl"),
        "{message}"
    );
}
