//! What can go wrong, in the words both sides use. Every message is one line, completes "failed to …" and
//! says what was expected, what was found and what to do next.
//!
//! Absent on purpose: a catch-all for bad input. A new kind of bad input is a new variant, so that both
//! sides refuse it in the same words.

use std::fmt::{self, Display, Formatter, Write};
use std::path::PathBuf;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Shows a value with control characters and line separators escaped: names, keys and values come from
/// files, and every message is one line that leaves a terminal as it is.
struct OneLine<T>(T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '\u{2028}' | '\u{2029}' => write!(self.0, "{}", c.escape_unicode()),
            c if c.is_control() => write!(self.0, "{}", c.escape_debug()),
            c => self.0.write_char(c),
        })
    }
}

/// `: expected …, found …; what to do next`, in one line.
struct Said<'a>(&'a str, &'a str, &'a str);

impl Display for Said<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Said(expected, found, next) = self;
        write!(f, ": expected {}, found {}; {}", OneLine(expected), OneLine(found), OneLine(next))
    }
}

/// Anything that stops a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `config.json` says something that is not supported, or not at all (K1, K2).
    #[error(
        "failed to read key `{}` of {}{}",
        OneLine(key), OneLine(path.display()), Said(expected, found, next)
    )]
    Config {
        /// The file.
        path: PathBuf,
        /// The JSON key.
        key: String,
        /// What is supported.
        expected: String,
        /// The value as written.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// A file of the checkpoint, or the set of its files, is not what it should be.
    #[error("failed to read checkpoint file {}{}", OneLine(path.display()), Said(expected, found, next))]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What a sound file would hold.
        expected: String,
        /// What this one holds.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// A tensor is missing, extra, mis-shaped, of an unsupported dtype or not finite (K3).
    #[error(
        "failed to load tensor `{}` of {}{}",
        OneLine(name), OneLine(path.display()), Said(expected, found, next)
    )]
    Tensor {
        /// The file, or the folder where no file has it.
        path: PathBuf,
        /// The tensor's name in the checkpoint.
        name: String,
        /// Shape, dtype or presence that was expected.
        expected: String,
        /// What was found; for a value that is not finite, with its index.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// A text, a token list or a schedule that cannot be run.
    #[error(
        "failed to run case `{}`: expected {}, found {}; {}",
        OneLine(case),
        OneLine(expected),
        OneLine(found),
        OneLine(next)
    )]
    Case {
        /// The case's name.
        case: String,
        /// What can be run.
        expected: String,
        /// What was given.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// Forced choices that are not a route.
    #[error(
        "failed to force the choices of `{}`: expected {}, found {}; {}",
        OneLine(case),
        OneLine(expected),
        OneLine(found),
        OneLine(next)
    )]
    Routing {
        /// The case's name.
        case: String,
        /// What a route is here.
        expected: String,
        /// What was given, with token and layer.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// A recorded trace that is malformed, or of something else.
    #[error("failed to use trace {}{}", OneLine(path.display()), Said(expected, found, next))]
    Trace {
        /// The trace file.
        path: PathBuf,
        /// What was expected of it.
        expected: String,
        /// What it holds.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// An option or argument whose value cannot be used.
    #[error(
        "failed to use {}: expected {}, found {}; {}",
        OneLine(what),
        OneLine(expected),
        OneLine(found),
        OneLine(next)
    )]
    Argument {
        /// The option as typed.
        what: String,
        /// What can be given.
        expected: String,
        /// What was given.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// The operating system refused.
    #[error("failed to {doing} {}: {}; {}", OneLine(path.display()), OneLine(source), OneLine(next))]
    Io {
        /// A verb: "open", "write".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What to do about it.
        next: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nothing was compared, or not all of what should have been.
    #[error(
        "failed to pair the two sides: expected {}, found {}; {}",
        OneLine(expected),
        OneLine(found),
        OneLine(next)
    )]
    Unpaired {
        /// The rows that were expected.
        expected: String,
        /// The rows that came.
        found: String,
        /// What to do about it.
        next: String,
    },
    /// A side's engine (MLX, a child process) failed.
    #[error("failed to {} with {engine}: {}", OneLine(doing), OneLine(message))]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// A verb phrase.
        doing: String,
        /// What the engine said.
        message: String,
    },
}

/// Whose fault it is; the command line turns it into an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The input or the environment: exit 2.
    Input,
    /// Nothing was compared: exit 3.
    Void,
    /// This program or its engine: exit 70.
    Internal,
}

impl Error {
    /// Whose fault this is.
    pub fn blame(&self) -> Blame {
        match self {
            Error::Unpaired { .. } => Blame::Void,
            Error::Engine { .. } => Blame::Internal,
            _ => Blame::Input,
        }
    }

    /// An operating-system refusal; `doing` is a verb, `next` what to do about it.
    pub fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
        next: impl Into<String>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let (path, next) = (path.into(), next.into());
        move |source| Error::Io { doing, path, next, source }
    }
}
