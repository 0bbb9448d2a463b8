//! Exit codes: a small written contract (README, "Exit codes").

use diff::gate::record::Verdict;
use spec::Error;
use spec::error::Blame;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Usage or bad input; nothing was written.
pub const USAGE: u8 = 2;
/// A check failed.
pub const FAIL: u8 = 1;
/// A planted bug was not caught.
pub const INCOMPLETE: u8 = 5;
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

/// Told to stop by a signal, as a shell reports it; nothing half-written is left.
pub const STOPPED: i32 = 130;

/// The code of a gate's verdict.
pub fn of_verdict(verdict: Option<Verdict>) -> u8 {
    match verdict {
        Some(Verdict::Pass) => 0,
        Some(Verdict::Fail) => FAIL,
        Some(Verdict::Void) => VOID,
        Some(Verdict::Incomplete) => INCOMPLETE,
        None => INTERNAL,
    }
}

/// Writes a result to stdout. A reader that closed the pipe has read enough. Errors: [`Error::Io`].
pub fn print(result: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(result.as_bytes()).and_then(|()| out.flush()) {
        Err(refusal) if refusal.kind() != ErrorKind::BrokenPipe => {
            Err(Error::io("write the result to", "standard output", "send it where there is room")(refusal))
        }
        _ => Ok(()),
    }
}

/// Prints one message to stderr and gives the code of whose fault it is.
pub fn of_error(error: &Error) -> ExitCode {
    eprintln!("assay: {error}");
    ExitCode::from(match error.blame() {
        Blame::Input => USAGE,
        Blame::Void => VOID,
        Blame::Internal => INTERNAL,
    })
}
