//! `assay inspect`: the census of a checkpoint; a checkpoint with a problem is bad input, after it was shown.

use super::{checkpoint, print_json};
use crate::cli::Inspect;
use crate::console;
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
pub fn run(arguments: &Inspect) -> Result<()> {
    let dir = &arguments.checkpoint;
    let survey = reference::survey(dir)?;
    let scan = survey.problems.is_empty().then(|| checkpoint::scan(dir, &survey)).transpose()?;
    if arguments.json {
        print_json(&Inspection { schema: "assay-inspect/1", survey: &survey, scan: scan.as_ref() });
    } else {
        console::print_survey(dir, &survey);
    }
    if let Some(problem) = survey.problems.first() {
        return Err(problem.clone().into());
    }
    let scan = scan.expect("a checkpoint without a problem was scanned");
    if !arguments.json {
        println!("sha256 of the weights {}", scan.weights_sha256);
    }
    checkpoint::refuse_not_finite(dir, &scan)
}
