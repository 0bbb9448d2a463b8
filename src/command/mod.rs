//! One file a verb. Each reads its input, calls the rooms, and prints the result.

mod checkpoint;
mod compare;
mod inspect;
mod make;
mod run;

use crate::cli::Verb;
use spec::Result;

/// Carries out one verb.
pub fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Inspect(arguments) => inspect::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Compare(arguments) => compare::run(&arguments),
        Verb::Make(arguments) => make::run(&arguments),
    }
}

/// Prints a result as JSON on stdout.
fn print_json(result: &impl serde::Serialize) {
    println!("{}", serde_json::to_string_pretty(result).expect("a result serialises"));
}
