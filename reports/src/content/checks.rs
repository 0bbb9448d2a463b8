//! The legs of every check, and what the planted bugs did to them.

use super::{Cell, Section, Table, Tone};
use crate::number::{count, limit, number};
use diff::gate::record::{Bound, Control, ControlLeg, Outcome, Record};

/// Every leg on every set, and what does not apply.
pub fn checks(record: &Record) -> Section {
    let mut tables = vec![findings(record)];
    if !record.not_applicable.is_empty() {
        let mut table = Table::new("Not applicable", &["check", "reason"]);
        for not in &record.not_applicable {
            table.push(vec![not.check.as_str().into(), not.reason.as_str().into()]);
        }
        tables.push(table);
    }
    Section {
        id: "checks",
        title: "Checks".into(),
        intro: vec![
            "Excess is how much of the limit is used: 1 is at the limit, below 1 is within. Limits that \
             are ratios name what the calibrator (the reference in bf16 emulation, or the sorted floor) \
             reached on the same rows."
                .into(),
        ],
        tables,
    }
}

/// One row per leg and set.
pub fn findings(record: &Record) -> Table {
    let names = [
        "check",
        "leg",
        "set",
        "outcome",
        "#value",
        "#limit",
        "#excess",
        "#calibrator",
        "#compared",
        "where",
    ];
    let mut table = Table::new("", &names);
    for finding in &record.findings {
        table.push(vec![
            finding.check.as_str().into(),
            finding.leg.as_str().into(),
            finding.set.as_deref().unwrap_or("-").into(),
            outcome(finding.outcome),
            number(finding.value).into(),
            bound(finding.bound, finding.limit).into(),
            number(finding.excess).into(),
            finding.calibrator.map_or_else(|| "-".into(), number).into(),
            count(finding.rows as u64).into(),
            finding.place.as_str().into(),
        ]);
    }
    table
}

fn outcome(outcome: Outcome) -> Cell {
    let (text, tone) = match outcome {
        Outcome::Pass => ("PASS", Tone::Good),
        Outcome::Fail => ("FAIL", Tone::Bad),
        Outcome::Void => ("VOID", Tone::Bad),
    };
    Cell { text: text.into(), tone }
}

fn bound(bound: Bound, value: f64) -> String {
    let sign = match bound {
        Bound::AtMost => "≤",
        Bound::AtLeast => "≥",
        Bound::Above => ">",
    };
    format!("{sign} {}", limit(value))
}

/// The planted bugs: what they did, and what they are.
pub fn controls(record: &Record) -> Section {
    let caught = record.controls.iter().filter(|control| control.caught).count();
    let all = record.controls.len();
    let intro = vec![
        format!(
            "{caught} of {all} planted bugs were caught: every leg they are bound to fired in this run, \
             and did not without the bug."
        ),
        "Margin is the excess a bug reaches on a leg that must fire; under 10 it is weak.".into(),
    ];
    let mut tables = Vec::new();
    if all > 0 {
        tables.extend([control_legs(record), bugs(record)]);
    }
    Section { id: "controls", title: "Controls".into(), intro, tables }
}

/// One row per bug and leg.
pub fn control_legs(record: &Record) -> Table {
    let names = [
        "bug",
        "planted in",
        "check",
        "leg",
        "caught",
        "#value",
        "#without it",
        "#limit",
        "#margin",
        "where, or why not",
    ];
    let mut table = Table::new("", &names);
    for control in &record.controls {
        let head = |caught| vec![control.mutant.as_str().into(), control.side.as_str().into(), caught];
        for leg in &control.legs {
            let mut row: Vec<Cell> = head(caught(control, leg));
            row.splice(2..2, [leg.check.as_str().into(), leg.leg.as_str().into()]);
            let numbers = [number(leg.value), number(leg.unmutated), limit(leg.limit), number(leg.margin)];
            row.extend(numbers.into_iter().chain([leg.place.clone()]).map(Cell::from));
            table.push(row);
        }
        if control.legs.is_empty() {
            let mut row: Vec<Cell> = head(verdict(control.caught));
            row.splice(2..2, ["-".into(), "-".into()]);
            row.extend(["-", "-", "-", "-", "bound to no leg"].map(Cell::from));
            table.push(row);
        }
    }
    table
}

fn caught(control: &Control, leg: &ControlLeg) -> Cell {
    match (leg.caught, leg.weak) {
        (true, true) => Cell { text: "caught, weak".into(), tone: Tone::Weak },
        // a bug that fired everywhere but is recorded as not caught is not shown as caught
        (true, false) if !control.caught && control.legs.iter().all(|leg| leg.caught) => verdict(false),
        (caught, _) => verdict(caught),
    }
}

fn verdict(caught: bool) -> Cell {
    let (text, tone) = if caught { ("caught", Tone::Good) } else { ("NOT CAUGHT", Tone::Bad) };
    Cell { text: text.into(), tone }
}

fn bugs(record: &Record) -> Table {
    let mut table = Table::new("What was planted", &["bug", "planted in", "what it does", "seen in"]);
    for control in &record.controls {
        let seen = if control.seen_in.is_empty() { "-".into() } else { control.seen_in.join(", ") };
        table.push(vec![
            control.mutant.as_str().into(),
            control.side.as_str().into(),
            control.what.as_str().into(),
            seen.into(),
        ]);
    }
    table
}
