//! `assay bisect`: where the port leaves the reference.

use crate::cli;
use spec::Result;

/// Searches and prints; gives the exit code.
pub fn run(_arguments: &cli::Bisect, _out: &mut String) -> Result<u8> {
    todo!()
}
