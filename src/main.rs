//! The `assay` command: parses arguments, calls one verb, prints its result, exits with a documented code.
//!
//! Results go to stdout, everything else to stderr. Absent on purpose: any arithmetic; the rooms do that.

mod bench;
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
    // told to stop (Ctrl-C, TERM): leave nothing half-written
    let stop = || {
        spec::output::remove_unfinished();
        std::process::exit(exit::STOPPED);
    };
    ctrlc::set_handler(stop).expect("no other handler was set");
    let mut out = String::new();
    let outcome = command::run(arguments.command, &mut out);
    match (exit::print(&out), outcome) {
        (_, Err(error)) | (Err(error), Ok(_)) => exit::of_error(&error),
        (Ok(()), Ok(code)) => ExitCode::from(code),
    }
}
