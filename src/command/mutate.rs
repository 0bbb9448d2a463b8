//! `assay mutate`: a checkpoint with a planted bug in it.

use crate::cli::Mutate;
use spec::Result;

/// Writes the folder and says what it holds.
pub fn run(_arguments: &Mutate, _out: &mut String) -> Result<()> {
    todo!()
}
