//! The catalogue of planted bugs as text.

use super::{say, short, table};
use diff::bench::{Planted, PlantedIn};
use diff::matrix::{Matrix, Outcome};

/// One line each, bugs before rewrites.
pub fn print_catalogue(rows: &[Planted], out: &mut String) {
    let mut shown = table(&["id", "stage", "kind", "planted in", "rows", "what"], 6);
    for row in rows {
        shown.add_row([
            row.id.clone(),
            row.stage.clone(),
            kind(row).into(),
            sides(row),
            row.rows.join(", "),
            row.what.clone(),
        ]);
    }
    say!(out, "{shown}");
    let rewrites = rows.iter().filter(|row| row.rewrite).count();
    let of = |side| rows.iter().filter(|row| !row.rewrite && row.sides.contains(&side)).count();
    say!(out, "");
    say!(
        out,
        "{} bugs: {} in the port, {} in its checkpoint, {} in the reference, {} in the harness; {rewrites} \
         correct rewrites",
        rows.len() - rewrites,
        of(PlantedIn::Port),
        of(PlantedIn::Checkpoint),
        of(PlantedIn::Reference),
        of(PlantedIn::Harness)
    );
}

/// Everything about one, and what the committed matrix measured.
pub fn print_row(row: &Planted, measured: &Matrix, out: &mut String) {
    let or_none = |list: &[String]| if list.is_empty() { "-".into() } else { list.join(", ") };
    say!(out, "{} ({}, {})", row.id, kind(row), row.stage);
    say!(out, "  what        {}", row.what);
    say!(out, "  planted in  {}", sides(row));
    say!(out, "  rows        {}", or_none(&row.rows));
    say!(out, "  seen in     {}", or_none(&row.seen_in));
    say!(out, "  needs       {}", or_none(&row.needs));
    for sheet in &measured.sheets {
        for found in sheet.rows.iter().filter(|found| found.id == row.id) {
            say!(out, "");
            say!(
                out,
                "measured on {}, {} tokens, in the {}: {}{}",
                sheet.checkpoint.name,
                sheet.tokens,
                found.side,
                found.outcome.word(),
                if found.why.is_empty() { String::new() } else { format!(" ({})", found.why) }
            );
            // of the reference's bugs only the reference is asked, and never for tokens
            if let Some(subtlety) = found.subtlety().filter(|_| found.side != PlantedIn::Reference.name()) {
                say!(out, "  subtlety    {}", subtlety.words());
            }
            let mut fired: Vec<_> = found.cells.iter().filter(|cell| cell.fired).collect();
            fired.sort_by(|a, b| b.margin.total_cmp(&a.margin));
            for cell in fired {
                say!(
                    out,
                    "  fires       {} {}, {} times its limit",
                    cell.check,
                    cell.leg,
                    short(cell.margin)
                );
            }
            let blind: Vec<&str> =
                found.cells.iter().filter(|cell| !cell.fired).map(|cell| cell.check.as_str()).collect();
            if found.outcome == Outcome::Caught && !blind.is_empty() {
                say!(out, "  blind       {}", blind.join(", "));
            }
        }
    }
}

fn kind(row: &Planted) -> &'static str {
    if row.rewrite { "rewrite" } else { "bug" }
}

fn sides(row: &Planted) -> String {
    row.sides.iter().map(|side| side.name()).collect::<Vec<_>>().join(", ")
}
