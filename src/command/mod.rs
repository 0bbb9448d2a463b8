//! One file a verb. Each reads its input, calls the rooms, and prints the result.

mod bisect;
mod checkpoint;
mod compare;
mod convert;
mod explain;
mod freeze;
mod gate;
mod inspect;
mod judged;
mod make;
mod mutants;
mod mutate;
mod probe;
mod report;
mod run;
mod searched;

use crate::cli::Verb;
use crate::exit;
use spec::{Error, Result, output};
use std::path::Path;

/// Carries out one verb and gives its exit code; `out` takes what goes to stdout, also where the verb ends in
/// an error.
pub fn run(verb: Verb, out: &mut String) -> Result<u8> {
    match verb {
        Verb::Mutants(arguments) => return mutants::run(&arguments, out),
        Verb::Probe(arguments) => return probe::run(&arguments, out),
        Verb::Bisect(arguments) => return bisect::run(&arguments, out),
        Verb::Gate(arguments) => return gate::run(&arguments, out).map(exit::of_verdict),
        Verb::Inspect(arguments) => inspect::run(&arguments, out),
        Verb::Run(arguments) => run::run(&arguments, out),
        Verb::Compare(arguments) => compare::run(&arguments, out),
        Verb::Freeze(arguments) => freeze::run(&arguments, out),
        Verb::Report(arguments) => report::run(&arguments, out),
        Verb::Explain(arguments) => explain::run(&arguments, out),
        Verb::Mutate(arguments) => mutate::run(&arguments, out),
        Verb::Make(arguments) => make::run(&arguments, out),
        Verb::Convert(arguments) => convert::run(&arguments, out),
    }
    .map(|()| 0)
}

/// Writes a file that was not there. Errors: [`Error::Argument`], [`Error::Io`].
fn write_new(path: &Path, text: &str) -> Result<()> {
    output::refuse_taken(path)?;
    output::write_file(path, |file| file.write_all(text.as_bytes()))
}

/// A result as JSON. Errors: [`Error::Argument`] on a path that JSON cannot hold.
fn to_json(result: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(result).map_err(|e| Error::Argument {
        what: "--json".into(),
        expected: "paths that are UTF-8".into(),
        found: e.to_string(),
        next: "rename the folder".into(),
    })?;
    Ok(text + "\n")
}
