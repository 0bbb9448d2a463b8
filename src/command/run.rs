//! `assay run`: one side, recorded as a folder of traces.

use super::checkpoint;
use crate::cli::{self, RoutingName, SideName};
use crate::console::{self, Phases, say};
use crate::text;
use diff::trace::{Checkpoint, Request};
use port::Port;
use reference::{Reference, Scan};
use spec::trace::Trace;
use spec::{
    Case, Choices, Error, ModelConfig, Precision, Result, Routing, Schedule, Side, Site, config_file,
};
use std::path::Path;

/// Runs and records.
pub fn run(arguments: &cli::Run, out: &mut String) -> Result<()> {
    let dir = &arguments.checkpoint;
    let config = config_file::read(dir)?;
    let sites = sites(arguments.sites.as_deref())?;
    let texts = text::read(dir, &config, &arguments.tokens)?;
    check_routing(arguments)?;
    check_decode(arguments.decode_from, &texts.cases)?;
    refuse_existing(&arguments.output)?;
    let scan = checkpoint::examine(dir)?;
    let choices = match (arguments.routing, &arguments.trace) {
        (RoutingName::Forced, Some(folder)) => Some(recorded_choices(folder, &texts.cases, &config, &scan)?),
        _ => None,
    };
    let routing: Vec<Routing<'_>> = match &choices {
        Some(choices) => choices.iter().map(Routing::Forced).collect(),
        None => vec![Routing::Free; texts.cases.len()],
    };
    let precision = Precision::from(arguments.precision);
    let side: Box<dyn Side> = match arguments.side {
        SideName::Reference => Box::new(Reference::open(dir, reference::Options::default())?),
        SideName::Port => Box::new(Port::load(dir, precision)?),
    };
    console::warn_of_tf32(&side.describe());
    let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
    let prefill_chunk = arguments.chunk.get();
    let request = Request {
        cases: &texts.cases,
        routing: &routing,
        schedule: Schedule { decode_from: arguments.decode_from, ..Schedule::chunks_of(prefill_chunk) },
        precision,
        sites: &sites,
        checkpoint: &Checkpoint {
            model: name,
            weights_sha256: scan.weights_sha256,
            config_sha256: scan.config_sha256,
        },
        out: &arguments.output,
    };
    let recorded = diff::trace::record(side.as_ref(), &request, &mut Phases::new())?;
    say!(out, "{}: {}", recorded.folder.display(), texts.about);
    for case in &recorded.cases {
        say!(out, "{}, choices sha256 {}…", case.trace.display(), &case.ids_sha256[..16]);
        case.sites.iter().for_each(|path| say!(out, "{}", path.display()));
    }
    Ok(())
}

/// The sites named by `--sites`; none named: what `assay compare` reads.
fn sites(list: Option<&str>) -> Result<Vec<Site>> {
    match list {
        None => Ok(diff::trace::DEFAULT_SITES.to_vec()),
        Some("none") => Ok(Vec::new()),
        Some("all") => Ok(Site::ALL.to_vec()),
        Some(list) => list.split(',').map(|name| site(name.trim())).collect(),
    }
}

fn site(name: &str) -> Result<Site> {
    Site::from_name(name).ok_or_else(|| Error::Argument {
        what: "--sites".into(),
        expected: format!("`none`, `all` or names out of {}", Site::ALL.map(Site::name).join(", ")),
        found: format!("`{name}`"),
        next: "correct the name".into(),
    })
}

/// A trace that is not used would be taken for one that was.
fn check_routing(arguments: &cli::Run) -> Result<()> {
    match (&arguments.trace, arguments.routing) {
        (Some(trace), RoutingName::Free) => Err(Error::Argument {
            what: "--trace".into(),
            expected: "--routing forced beside it".into(),
            found: format!("{} and free routing", trace.display()),
            next: "add --routing forced, or leave --trace out".into(),
        }),
        _ => Ok(()),
    }
}

/// A decode that never begins would be recorded as one that did.
fn check_decode(from: Option<usize>, cases: &[Case]) -> Result<()> {
    let Some(from) = from else { return Ok(()) };
    match cases.iter().find(|case| from >= case.len()) {
        None => Ok(()),
        Some(case) => Err(Error::Argument {
            what: "--decode-from".into(),
            expected: format!("a position of `{}`, below {}", case.name, case.len()),
            found: from.to_string(),
            next: "give an earlier position or a longer text".into(),
        }),
    }
}

fn refuse_existing(output: &Path) -> Result<()> {
    spec::output::NewFolder::create(output).map(drop)
}

/// The choices of a recording, one per case, of this checkpoint and these tokens.
fn recorded_choices(
    folder: &Path,
    cases: &[Case],
    config: &ModelConfig,
    scan: &Scan,
) -> Result<Vec<Choices>> {
    let read = |case: &Case| {
        let path = folder.join(diff::trace::trace_name(case));
        if !path.exists() {
            return Err(Error::Trace {
                path,
                expected: format!("a recording of `{}`", case.name),
                found: "no such file".into(),
                next: "name a folder made by `assay run` with the same text, --sequences and --length".into(),
            });
        }
        let trace = Trace::read(&path)?;
        trace.check_same_checkpoint(&scan.weights_sha256, &scan.config_sha256)?;
        trace.check_layers(config)?;
        trace.check_tokens(case)?;
        trace.choices()
    };
    cases.iter().map(read).collect()
}
