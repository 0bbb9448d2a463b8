//! `assay freeze`: a lock on everything that decides a verdict.

use super::judged::{self, Switches};
use crate::cli;
use crate::console::say;
use diff::gate::lock::{Lock, entries};
use spec::{Error, Result};

/// Writes a lock, or amends one.
pub fn run(arguments: &cli::Freeze, out: &mut String) -> Result<()> {
    let path = &arguments.output;
    let exists = path.symlink_metadata().is_ok();
    let refuse = |expected: &str, found: &str, next: &str| Error::Argument {
        what: format!("lock {}", path.display()),
        expected: expected.into(),
        found: found.into(),
        next: next.into(),
    };
    if exists && arguments.amend.is_none() {
        let next = "amend it with --amend REASON, or name another file";
        return Err(refuse("a name that is free", "a file of that name", next));
    }
    let judged = judged::read(&arguments.judged, &Switches::default())?;
    let now = entries(&judged.inputs);
    let lock = match &arguments.amend {
        None => Lock::new(now),
        Some(reason) => {
            let (mut lock, _) = Lock::read(path)?;
            let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
            lock.amend(path, now, today, reason)?;
            lock
        }
    };
    lock.write(path)?;
    say!(
        out,
        "{}: {} entries frozen, {} amendments",
        path.display(),
        lock.entries.len(),
        lock.amendments.len()
    );
    Ok(())
}
