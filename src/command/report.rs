//! `assay report`: a record as Markdown, CSV, JSON or HTML.

use crate::cli::{self, FormatName};
use crate::console::say;
use diff::gate::folder;
use reports::Format;
use spec::{Error, Result, output};

/// Renders a record.
pub fn run(arguments: &cli::Report, out: &mut String) -> Result<()> {
    let record = folder::read(&arguments.record)?;
    let format = match arguments.format {
        FormatName::Md => Format::Md,
        FormatName::Csv => Format::Csv,
        FormatName::Json => Format::Json,
        FormatName::Html => Format::Html,
    };
    let text = reports::render(&record, format);
    let Some(path) = &arguments.output else {
        out.push_str(&text);
        return Ok(());
    };
    if path.symlink_metadata().is_ok() {
        return Err(Error::Argument {
            what: format!("--output {}", path.display()),
            expected: "a name that is free".into(),
            found: "a file of that name".into(),
            next: "remove it or name another file".into(),
        });
    }
    output::write_file(path, |file| file.write_all(text.as_bytes()))?;
    say!(out, "{}", path.display());
    Ok(())
}
