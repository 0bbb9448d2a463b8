//! Plots as inline SVG: a panel of lines over a numeric axis, rows with intervals, a grid of cells.
//!
//! Job: turn numbers into positions, marks and axes. Outputs: `maud` markup whose colours are CSS classes, so
//! that one file follows the reader's light or dark theme and prints. That is why no plotting crate is used:
//! their SVG backends write fixed colours into every element and know neither themes, nor tooltips, nor an
//! axis with a place for zero and NaN. Every value that an axis cannot show stands in a gutter beside it.
//!
//! Absent on purpose: knowing what is plotted, and dropping any value.

pub mod cells;
pub mod intervals;
pub mod mark;
pub mod panel;
pub mod scale;

use maud::{Markup, html};

/// A coordinate in the units of the view box, to a tenth.
fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Text cut to a number of characters, with the whole of it as its tooltip.
fn label(text: &str, most: usize) -> Markup {
    if text.chars().count() <= most {
        return html! { (text) };
    }
    let cut: String = text.chars().take(most - 1).collect();
    html! { (cut) "…" title { (text) } }
}
