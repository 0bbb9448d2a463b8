//! The matrix on sides that are tables: what each row comes out as, and what a score is made of.

use crate::fake::Fake;
use crate::gates::{case, gate_of, json_gate};
use diff::bench::{Bench, Planted};
use diff::gate::of_harness;
use diff::gate::record::Checkpoint;
use diff::matrix::{Catalogue, Cell, Matrix, Outcome, Row, SCHEMA, Sheet, Subtlety, run};
use rstest::rstest;

fn sheet_of(fake: &Fake, wanted: &dyn Fn(&Planted) -> bool) -> Sheet {
    let (gate, case) = (gate_of(&json_gate()), case("mutants", 5));
    let checkpoint =
        Checkpoint { name: "table".into(), config_sha256: "c".into(), weights_sha256: "w".into(), bytes: 1 };
    let planted: Vec<Planted> = fake.planted().into_iter().chain(of_harness()).collect();
    let rows: Vec<&Planted> = planted.iter().filter(|row| wanted(row)).collect();
    let catalogue = Catalogue { checkpoint, gate: &gate, case: &case, golden: None, rows: &rows };
    run(fake, &catalogue, &mut ()).unwrap()
}

fn row<'a>(sheet: &'a Sheet, id: &str) -> &'a Row {
    sheet.rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no row {id}"))
}

#[rstest]
#[case::a_bug_that_some_check_sees("everything", Outcome::Caught, "")]
#[case::a_checkpoint_that_is_refused("missing", Outcome::Caught, "")]
#[case::other_tensors("zeroed", Outcome::Caught, "")]
#[case::a_bug_that_does_nothing("harmless", Outcome::Missed, "")]
#[case::a_port_that_fails("crashes", Outcome::Crashed, "the table is on fire")]
#[case::of_forcing("forcing_off", Outcome::Caught, "")]
#[case::of_what_is_recorded("rows_late_by_one", Outcome::Caught, "")]
#[case::of_the_references_products("tf32", Outcome::Caught, "")]
fn a_row_comes_out_as(#[case] id: &str, #[case] outcome: Outcome, #[case] why: &str) {
    let sheet = sheet_of(&Fake::new(), &|row| row.id == id);
    let row = row(&sheet, id);
    assert_eq!(row.outcome, outcome, "{row:#?}");
    assert!(row.why.contains(why) && (why.is_empty() == row.why.is_empty()), "{}", row.why);
    assert_eq!(sheet.rows.len(), 1);
}

#[test]
fn a_panic_is_a_crash_and_never_a_catch() {
    let mut fake = Fake::new();
    fake.bugs.iter_mut().find(|bug| bug.id == "harmless").unwrap().plant = |_| panic!("out of rope");
    let sheet = sheet_of(&fake, &|row| row.id == "harmless");
    assert_eq!(row(&sheet, "harmless").outcome, Outcome::Crashed);
    assert!(row(&sheet, "harmless").why.contains("out of rope"));
}

#[test]
fn a_bug_whose_need_is_not_met_is_neither_caught_nor_missed() {
    let mut fake = Fake::new();
    fake.unmet = vec!["harmless", "everything"];
    let sheet = sheet_of(&fake, &|row| fake_ids(&["harmless", "everything"], row));
    for id in ["harmless", "everything"] {
        assert_eq!(row(&sheet, id).outcome, Outcome::NotExercised, "{id}");
        assert_eq!(row(&sheet, id).why, "needs more than 5 tokens");
    }
    assert_eq!(matrix(vec![sheet]).score(), (0, 0));
}

#[test]
fn a_rewrite_is_quiet_or_a_false_alarm() {
    let mut fake = Fake::new();
    fake.rewrites = vec!["harmless", "everything"];
    let sheet = sheet_of(&fake, &|row| fake_ids(&["harmless", "everything"], row));
    assert_eq!(row(&sheet, "harmless").outcome, Outcome::Quiet);
    assert_eq!(row(&sheet, "everything").outcome, Outcome::FalseAlarm);
}

#[test]
fn a_check_that_fails_without_a_bug_catches_nothing() {
    let mut fake = Fake::new();
    fake.f32.edits.push(crate::gates::break_everything);
    fake.bf16.edits.push(crate::gates::break_everything);
    let sheet = sheet_of(&fake, &|row| row.id == "everything");
    assert!(sheet.failing.iter().any(|leg| leg == "layer.branch attn.median"), "{:?}", sheet.failing);
    let row = row(&sheet, "everything");
    let branch = row.cells.iter().find(|cell| cell.check == "layer.branch").unwrap();
    assert!(!branch.fired && branch.margin > 1.0, "{branch:?}");
}

#[test]
fn a_bug_of_a_step_leaves_the_tensors_unasked() {
    let sheet = sheet_of(&Fake::new(), &|row| fake_ids(&["everything", "zeroed"], row));
    let checks = |id: &str| row(&sheet, id).cells.iter().map(|cell| cell.check.clone()).collect::<Vec<_>>();
    assert!(!checks("everything").contains(&"static.weights".to_owned()));
    assert!(checks("zeroed").contains(&"static.weights".to_owned()));
    assert!(checks("everything").contains(&"schedule.decode".to_owned()));
}

#[test]
fn the_json_form_is_read_back() {
    let sheet = sheet_of(&Fake::new(), &|row| fake_ids(&["everything", "crashes"], row));
    let matrix = matrix(vec![sheet]);
    let text = serde_json::to_string(&matrix).unwrap();
    assert_eq!(serde_json::from_str::<Matrix>(&text).unwrap(), matrix);
}

/// (on the first checkpoint, on the second, over both)
#[rstest]
#[case(Outcome::Caught, Outcome::Missed, Outcome::Caught)]
#[case(Outcome::NotExercised, Outcome::Missed, Outcome::Missed)]
#[case(Outcome::NotExercised, Outcome::NotExercised, Outcome::NotExercised)]
#[case(Outcome::Caught, Outcome::Crashed, Outcome::Crashed)]
#[case(Outcome::Quiet, Outcome::FalseAlarm, Outcome::FalseAlarm)]
fn over_two_checkpoints(#[case] one: Outcome, #[case] other: Outcome, #[case] over: Outcome) {
    let matrix = matrix(vec![by_hand("a", one, 20.0), by_hand("b", other, 30.0)]);
    let overall = matrix.overall();
    assert_eq!((overall.len(), overall[0].outcome), (1, over));
}

#[test]
fn a_check_is_weak_under_ten_times_its_limit_and_where_it_caught_nothing() {
    let strong = matrix(vec![by_hand("a", Outcome::Caught, 9.0), by_hand("b", Outcome::Caught, 11.0)]);
    assert!(strong.weak_checks().is_empty());
    assert_eq!(strong.overall()[0].best.as_ref().unwrap().3, 11.0);
    assert_eq!(matrix(vec![by_hand("a", Outcome::Caught, 9.0)]).weak_checks(), ["layer.branch"]);
    assert_eq!(matrix(vec![by_hand("a", Outcome::Missed, 99.0)]).weak_checks(), ["layer.branch"]);
    let mut count = by_hand("a", Outcome::Caught, 1.0);
    count.rows[0].cells[0].limit = 0.0;
    assert!(matrix(vec![count]).weak_checks().is_empty());
}

#[rstest]
#[case(&["layer.branch"], Some(Subtlety::Subtle))]
#[case(&["layer.branch", "free.kl"], Some(Subtlety::Medium))]
#[case(&["forced.bf16"], Some(Subtlety::Medium))]
#[case(&["forced.kl", "forced.top1"], Some(Subtlety::Loud))]
fn subtlety_goes_by_what_fires_end_to_end(#[case] checks: &[&str], #[case] expected: Option<Subtlety>) {
    let mut row = by_hand("a", Outcome::Caught, 20.0).rows.remove(0);
    let cell = row.cells.remove(0);
    row.cells = checks.iter().map(|check| Cell { check: (*check).into(), ..cell.clone() }).collect();
    assert_eq!(row.subtlety(), expected);
    row.cells.iter_mut().for_each(|cell| cell.fired = false);
    row.outcome = Outcome::Missed;
    assert_eq!(row.subtlety(), None);
}

#[test]
fn the_score_is_of_what_is_exercised() {
    let mut sheet = by_hand("a", Outcome::Caught, 20.0);
    for (id, outcome) in [
        ("missed", Outcome::Missed),
        ("crashed", Outcome::Crashed),
        ("idle", Outcome::NotExercised),
        ("quiet", Outcome::Quiet),
    ] {
        let mut row = by_hand("a", outcome, 0.0).rows.remove(0);
        row.id = id.into();
        sheet.rows.push(row);
    }
    assert_eq!(matrix(vec![sheet]).score(), (1, 3));
}

fn fake_ids(ids: &[&str], row: &Planted) -> bool {
    ids.contains(&row.id.as_str())
}

fn matrix(sheets: Vec<Sheet>) -> Matrix {
    Matrix { schema: SCHEMA.into(), version: "0".into(), whole: true, sheets }
}

/// One row `bug` of one check with this margin, which fired if it was caught.
fn by_hand(name: &str, outcome: Outcome, margin: f64) -> Sheet {
    let fired = outcome == Outcome::Caught;
    let (check, leg) = ("layer.branch".to_owned(), "attn.max".to_owned());
    let cell = Cell { check: check.clone(), leg, value: margin, limit: 1.0, margin, fired };
    Sheet {
        checkpoint: Checkpoint {
            name: name.into(),
            config_sha256: "c".into(),
            weights_sha256: "w".into(),
            bytes: 1,
        },
        gate: "table".into(),
        tokens: 5,
        chunk: 1,
        decoded: 2,
        checks: vec![check],
        failing: Vec::new(),
        rows: vec![Row {
            id: "bug".into(),
            side: "port".into(),
            rewrite: false,
            stage: "norm".into(),
            outcome,
            why: String::new(),
            cells: vec![cell],
        }],
        seconds: 0.0,
    }
}
