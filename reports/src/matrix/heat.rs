//! The matrix as one HTML file: a heat map of margins for every checkpoint, and the tables.

use super::{summary, tables};
use crate::html::{page, table};
use crate::number::number;
use diff::gate::record::WEAK;
use diff::matrix::{Cell, Matrix, Sheet};
use maud::{Markup, html};

const CAPTION: &str = "How many times its limit each check reached on each bug, as a power of ten. \
                       Empty: the check ran and did not fire. A dash: it was not run on that side. \
                       Dashed: it fired under ten times its limit.";

/// The whole file.
pub fn document(matrix: &Matrix) -> String {
    let title = "Planted bugs and checks";
    let lines = summary(matrix);
    page(
        title,
        &html! {
            header {
                p class="kind" { "Mutation matrix" }
                h1 { (title) }
                ul { @for line in &lines { li { (line) } } }
            }
            @for (index, sheet) in matrix.sheets.iter().enumerate() {
                section id={ "margins-" (index) } {
                    h2 { "Margins on " (sheet.checkpoint.name) }
                    p { (CAPTION) }
                    (heat(sheet))
                }
            }
            section id="rows" {
                h2 { "Rows" }
                (table(&tables::rows(matrix)))
            }
            section id="strongest" {
                h2 { "The strongest bug of each check" }
                (table(&tables::strongest(matrix)))
            }
        },
    )
}

fn heat(sheet: &Sheet) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label={ "Margins on " (sheet.checkpoint.name) } {
            table class="heat" {
                thead {
                    tr {
                        th scope="col" { "id" }
                        th scope="col" { "side" }
                        @for check in &sheet.checks { th scope="col" class="tilted" { span { (check) } } }
                        th scope="col" { "outcome" }
                    }
                }
                tbody {
                    @for row in &sheet.rows {
                        tr {
                            th scope="row" { (row.id) }
                            td { (row.side) }
                            @for check in &sheet.checks {
                                (square(row.cells.iter().find(|cell| cell.check == *check)))
                            }
                            td { (row.outcome.word()) }
                        }
                    }
                }
            }
        }
    }
}

fn square(cell: Option<&Cell>) -> Markup {
    match cell {
        None => html! { td class="none" { "–" } },
        Some(cell) if !cell.fired => html! { td { } },
        Some(cell) => {
            let title =
                format!("{}: {} against {}, {} times", cell.leg, cell.value, cell.limit, number(cell.margin));
            html! { td class=(shade(cell.margin)) title=(title) { (power(cell.margin)) } }
        }
    }
}

/// The margin's power of ten, cut.
fn power(margin: f64) -> String {
    if margin.is_finite() { format!("{}", margin.log10().floor()) } else { number(margin) }
}

fn shade(margin: f64) -> &'static str {
    match margin {
        _ if margin < WEAK => "weak",
        _ if margin < 1e2 => "heat1",
        _ if margin < 1e3 => "heat2",
        _ if margin < 1e5 => "heat3",
        _ => "heat4",
    }
}
