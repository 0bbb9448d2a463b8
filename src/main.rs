//! The `assay` command: parses arguments, calls one verb, prints its result, exits with a documented code.
//!
//! Results go to stdout, everything else to stderr. Absent on purpose: any arithmetic; the rooms do that.

mod cli;
mod command;
mod console;
mod exit;
mod text;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => return exit::of_usage(&message),
    };
    match command::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::of_error(&error),
    }
}
