//! A record as Markdown, CSV, JSON or HTML.
//!
//! Job: show what a gate run found to people who port models and publish tables about it. Input: a
//! [`Record`]. Outputs: whole documents as text, and the final table of a terminal. Every table is made once
//! (`content`) and written twice, so that Markdown and HTML cannot disagree.
//!
//! Absent on purpose: judging. Outcomes, limits, margins and the verdict are shown as the record has them.

mod content;
mod figure;
mod html;
mod layers;
mod markdown;
mod matrix;
mod number;
mod plot;

pub use layers::layers_csv;
pub use markdown::terminal;
pub use matrix::{matrix, matrix_terminal};
pub use number::{count, share};

use diff::gate::record::Record;

/// The form of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Markdown (GitHub's tables).
    Md,
    /// The layers, one row per set and layer: [`layers_csv`].
    Csv,
    /// The record itself, indented.
    Json,
    /// One file with plots; needs no network and no script.
    Html,
}

/// The whole document.
pub fn render(record: &Record, format: Format) -> String {
    match format {
        Format::Md => markdown::document(record),
        Format::Csv => layers_csv(record),
        Format::Json => {
            let text = serde_json::to_string_pretty(record).expect("a record has string keys alone");
            format!("{text}\n")
        }
        Format::Html => html::document(record),
    }
}
