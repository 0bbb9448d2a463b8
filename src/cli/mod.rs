//! The command line's shape. Absent on purpose: doing anything.

mod convert;
mod mutants;
mod probe;
mod search;

pub use convert::{BitsOrKeep, Convert};
pub use mutants::{Mutants, MutantsList, MutantsRun, MutantsShow, MutantsVerb, Mutate};
pub use probe::Probe;
pub use search::{Bisect, Explain, Searched};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

/// Tests a port of a mixture-of-experts language model against an independent reference.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Verb,
}

/// One subcommand each.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Census of a checkpoint: tensors, parameters, dtypes, layer kinds, and what is wrong with it
    Inspect(Inspect),
    /// Run one side and record its trace
    Run(Run),
    /// Compare the port with the reference, layer by layer and end to end
    Compare(Compare),
    /// Run every check and its planted bugs, and end in PASS, FAIL, INCOMPLETE or VOID
    Gate(Gate),
    /// Freeze what decides a verdict: limits, controls, texts, checkpoint, program
    Freeze(Freeze),
    /// Turn the record of a gate run into tables, or into a page with plots
    Report(Report),
    /// The catalogue of planted bugs: list, show one, or run all against every check
    Mutants(Mutants),
    /// Find where the port leaves the reference: layer, site, rows, heads, and the shortest case
    Bisect(Bisect),
    /// Find which known bug, or which simple map, makes the divergence vanish
    Explain(Explain),
    /// Call the port's kernels by themselves, at a model's shapes and where kernels have failed
    Probe(Probe),
    /// Write a copy of a checkpoint with a planted bug in it, for a port of any kind
    Mutate(Mutate),
    /// Write a tiny checkpoint from a seed
    Make(Make),
    /// Write a build packed by MLX's affine quantiser, as mlx-lm lays it out
    Convert(Convert),
}

/// `assay inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Folder of the checkpoint: config.json and model.safetensors, or shards with their index
    pub checkpoint: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Where tokens come from, and how they are cut.
#[derive(Debug, Clone, Args)]
pub struct Tokens {
    /// A text; tokens by the checkpoint's tokenizer.json, or its bytes where the vocabulary is 256
    #[arg(long, value_name = "FILE", group = "source")]
    pub text: Option<PathBuf>,
    /// Token ids: a JSON list (cut like a text), or a list of lists (each one sequence)
    #[arg(long, value_name = "FILE", group = "source")]
    pub tokens: Option<PathBuf>,
    /// N seeded random tokens; the seed is the preset's own, or 0 for any other checkpoint
    #[arg(long, value_name = "N", group = "source")]
    pub random_tokens: Option<NonZeroUsize>,
    /// How many sequences to use [default: 2, or as many as there are]
    #[arg(long, value_name = "N")]
    pub sequences: Option<NonZeroUsize>,
    /// Tokens per sequence [default: 1024, or all where there are fewer]
    #[arg(long, value_name = "N")]
    pub length: Option<NonZeroUsize>,
}

/// `assay run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Folder of the checkpoint
    pub checkpoint: PathBuf,
    /// Which side to run
    #[arg(long)]
    pub side: SideName,
    #[command(flatten)]
    pub tokens: Tokens,
    /// Whose expert choices are executed: the side's own, or those of the trace given by --trace
    #[arg(long, default_value = "free")]
    pub routing: RoutingName,
    /// The recorded trace whose choices are forced: a folder made by `assay run`
    #[arg(long, value_name = "DIR", required_if_eq("routing", "forced"))]
    pub trace: Option<PathBuf>,
    /// Arithmetic; bf16 on the reference is its emulation
    #[arg(long, default_value = "f32")]
    pub precision: PrecisionName,
    /// Tokens per prefill call
    #[arg(long, value_name = "N", default_value = "128")]
    pub chunk: NonZeroUsize,
    /// Feed one token per call from this position on
    #[arg(long, value_name = "POSITION")]
    pub decode_from: Option<usize>,
    /// Sites to record: names separated by commas, `none`, or `all` [default: what `assay compare` reads]
    #[arg(long, value_name = "LIST")]
    pub sites: Option<String>,
    /// Folder to write; must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// `assay compare`.
#[derive(Debug, Args)]
#[command(override_usage = "assay compare CHECKPOINT --text FILE [OPTIONS]\n       \
                      assay compare REF_TRACE PORT_TRACE [OPTIONS]")]
pub struct Compare {
    /// Folder of the checkpoint; or, with PORT_TRACE, the reference's recorded trace
    #[arg(value_name = "CHECKPOINT|REF_TRACE")]
    pub left: PathBuf,
    /// The port's recorded trace
    #[arg(value_name = "PORT_TRACE", conflicts_with_all = LIVE_ONLY)]
    pub port_trace: Option<PathBuf>,
    #[command(flatten)]
    pub tokens: Tokens,
    /// End-to-end runs to make [default: both]
    #[arg(long)]
    pub routing: Option<RoutingName>,
    /// The port's arithmetic; the reference stays in f32
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
    /// Layers of the table: `3..7` (3 to 6), `3..=7`, or one number [default: all]
    #[arg(long, value_name = "RANGE", value_parser = layer_range)]
    pub layers: Option<Range<usize>>,
    /// Print JSON instead of tables
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the per-layer table as CSV
    #[arg(long)]
    pub csv: bool,
}

/// Options that make no sense beside a recorded trace.
const LIVE_ONLY: [&str; 11] = [
    "text",
    "tokens",
    "random_tokens",
    "sequences",
    "length",
    "routing",
    "precision",
    "chunk",
    "decode_from",
    "port_mutant",
    "csv",
];

/// What is judged, by what, on which texts.
#[derive(Debug, Args)]
pub struct Judged {
    /// Folder of the checkpoint
    pub checkpoint: PathBuf,
    /// The checkpoint that this one is a build of: its choices are forced, its golden outputs hold, and what
    /// the packing costs is reported
    #[arg(long, value_name = "DIR")]
    pub reference: Option<PathBuf>,
    /// Limits and controls: a gate file, or the built-in `trained` or `random` [default: random for a
    /// checkpoint made by `assay make`, else trained]
    #[arg(long, value_name = "FILE|NAME")]
    pub gate: Option<PathBuf>,
    /// A text for a set of the gate; repeat for more sets, or for more texts of one; only the sets named
    /// are run [default: the built-in held-out text, or seeded random tokens, for every set]
    #[arg(long = "set", value_name = "NAME=FILE", value_parser = name_and_file)]
    pub sets: Vec<(String, PathBuf)>,
    /// Recorded outputs of a third implementation [default: golden/NAME.safetensors beside the checkpoint]
    #[arg(long, value_name = "FILE")]
    pub golden: Option<PathBuf>,
}

/// `assay gate`.
#[derive(Debug, Args)]
pub struct Gate {
    #[command(flatten)]
    pub judged: Judged,
    /// Folder that takes the run's folder, `<utc>-<name>`
    #[arg(short, long, value_name = "DIR", default_value = "reports")]
    pub output: PathBuf,
    /// Name of the run [default: the checkpoint's]
    #[arg(long, conflicts_with = "resume")]
    pub name: Option<String>,
    /// Go on with a run that was stopped: its folder
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub resume: Option<PathBuf>,
    /// Refuse to run if anything is not as this lock froze it
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Plant a bug of the catalogue in the port that is judged, to see the gate fail
    #[arg(long, value_name = "BUG")]
    pub port_mutant: Option<String>,
    /// Do not plant this control's bug, to see that the gate notices
    #[arg(long, value_name = "BUG", hide = true)]
    pub disable_control: Option<String>,
    /// Threads of the reference; changes no number [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Print the record as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// No progress, and nothing but the verdict
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
}

/// `assay freeze`.
#[derive(Debug, Args)]
pub struct Freeze {
    #[command(flatten)]
    pub judged: Judged,
    /// The lock to write, or to amend
    #[arg(short, long, value_name = "FILE", default_value = "gate.lock")]
    pub output: PathBuf,
    /// Amend an existing lock: why
    #[arg(long, value_name = "REASON")]
    pub amend: Option<String>,
}

/// `assay report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Folder of a gate run, or its record.json
    pub record: PathBuf,
    /// What to make of it
    #[arg(long, default_value = "md")]
    pub format: FormatName,
    /// File to write; must not exist [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// A report's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// Tables for a write-up
    Md,
    /// The per-layer numbers
    Csv,
    /// The record
    Json,
    /// One page with plots
    Html,
}

impl From<FormatName> for reports::Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Md => reports::Format::Md,
            FormatName::Csv => reports::Format::Csv,
            FormatName::Json => reports::Format::Json,
            FormatName::Html => reports::Format::Html,
        }
    }
}

/// `assay make`.
#[derive(Debug, Args)]
pub struct Make {
    /// pattern5, real-layout or wide
    pub preset: String,
    /// Seed of every tensor's stream and of the preset's tokens
    #[arg(long)]
    pub seed: u64,
    /// Number of layers, for `wide` only
    #[arg(long)]
    pub layers: Option<usize>,
    /// Folder to write; must not exist
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

/// A side's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SideName {
    Reference,
    Port,
}

/// A routing's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoutingName {
    Free,
    Forced,
}

/// A precision's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    F32,
    Bf16,
}

impl From<PrecisionName> for spec::Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::F32 => spec::Precision::F32,
            PrecisionName::Bf16 => spec::Precision::Bf16,
        }
    }
}

/// `short=text.txt`.
fn name_and_file(typed: &str) -> Result<(String, PathBuf), String> {
    match typed.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.into(), file.into())),
        _ => Err(format!("`{typed}` names no set and file: write `short=text.txt`")),
    }
}

/// `3..7`, `3..=7` or `3`, as a half-open range that is not empty.
fn layer_range(typed: &str) -> Result<Range<usize>, String> {
    let refuse = |word: &str| format!("`{word}` is no layer: write `3..7` (3 to 6), `3..=7` or `3`");
    let number = |word: &str| word.trim().parse::<usize>().map_err(|_| refuse(word));
    let range = if let Some((from, to)) = typed.split_once("..=") {
        number(from)?..number(to)?.saturating_add(1)
    } else if let Some((from, to)) = typed.split_once("..") {
        number(from)?..number(to)?
    } else {
        let layer = number(typed)?;
        layer..layer.saturating_add(1)
    };
    if range.is_empty() { Err(format!("`{typed}` holds no layer")) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use rstest::rstest;

    #[test]
    fn the_command_line_has_no_conflicting_definitions() {
        Arguments::command().debug_assert();
    }

    #[rstest]
    #[case("3..7", Ok(3..7))]
    #[case("3..=7", Ok(3..8))]
    #[case("4", Ok(4..5))]
    #[case("7..3", Err("`7..3` holds no layer"))]
    #[case("a..3", Err("`a` is no layer: write `3..7` (3 to 6), `3..=7` or `3`"))]
    #[case("3-6", Err("`3-6` is no layer: write `3..7` (3 to 6), `3..=7` or `3`"))]
    fn layer_ranges_are_read_as_rust_reads_them(
        #[case] typed: &str,
        #[case] expected: Result<Range<usize>, &str>,
    ) {
        assert_eq!(layer_range(typed), expected.map_err(String::from));
    }
}
