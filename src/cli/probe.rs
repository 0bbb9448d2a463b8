//! `assay probe`.

use clap::Args;
use std::path::PathBuf;

/// `assay probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// Folder of a checkpoint whose shapes are called; of its files only config.json is read [default: the
    /// shapes of the released model]
    pub checkpoint: Option<PathBuf>,
    /// Plant bugs of the catalogue in the port's steps, to see them found: ids with commas between them
    #[arg(long, value_name = "BUGS")]
    pub port_mutant: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// No progress, and nothing but the shapes that are bad and the last line
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
}
