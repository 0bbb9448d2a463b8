//! `assay bisect` and `assay explain`: what is searched, and how the port is fed.

use super::{PrecisionName, Tokens};
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Both sides over one sequence.
#[derive(Debug, Args)]
pub struct Searched {
    /// Folder of the checkpoint
    pub checkpoint: PathBuf,
    #[command(flatten)]
    pub tokens: Tokens,
    /// Arithmetic of the port; the reference emulates bf16
    #[arg(long, default_value = "f32")]
    pub precision: PrecisionName,
    /// Tokens per prefill call of the port
    #[arg(long, value_name = "N", default_value = "128")]
    pub chunk: NonZeroUsize,
    /// Feed the port one token per call from this position on
    #[arg(long, value_name = "POSITION")]
    pub decode_from: Option<usize>,
    /// Plant bugs of the catalogue in the port, to see them found: ids with commas between them
    #[arg(long, value_name = "BUGS")]
    pub port_mutant: Option<String>,
    /// Threads of the reference; changes no number [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `assay bisect`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 nothing to find, 1 something was found, 2 usage or bad input.")]
pub struct Bisect {
    #[command(flatten)]
    pub searched: Searched,
    /// Folder for the log of steps, the finding and the shrunk case; one that holds the log of the same
    /// search is gone on with
    #[arg(short, long, value_name = "DIR", default_value = "bisect")]
    pub output: PathBuf,
}

/// `assay explain`.
#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    pub searched: Searched,
    /// Bugs that are tried together, at most
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=3))]
    pub together: u8,
}
