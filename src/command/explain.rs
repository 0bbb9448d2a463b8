//! `assay explain`: which known bug makes the divergence vanish.

use crate::cli;
use spec::Result;

/// Tries all and prints.
pub fn run(_arguments: &cli::Explain, _out: &mut String) -> Result<()> {
    todo!()
}
