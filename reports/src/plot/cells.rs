//! A grid of cells, rows by columns, each with a word in it.

use super::{at, label};
use maud::{Markup, html};

const LEFT: f64 = 210.0;
/// Room for the slanted names of the columns, above and to the right.
const TOP: f64 = 118.0;
const RIGHT: f64 = 108.0;
const CELL_WIDTH: f64 = 26.0;
const CELL_HEIGHT: f64 = 18.0;
/// Characters of a label that surely fit.
const ROW_CHARACTERS: usize = 29;
const COLUMN_CHARACTERS: usize = 22;

/// A cell.
pub struct Filled {
    /// The column, from 0.
    pub column: usize,
    /// The CSS class of its colour.
    pub class: &'static str,
    /// What stands in it.
    pub word: String,
    /// Its tooltip.
    pub says: String,
}

/// Draws rows of `(label, cells)`; a column that a row does not fill stays empty.
pub fn cells(title: &str, columns: &[&str], rows: &[(&str, Vec<Filled>)]) -> Markup {
    let width = LEFT + CELL_WIDTH * columns.len() as f64 + RIGHT;
    let floor = TOP + CELL_HEIGHT * rows.len() as f64;
    html! {
        svg class="natural" viewBox={ "0 0 " (at(width)) " " (at(floor + 4.0)) }
            width=(at(width)) height=(at(floor + 4.0))
            role="img" aria-label={ (title) ", " (rows.len()) " rows by " (columns.len())
                " columns; the numbers are in the table below" } {
            @for (index, name) in columns.iter().enumerate() {
                @let x = LEFT + CELL_WIDTH * index as f64;
                path class="grid" d={ "M" (at(x)) " " (at(TOP)) "V" (at(floor)) } {}
                @let (middle, above) = (at(x + CELL_WIDTH / 2.0), at(TOP - 7.0));
                text class="slanted" transform={ "translate(" (middle) " " (above) ") rotate(-45)" } {
                    (label(name, COLUMN_CHARACTERS))
                }
            }
            @for (index, (name, filled)) in rows.iter().enumerate() {
                @let y = TOP + CELL_HEIGHT * index as f64;
                path class="grid" d={ "M" (at(LEFT)) " " (at(y)) "H" (at(width - RIGHT)) } {}
                text class="row-label end" x=(at(LEFT - 8.0)) y=(at(y + CELL_HEIGHT / 2.0 + 3.8)) {
                    (label(name, ROW_CHARACTERS))
                }
                @for cell in filled { (draw(cell, y)) }
            }
            path class="grid" d={ "M" (at(LEFT)) " " (at(floor)) "H" (at(width - RIGHT)) "V" (at(TOP)) } {}
        }
    }
}

fn draw(cell: &Filled, y: f64) -> Markup {
    let x = LEFT + CELL_WIDTH * cell.column as f64;
    html! {
        g class={ "cell " (cell.class) } {
            title { (cell.says) }
            rect x=(at(x + 1.0)) y=(at(y + 1.0)) width=(at(CELL_WIDTH - 2.0))
                height=(at(CELL_HEIGHT - 2.0)) rx="2" {}
            text x=(at(x + CELL_WIDTH / 2.0)) y=(at(y + CELL_HEIGHT / 2.0 + 3.3)) { (cell.word) }
        }
    }
}
