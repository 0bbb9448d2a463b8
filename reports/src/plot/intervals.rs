//! Rows of values with their intervals, from left to right.

use super::mark::{Look, mark};
use super::panel::Axis;
use super::scale::Spot;
use super::{at, label};
use crate::number::number;
use maud::{Markup, html};

const WIDTH: f64 = 680.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 52.0;
const TOP: f64 = 8.0;
const ROW_PAD: f64 = 7.0;
/// Height of one value in a row.
const LANE: f64 = 9.5;
const BOTTOM: f64 = 40.0;
/// Characters of a label that surely fit to the left.
const LABEL_CHARACTERS: usize = 26;

/// A value with its interval.
pub struct Interval {
    /// Whose.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// Lower end, value, upper end.
    pub low_value_high: [f64; 3],
}

/// A row: a label and its values, one below the other.
pub struct Row {
    /// What the row is.
    pub label: String,
    /// The values.
    pub values: Vec<Interval>,
}

/// Draws them; `zero` adds a line there.
pub fn intervals(title: &str, axis: &Axis, rows: &[Row], zero: bool) -> Markup {
    let lanes = rows.iter().map(|row| row.values.len()).max().unwrap_or(1).max(1);
    let row_height = ROW_PAD + LANE * lanes as f64;
    let floor = TOP + row_height * rows.len() as f64;
    html! {
        svg class="wide" viewBox={ "0 0 " (at(WIDTH)) " " (at(floor + BOTTOM)) } role="img"
            aria-label={ (title) ": " (axis.label) ", " (rows.len())
                " rows; the numbers are in the table below" } {
            @for (share, word) in axis.scale.ticks() {
                @let x = x_of(share);
                path class="grid" d={ "M" (at(x)) " " (at(TOP)) "V" (at(floor)) } {}
                text class="tick middle" x=(at(x)) y=(at(floor + 16.0)) { (word) }
            }
            @if let (true, Spot::At(share)) = (zero, axis.scale.spot(0.0)) {
                path class="axis" d={ "M" (at(x_of(share))) " " (at(TOP)) "V" (at(floor)) } {}
            }
            text class="axis-title end" x=(at(WIDTH - RIGHT)) y=(at(floor + 34.0)) { (axis.label) " →" }
            @for (index, row) in rows.iter().enumerate() {
                @let top = TOP + row_height * index as f64;
                text class="row-label end" x=(at(LEFT - 12.0)) y=(at(top + row_height / 2.0 + 3.8)) {
                    (label(&row.label, LABEL_CHARACTERS))
                }
                @for (lane, value) in row.values.iter().enumerate() {
                    (interval(value, axis, top + (ROW_PAD + LANE) / 2.0 + LANE * lane as f64, &row.label))
                }
            }
        }
    }
}

fn x_of(share: f64) -> f64 {
    LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
}

/// What the axis cannot show stands to the right of it, with its word.
fn interval(value: &Interval, axis: &Axis, y: f64, row: &str) -> Markup {
    let [low, middle, high] = value.low_value_high;
    let says = format!("{row}, {}: {} ({} … {})", value.name, number(middle), number(low), number(high));
    let ends = (axis.scale.spot(low), axis.scale.spot(high));
    html! {
        @if let (Spot::At(from), Spot::At(to)) = ends {
            @let (from, to) = (at(x_of(from)), at(x_of(to)));
            @let (middle, top) = (at(y), at(y - 2.5));
            path class={ "whisker " (value.look.classes()) }
                d={ "M" (from) " " (middle) "H" (to) "M" (from) " " (top) "v5M" (to) " " (top) "v5" } {}
        }
        @if let Spot::At(share) = axis.scale.spot(middle) {
            (mark(value.look, x_of(share), y, 3.4, &says))
        } @else {
            @let x = WIDTH - RIGHT + 12.0;
            (mark(Look { hollow: true, ..value.look }, x, y, 3.4, &says))
            text class="tick" x=(at(x + 7.0)) y=(at(y + 3.8)) { (number(middle)) }
        }
    }
}
