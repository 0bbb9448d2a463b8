//! `assay compare`: the port against the reference on a checkpoint, or one recorded trace against another.

use super::{checkpoint, to_json};
use crate::bench::Workbench;
use crate::cli::{Compare, RoutingName};
use crate::console::{self, Phases, say};
use crate::text;
use diff::bench::Bench;
use diff::compare::{Comparison, Options, PortRuns};
use spec::{Precision, Result, Schedule, config_file};
use std::path::Path;

/// The JSON form: the comparison, and of which checkpoint.
#[derive(serde::Serialize)]
struct Report<'a> {
    assay_version: &'static str,
    checkpoint: String,
    weights_sha256: &'a str,
    config_sha256: &'a str,
    text: &'a str,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Compares and prints.
pub fn run(arguments: &Compare, out: &mut String) -> Result<()> {
    match &arguments.port_trace {
        Some(port_trace) => of_traces(arguments, port_trace, out),
        None => live(arguments, out),
    }
}

fn live(arguments: &Compare, out: &mut String) -> Result<()> {
    let dir = &arguments.left;
    let config = config_file::read(dir)?;
    let texts = text::read(dir, &config, &arguments.tokens)?;
    let scan = checkpoint::examine(dir)?;
    let precision = Precision::from(arguments.precision);
    let bench = Workbench::open(dir, None, arguments.port_mutant.as_deref())?;
    let port = bench.port(precision)?;
    console::warn_of_tf32(&port.describe());
    let options = Options {
        layers: arguments.layers.clone(),
        schedule: Schedule {
            decode_from: arguments.decode_from,
            ..Schedule::chunks_of(arguments.chunk.get())
        },
        reference_precision: Precision::F32,
        port_precision: precision,
        routing: match arguments.routing {
            None => PortRuns::ForcedAndFree,
            Some(RoutingName::Forced) => PortRuns::Forced,
            Some(RoutingName::Free) => PortRuns::Free,
        },
    };
    let comparison =
        diff::compare::sides(bench.reference(), &*port, &texts.cases, &options, &mut Phases::new())?;
    if arguments.json {
        let report = Report {
            assay_version: env!("CARGO_PKG_VERSION"),
            checkpoint: dir.display().to_string(),
            weights_sha256: &scan.weights_sha256,
            config_sha256: &scan.config_sha256,
            text: &texts.about,
            comparison: &comparison,
        };
        out.push_str(&to_json(&report)?);
    } else if arguments.csv {
        out.push_str(&comparison.layers_csv());
    } else {
        say!(out, "assay      {}", env!("CARGO_PKG_VERSION"));
        say!(out, "checkpoint {}, sha256 {}…", dir.display(), &scan.weights_sha256[..16]);
        console::print_planted(arguments.port_mutant.as_deref(), out);
        console::print_live(&comparison, &texts, out);
    }
    Ok(())
}

fn of_traces(arguments: &Compare, port_trace: &Path, out: &mut String) -> Result<()> {
    let layers = arguments.layers.clone();
    let found = diff::trace::compare(&arguments.left, port_trace, layers, &mut Phases::new())?;
    if arguments.json {
        out.push_str(&to_json(&found)?);
    } else {
        console::print_traces(&found, out);
    }
    Ok(())
}
