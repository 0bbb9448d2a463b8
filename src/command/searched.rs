//! What `assay bisect` and `assay explain` search: one sequence, both sides, how the port is fed.

use crate::bench::Workbench;
use crate::cli::{Searched, Tokens};
use crate::text::{self, Texts};
use spec::{Error, Result, Schedule, config_file};
use std::num::NonZeroUsize;

/// Both sides and the tokens, of which the first case is searched.
pub struct Opened {
    pub bench: Workbench,
    pub texts: Texts,
    pub schedule: Schedule,
}

/// Reads and opens. Errors: whatever cannot be read or used; [`Error::Argument`] on several sequences.
pub fn open(searched: &Searched) -> Result<Opened> {
    let dir = &searched.checkpoint;
    let config = config_file::read(dir)?;
    let texts = text::read(dir, &config, &one_sequence(&searched.tokens)?)?;
    let threads = searched.threads.map(NonZeroUsize::get);
    let bench = Workbench::open(dir, threads, searched.port_mutant.as_deref())?;
    let chunks = Schedule::chunks_of(searched.chunk.get());
    Ok(Opened { bench, texts, schedule: Schedule { decode_from: searched.decode_from, ..chunks } })
}

/// The same tokens, cut into one sequence. Errors: [`Error::Argument`] if more were asked for.
fn one_sequence(tokens: &Tokens) -> Result<Tokens> {
    let one = NonZeroUsize::MIN;
    match tokens.sequences {
        Some(several) if several > one => Err(Error::Argument {
            what: "--sequences".into(),
            expected: "one sequence to search".into(),
            found: several.to_string(),
            next: "search each on its own, with --tokens".into(),
        }),
        _ => Ok(Tokens { sequences: Some(one), ..tokens.clone() }),
    }
}
