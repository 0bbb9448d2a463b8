//! A value against a limit.

use crate::assert_close;
use crate::gates::{gate_of, json_gate};
use diff::gate::finding::{Measurement, excess, judge, judge_all};
use diff::gate::limits::Limit;
use diff::gate::record::{Bound, Outcome};
use rstest::rstest;

fn limit(bound: Bound, value: f64, times_calibrator: Option<f64>) -> Limit {
    Limit {
        bound,
        value,
        times_calibrator,
        why: "a test".into(),
        calibrated_by: "nothing".into(),
        no_control: None,
    }
}

#[rstest]
#[case::at_most_at_the_limit(Bound::AtMost, 2.0, Outcome::Pass)]
#[case::at_most_beyond(Bound::AtMost, 2.0 + f64::EPSILON * 2.0, Outcome::Fail)]
#[case::at_most_nan(Bound::AtMost, f64::NAN, Outcome::Fail)]
#[case::at_least_at_the_limit(Bound::AtLeast, 2.0, Outcome::Pass)]
#[case::at_least_below(Bound::AtLeast, 2.0 - f64::EPSILON, Outcome::Fail)]
#[case::at_least_nan(Bound::AtLeast, f64::NAN, Outcome::Fail)]
#[case::above_at_the_limit(Bound::Above, 2.0, Outcome::Fail)]
#[case::above(Bound::Above, 2.0 + f64::EPSILON * 2.0, Outcome::Pass)]
#[case::above_nan(Bound::Above, f64::NAN, Outcome::Fail)]
fn a_limit_of_two(#[case] bound: Bound, #[case] value: f64, #[case] outcome: Outcome) {
    let measured = Measurement::new("forced.kl", "mean", 3, value);
    assert_eq!(judge(&measured, &limit(bound, 2.0, None), None).outcome, outcome);
    // whatever the value, nothing was compared on no rows
    let nothing = Measurement { rows: 0, ..measured };
    assert_eq!(judge(&nothing, &limit(bound, 2.0, None), None).outcome, Outcome::Void);
}

#[rstest]
#[case::the_floor_holds(Some(0.5), 2.0, Outcome::Pass)]
#[case::three_times_the_calibrator_holds(Some(1.0), 3.0, Outcome::Pass)]
#[case::beyond_three_times(Some(1.0), 3.5, Outcome::Fail)]
#[case::a_nan_calibrator_holds_nothing(Some(f64::NAN), 0.0, Outcome::Fail)]
#[case::a_missing_calibrator_holds_nothing(None, 0.0, Outcome::Fail)]
fn a_limit_of_two_or_three_times_the_calibrator(
    #[case] calibrator: Option<f64>,
    #[case] value: f64,
    #[case] outcome: Outcome,
) {
    let measured = Measurement { calibrator, ..Measurement::new("forced.kl", "mean", 3, value) };
    assert_eq!(judge(&measured, &limit(Bound::AtMost, 2.0, Some(3.0)), None).outcome, outcome);
}

#[rstest]
#[case::of_a_limit(Bound::AtMost, 3.0, 2.0, 1.5)]
#[case::of_a_limit_of_zero_it_is_the_count(Bound::AtMost, 7.0, 0.0, 7.0)]
#[case::of_a_lower_limit(Bound::AtLeast, 4.0, 2.0, 0.5)]
#[case::of_nothing_where_something_is_asked_for(Bound::AtLeast, 0.0, 2.0, f64::INFINITY)]
fn excess_says_how_far(#[case] bound: Bound, #[case] value: f64, #[case] limit: f64, #[case] expected: f64) {
    assert_eq!(excess(value, limit, bound), expected);
}

#[test]
fn of_several_layers_the_one_furthest_beyond_its_own_limit_counts_with_the_rows_of_all() {
    // limit of attn.median in bf16: 3 times the emulation's; excesses 2/3, 1.5/0.3 = 5, none, 1/3
    let layer = |rows, value, calibrator, place: &str| {
        Measurement::new("layer.branch_bf16", "attn.median", rows, value).calibrated(calibrator).at(place)
    };
    let layers = [
        layer(0, f64::NAN, 1.0, "a"),
        layer(4, 2.0, 1.0, "b"),
        layer(5, 1.5, 0.1, "c"),
        layer(6, 1.0, 1.0, "d"),
    ];
    let gate = gate_of(&json_gate());
    let found = judge_all(&layers, &gate, Some("short"));
    assert_eq!(found.len(), 1);
    let found = &found[0];
    assert_eq!((found.rows, found.place.as_str(), found.outcome), (15, "c", Outcome::Fail));
    assert_close(found.excess, 5.0);
    let nothing = judge_all(&layers[..1], &gate, None);
    assert_eq!((nothing[0].rows, nothing[0].outcome), (0, Outcome::Void));
    let nan = judge_all(&[layers[2].clone(), layer(1, f64::NAN, 1.0, "e")], &gate, None);
    assert_eq!((nan[0].place.as_str(), nan[0].outcome), ("e", Outcome::Fail));
}

#[test]
fn a_check_that_does_not_apply_gives_no_finding() {
    let measured = [Measurement::new("anchor.golden", "attn", 3, 1.0)];
    assert!(judge_all(&measured, &gate_of(&json_gate()), None).is_empty());
}
