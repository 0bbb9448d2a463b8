//! The tables of a matrix.

use crate::content::{Cell, Table, Tone};
use crate::number::number;
use diff::gate::record::WEAK;
use diff::matrix::{Matrix, Outcome, Row, Sheet};

/// One row per bug and side: how it came out over all checkpoints, by what, and which checks fired anywhere.
pub fn rows(matrix: &Matrix) -> Table {
    let names = ["id", "side", "outcome", "caught by", "#margin", "on", "checks that fire", "not exercised"];
    let mut table = Table::new("", &names);
    for overall in matrix.overall() {
        let (by, margin, on) = match &overall.best {
            None => ("-".into(), "-".into(), "-".into()),
            Some((checkpoint, check, leg, margin)) => {
                (format!("{check} {leg}"), number(*margin), checkpoint.clone())
            }
        };
        let same = |row: &&Row| row.id == overall.id && row.side == overall.side;
        let here =
            || matrix.sheets.iter().flat_map(|sheet| sheet.rows.iter().filter(same).map(move |r| (sheet, r)));
        let fires: std::collections::BTreeSet<&str> = here()
            .flat_map(|(_, row)| row.cells.iter().filter(|cell| cell.fired).map(|cell| cell.check.as_str()))
            .collect();
        let not: Vec<String> = here()
            .filter(|(_, row)| !row.why.is_empty())
            .map(|(sheet, row)| format!("{}: {}", sheet.checkpoint.name, row.why))
            .collect();
        table.push(vec![
            overall.id.as_str().into(),
            overall.side.as_str().into(),
            outcome(overall.outcome),
            by.into(),
            margin.into(),
            on.into(),
            words(&fires.into_iter().collect::<Vec<_>>().join(", ")).into(),
            words(&not.join("; ")).into(),
        ]);
    }
    table
}

/// By check, the bug that it caught by the largest margin.
pub fn strongest(matrix: &Matrix) -> Table {
    let mut table = Table::new("", &["check", "leg", "strongest bug", "#margin", "on"]);
    for (check, best) in matrix.strongest() {
        match best {
            None => table.push(vec![check.into(), "-".into(), "none".into(), "-".into(), "-".into()]),
            Some((id, cell, checkpoint)) => {
                let tone = if cell.margin < WEAK { Tone::Weak } else { Tone::Plain };
                let margin = Cell { text: number(cell.margin), tone };
                table.push(vec![
                    check.into(),
                    cell.leg.as_str().into(),
                    id.into(),
                    margin,
                    checkpoint.into(),
                ]);
            }
        }
    }
    table
}

/// Bugs down, checks across: the margin where a check fired, `·` where it ran and did not, empty where it did
/// not run.
pub fn margins(sheet: &Sheet) -> Table {
    let names: Vec<&str> =
        ["id", "side", "outcome"].into_iter().chain(sheet.checks.iter().map(String::as_str)).collect();
    let mut table = Table::new("", &names);
    for row in &sheet.rows {
        let margin = |check: &String| match row.cells.iter().find(|cell| cell.check == *check) {
            None => Cell::from(""),
            Some(cell) if cell.fired => Cell { text: number(cell.margin), tone: Tone::Good },
            Some(_) => Cell::from("·"),
        };
        let start = [row.id.as_str().into(), row.side.as_str().into(), outcome(row.outcome)];
        table.push(start.into_iter().chain(sheet.checks.iter().map(margin)).collect());
    }
    table
}

/// How many rows came out in which way, and the names of those that should not have.
pub fn outcomes(matrix: &Matrix) -> Vec<String> {
    let overall = matrix.overall();
    let of = |outcome: Outcome| -> Vec<String> {
        let rows = overall.iter().filter(|row| row.outcome == outcome);
        rows.map(|row| format!("{} ({})", row.id, row.side)).collect()
    };
    let line = |outcome: Outcome, named: bool| {
        let rows = of(outcome);
        let names = if named && !rows.is_empty() { format!(": {}", rows.join(", ")) } else { String::new() };
        format!("{} {}{names}", rows.len(), outcome.word())
    };
    vec![
        line(Outcome::Caught, false),
        line(Outcome::NotExercised, true),
        line(Outcome::Missed, true),
        line(Outcome::Crashed, true),
        format!("correct rewrites: {}", line(Outcome::Quiet, false)),
        format!("correct rewrites: {}", line(Outcome::FalseAlarm, true)),
    ]
}

/// The word of an outcome, set off.
pub fn outcome(outcome: Outcome) -> Cell {
    let tone = match outcome {
        Outcome::Caught | Outcome::Quiet => Tone::Good,
        Outcome::NotExercised => Tone::Weak,
        Outcome::Missed | Outcome::Crashed | Outcome::FalseAlarm => Tone::Bad,
    };
    Cell { text: outcome.word().into(), tone }
}

fn words(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.into() }
}
