//! `assay mutants` and `assay mutate`.

use clap::{Args, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// `assay mutants`.
#[derive(Debug, Args)]
pub struct Mutants {
    /// What to do with the catalogue
    #[command(subcommand)]
    pub verb: MutantsVerb,
}

/// One subcommand each.
#[derive(Debug, Subcommand)]
pub enum MutantsVerb {
    /// The planted bugs and the correct rewrites, one line each
    List(MutantsList),
    /// Everything about one: what it does, who met it, what sees it and what does not
    Show(MutantsShow),
    /// Plant every one and run every check: the matrix of what is caught, by which leg, by what margin
    Run(MutantsRun),
}

/// `assay mutants list`.
#[derive(Debug, Args)]
pub struct MutantsList {
    /// Only those of this stage: load, embedding, norm, rope, mask, cache, attention, router, experts, head,
    /// checker
    #[arg(long, value_name = "STAGE")]
    pub stage: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `assay mutants show`.
#[derive(Debug, Args)]
pub struct MutantsShow {
    /// Its id
    pub id: String,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// `assay mutants run`.
#[derive(Debug, Args)]
pub struct MutantsRun {
    /// Folders of checkpoints; a bug has to be caught on one of them
    #[arg(required = true)]
    pub checkpoints: Vec<PathBuf>,
    /// Only these: ids with commas between them
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only those of this stage
    #[arg(long, value_name = "STAGE", conflicts_with = "only")]
    pub stage: Option<String>,
    /// Tokens of the one sequence
    #[arg(long, value_name = "N", default_value = "256")]
    pub tokens: NonZeroUsize,
    /// Threads of the reference; changes no number [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Processes that share the rows [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// How to print the matrix [default: tables for a terminal]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<super::FormatName>,
    /// File to write; must not exist [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `assay mutate`.
#[derive(Debug, Args)]
pub struct Mutate {
    /// Folder of the checkpoint
    pub checkpoint: PathBuf,
    /// A bug that a configuration or tensors can carry; several with commas between them
    #[arg(long, value_name = "BUGS")]
    pub mutant: String,
    /// Folder to write; must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}
