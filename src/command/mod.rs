//! One file a verb. Each reads its input, calls the rooms, and prints the result.

mod checkpoint;
mod compare;
mod inspect;
mod make;
mod run;

use crate::cli::Verb;
use spec::{Error, Result};

/// Carries out one verb; `out` takes what goes to stdout, also where the verb ends in an error.
pub fn run(verb: Verb, out: &mut String) -> Result<()> {
    match verb {
        Verb::Inspect(arguments) => inspect::run(&arguments, out),
        Verb::Run(arguments) => run::run(&arguments, out),
        Verb::Compare(arguments) => compare::run(&arguments, out),
        Verb::Make(arguments) => make::run(&arguments, out),
    }
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
