//! `assay report`: a record as Markdown, CSV, JSON or HTML.

use super::write_new;
use crate::cli;
use crate::console::say;
use diff::gate::folder;
use spec::Result;

/// Renders a record.
pub fn run(arguments: &cli::Report, out: &mut String) -> Result<()> {
    let record = folder::read(&arguments.record)?;
    let text = reports::render(&record, arguments.format.into());
    let Some(path) = &arguments.output else {
        out.push_str(&text);
        return Ok(());
    };
    write_new(path, &text)?;
    say!(out, "{}", path.display());
    Ok(())
}
