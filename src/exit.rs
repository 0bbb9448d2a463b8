//! Exit codes: a small written contract (README, "Exit codes").

use spec::error::Blame;
use std::process::ExitCode;

/// Usage or bad input; nothing was written.
pub const USAGE: u8 = 2;
/// A precondition failed or nothing was compared.
pub const VOID: u8 = 3;
/// This program or its engine failed.
pub const INTERNAL: u8 = 70;

/// Prints clap's message where it belongs: help and version to stdout with 0, a usage error to stderr with 2.
pub fn of_usage(message: &clap::Error) -> ExitCode {
    // a closed pipe is the reader's choice, not an error of ours
    let _ = message.print();
    if message.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Prints one message to stderr and gives the code of whose fault it is.
pub fn of_error(error: &spec::Error) -> ExitCode {
    eprintln!("assay: {error}");
    ExitCode::from(match error.blame() {
        Blame::Input => USAGE,
        Blame::Void => VOID,
        Blame::Internal => INTERNAL,
    })
}
