//! What a report says, before it is Markdown or HTML: a summary, and sections of tables.

mod build;
pub mod checks;
pub mod ends;
pub mod layers;
pub mod origin;
mod summary;

pub use summary::{Summary, summary};

use diff::gate::record::Record;

/// A part of the report.
pub struct Section {
    /// Its anchor.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// Paragraphs before the tables.
    pub intro: Vec<String>,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A table of text.
pub struct Table {
    /// Its heading; empty where the section's says it all.
    pub title: String,
    /// One per cell of a row.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
pub struct Column {
    /// Its header, with the unit where there is one.
    pub name: String,
    /// Whether it is aligned as numbers are.
    pub is_number: bool,
}

/// A cell.
#[derive(Clone)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// How it is set off, never by colour alone: the text says it too.
    pub tone: Tone,
}

/// How a cell is set off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Not at all.
    Plain,
    /// As something that is as it should be.
    Good,
    /// As something that is barely so.
    Weak,
    /// As something that is not.
    Bad,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }
}

impl Table {
    /// An empty table; names that start with `#` are columns of numbers.
    pub fn new(title: impl Into<String>, names: &[&str]) -> Self {
        let column = |name: &&str| match name.strip_prefix('#') {
            Some(name) => Column { name: name.to_owned(), is_number: true },
            None => Column { name: (*name).to_owned(), is_number: false },
        };
        Self { title: title.into(), columns: names.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row. Panics if it is not as long as the header.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a cell for every column");
        self.rows.push(row);
    }
}

/// Every section, in the order of reading.
pub fn sections(record: &Record) -> Vec<Section> {
    let mut sections = vec![checks::checks(record), checks::controls(record)];
    sections.extend(layers::section(record));
    sections.extend(ends::end_to_end(record));
    sections.extend(build::build(record));
    sections.extend(ends::text(record));
    sections.push(origin::origin(record));
    sections.push(origin::times(record));
    sections
}
