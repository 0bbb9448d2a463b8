//! `assay mutants`: the catalogue, and the matrix of what each check catches.

use crate::cli;
use spec::Result;

/// Carries out one verb; gives the exit code.
pub fn run(_arguments: &cli::Mutants, _out: &mut String) -> Result<u8> {
    todo!()
}
