//! The matrix of planted bugs and checks as Markdown, CSV, JSON, HTML, and for a terminal.
//!
//! Input: a [`Matrix`]. Outputs: whole documents as text. Absent on purpose: what is caught and what is
//! missed, which the matrix says.

mod heat;
mod tables;

use crate::Format;
use crate::markdown::{cell, grid, prose, terminal_cell};
use crate::number::seconds;
use diff::matrix::Matrix;
use std::fmt::Write as _;

/// The whole document.
pub fn matrix(matrix: &Matrix, format: Format) -> String {
    match format {
        Format::Md => markdown(matrix),
        Format::Csv => csv(matrix),
        Format::Json => serde_json::to_string(matrix).expect("a matrix has string keys alone") + "\n",
        Format::Html => heat::document(matrix),
    }
}

/// What is printed at the end of a run: every row, the strongest bug of each check, and the score last.
pub fn matrix_terminal(matrix: &Matrix) -> String {
    let mut out = String::new();
    let strongest = matrix.whole.then(|| tables::strongest(matrix));
    for table in [tables::rows(matrix)].into_iter().chain(strongest) {
        write!(out, "{}\n\n", grid(&table, terminal_cell)).expect("a String takes any text");
    }
    for line in summary(matrix) {
        writeln!(out, "{line}").expect("a String takes any text");
    }
    out
}

fn markdown(matrix: &Matrix) -> String {
    let mut out = String::from("# Planted bugs and checks\n");
    for line in summary(matrix) {
        write!(out, "\n- {}", prose(&line)).expect("a String takes any text");
    }
    out.push('\n');
    let mut section = |title: &str, table: &crate::content::Table| {
        write!(out, "\n## {}\n\n{}\n", prose(title), grid(table, cell)).expect("a String takes any text");
    };
    section("Rows", &tables::rows(matrix));
    section("The strongest bug of each check", &tables::strongest(matrix));
    for sheet in &matrix.sheets {
        section(&format!("Margins on {}", sheet.checkpoint.name), &tables::margins(sheet));
    }
    out
}

/// One row per checkpoint, bug, side and check that was run.
fn csv(matrix: &Matrix) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |row: &[&str]| writer.write_record(row).expect("rows of one length, into memory");
    write(&[
        "checkpoint",
        "id",
        "side",
        "rewrite",
        "stage",
        "outcome",
        "check",
        "leg",
        "value",
        "limit",
        "margin",
        "fired",
    ]);
    for sheet in &matrix.sheets {
        for row in &sheet.rows {
            let rewrite = row.rewrite.to_string();
            let of_row =
                [&sheet.checkpoint.name, &row.id, &row.side, &rewrite, &row.stage, row.outcome.word()];
            if row.cells.is_empty() {
                write(&[&of_row[..], &["", "", "", "", "", ""]].concat());
            }
            for cell in &row.cells {
                let numbers = [cell.value, cell.limit, cell.margin].map(|value| value.to_string());
                let fired = cell.fired.to_string();
                let of_cell = [&cell.check, &cell.leg, &numbers[0], &numbers[1], &numbers[2], &fired];
                write(&[&of_row[..], &of_cell.map(String::as_str)].concat());
            }
        }
    }
    let bytes = writer.into_inner().expect("writing into memory");
    String::from_utf8(bytes).expect("made of strings")
}

/// The score and what keeps the run from success, one sentence each; the score is last.
fn summary(matrix: &Matrix) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for sheet in &matrix.sheets {
        lines.push(format!(
            "{}: {} tokens in chunks of {}, the last {} also one by one; {} rows in {}",
            sheet.checkpoint.name,
            sheet.tokens,
            sheet.chunk,
            sheet.decoded,
            sheet.rows.len(),
            seconds(sheet.seconds)
        ));
        if !sheet.failing.is_empty() {
            lines.push(format!(
                "{}: fails without any bug, so nothing is shown by it: {}",
                sheet.checkpoint.name,
                sheet.failing.join(", ")
            ));
        }
    }
    lines.extend(tables::outcomes(matrix));
    let weak = matrix.weak_checks();
    if matrix.whole && !weak.is_empty() {
        lines.push(format!("Checks whose strongest bug is under ten times their limit: {}", weak.join(", ")));
    }
    let (caught, of) = matrix.score();
    let score = if of == 0 { "-".into() } else { format!("{:.3}", caught as f64 / of as f64) };
    lines.push(format!("Score: {caught} caught of {of} exercised ({score})"));
    lines
}
