//! `assay inspect`: the census of a checkpoint; a checkpoint with a problem is bad input, after it was shown.

use super::{checkpoint, to_json};
use crate::cli::Inspect;
use crate::console::{self, say};
use reference::{Scan, Survey};
use spec::Result;

/// The JSON form.
#[derive(serde::Serialize)]
struct Inspection<'a> {
    schema: &'static str,
    #[serde(flatten)]
    survey: &'a Survey,
    /// `null` where the census found a problem.
    scan: Option<&'a Scan>,
}

/// Prints the census. Errors: the first problem, after all of them were printed.
pub fn run(arguments: &Inspect, out: &mut String) -> Result<()> {
    let dir = &arguments.checkpoint;
    let survey = reference::survey(dir)?;
    let scan = survey.problems.is_empty().then(|| checkpoint::scan(dir, &survey)).transpose()?;
    if arguments.json {
        let inspection = Inspection { schema: "assay-inspect/1", survey: &survey, scan: scan.as_ref() };
        out.push_str(&to_json(&inspection)?);
    } else {
        console::print_survey(dir, &survey, out);
    }
    if let Some(problem) = survey.problems.first() {
        return Err(problem.clone().into());
    }
    let scan = scan.expect("a checkpoint without a problem was scanned");
    if !arguments.json {
        say!(out, "sha256 of the weights {}", scan.weights_sha256);
    }
    if !arguments.json {
        for bad in &scan.not_finite {
            say!(out, "- {} of {}: {}", bad.tensor, bad.file, bad.found);
        }
    }
    checkpoint::refuse_not_finite(dir, &scan)
}
