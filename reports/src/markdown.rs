//! The report as Markdown, and the final table for a terminal.

use crate::content::{self, Section, Summary, Table, checks};
use comfy_table::{CellAlignment, presets};
use diff::gate::record::Record;
use std::fmt::Write as _;

/// The whole report.
pub fn document(record: &Record) -> String {
    let mut out = String::new();
    let summary = content::summary(record);
    header(&summary, &mut out);
    for Section { title, intro, tables, .. } in content::sections(record) {
        write!(out, "\n## {}\n", prose(&title)).expect("a String takes any text");
        for words in intro {
            write!(out, "\n{}\n", prose(&words)).expect("a String takes any text");
        }
        for table in tables {
            if !table.title.is_empty() {
                write!(out, "\n### {}\n", prose(&table.title)).expect("a String takes any text");
            }
            write!(out, "\n{}\n", grid(&table, cell)).expect("a String takes any text");
        }
    }
    out
}

/// What is printed at the end of a run: every leg, the controls, and the verdict with its reasons last.
pub fn terminal(record: &Record) -> String {
    let mut out = String::new();
    let summary = content::summary(record);
    for table in [checks::findings(record), checks::control_legs(record)] {
        if !table.rows.is_empty() {
            write!(out, "{}\n\n", grid(&table, terminal_cell)).expect("a String takes any text");
        }
    }
    for notice in &summary.notices {
        writeln!(out, "{}", plain(notice)).expect("a String takes any text");
    }
    writeln!(out, "Verdict: {} — {}", summary.verdict, summary.meaning).expect("a String takes any text");
    for reason in &summary.reasons {
        writeln!(out, "  - {}", plain(reason)).expect("a String takes any text");
    }
    out
}

fn header(summary: &Summary, out: &mut String) {
    let mut say = |words: &str| writeln!(out, "{words}").expect("a String takes any text");
    say(&format!("# Gate report: {}\n", prose(&summary.name)));
    say(&format!("**{}**: {}\n", summary.verdict, prose(&summary.meaning)));
    for notice in &summary.notices {
        say(&format!("> **{}**\n", prose(notice)));
    }
    for fact in &summary.facts {
        say(&format!("- {}: {}", prose(fact.0), prose(&fact.1)));
    }
    if !summary.reasons.is_empty() {
        say("\n## What keeps it from PASS\n");
        summary.reasons.iter().for_each(|reason| say(&format!("- {}", prose(reason))));
    }
    say("\n## What this gate cannot see\n");
    summary.blind.iter().for_each(|blind| say(&format!("- {}", prose(blind))));
}

/// A table in Markdown.
pub fn grid(table: &Table, escape: impl Fn(&str) -> String) -> comfy_table::Table {
    let mut grid = comfy_table::Table::new();
    grid.load_style(presets::ASCII_MARKDOWN).set_header(table.columns.iter().map(|c| escape(&c.name)));
    for row in &table.rows {
        grid.add_row(row.iter().map(|cell| escape(&cell.text)));
    }
    for (column, shown) in table.columns.iter().zip(grid.column_iter_mut()) {
        if column.is_number {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    grid
}

/// Without control characters, so that no name can break a line or drive a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Text that stays in its cell on a terminal.
pub fn terminal_cell(text: &str) -> String {
    plain(text).replace('|', "\\|")
}

/// Text that stays text inside one cell of a Markdown table.
pub fn cell(text: &str) -> String {
    let mut out = String::new();
    let characters: Vec<char> = plain(text).chars().collect();
    for (index, &character) in characters.iter().enumerate() {
        let is_word =
            |at: Option<usize>| at.and_then(|at| characters.get(at)).is_some_and(|c| c.is_alphanumeric());
        match character {
            '_' if is_word(index.checked_sub(1)) && is_word(Some(index + 1)) => out.push('_'),
            '\\' | '|' | '`' | '*' | '[' | ']' | '_' | '~' => out.extend(['\\', character]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            other => out.push(other),
        }
    }
    out
}

/// The same for a paragraph or a list item, which a first character could turn into something else.
pub fn prose(text: &str) -> String {
    let text = cell(text);
    if text.starts_with(['#', '-', '+', '>', '=']) { format!("\\{text}") } else { text }
}
