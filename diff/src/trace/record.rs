//! Runs a side once over some cases and keeps what it did, as a folder of traces.

use super::recorder::TraceRecorder;
use super::sites::{self, SitesWriter};
use crate::compare::{self, Progress};
use ndarray::{Array2, Array3};
use spec::output::NewFolder;
use spec::trace::{self, Candidates, Meta, Origin, Trace};
use spec::{Case, Choices, Error, Executed, Precision, Result, Routing, Run, Schedule, Side, Site};
use std::path::{Path, PathBuf};

/// Which checkpoint a recording is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// A name for people.
    pub model: String,
    /// Hash of the weights.
    pub weights_sha256: String,
    /// Hash of `config.json`.
    pub config_sha256: String,
}

/// What to record.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The texts; their names are unique.
    pub cases: &'a [Case],
    /// Where each case's expert ids come from, in the order of `cases`.
    pub routing: &'a [Routing<'a>],
    /// How they are fed.
    pub schedule: Schedule,
    /// The arithmetic.
    pub precision: Precision,
    /// Sites whose values are kept; each needs `4 * T * width` bytes per layer on disk.
    pub sites: &'a [Site],
    /// What the side has loaded.
    pub checkpoint: &'a Checkpoint,
    /// The folder to make; nothing of that name exists.
    pub out: &'a Path,
}

impl<'a> Request<'a> {
    fn run(&self, index: usize) -> Run<'a> {
        Run {
            case: &self.cases[index],
            schedule: self.schedule,
            routing: self.routing[index],
            precision: self.precision,
        }
    }
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The folder made.
    pub folder: PathBuf,
    /// In the order of the request.
    pub cases: Vec<RecordedCase>,
}

/// One recorded case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCase {
    /// Its name.
    pub name: String,
    /// Its trace file.
    pub trace: PathBuf,
    /// The file of its sites; `None` if no site was asked for.
    pub sites: Option<PathBuf>,
    /// SHA-256 of the executed ids as stored, by which two recordings are seen to have routed alike.
    pub ids_sha256: String,
}

/// Runs `side` over the cases, all in one call, and writes the folder: whole or not at all.
///
/// Errors: [`Error::Argument`] if the folder exists, before anything is run; [`Error::Case`];
/// [`Error::Unpaired`] if the side does not record what it is asked for, or did not execute what it was
/// forced onto; [`Error::Trace`] if what it executed is no route; [`Error::Io`]; whatever the side returns.
///
/// Panics if there is not one routing for each case.
pub fn record(side: &dyn Side, request: &Request<'_>, progress: &mut dyn Progress) -> Result<Recorded> {
    let folder = NewFolder::create(request.out)?;
    let (cases, config, info) = (request.cases, side.config(), side.describe());
    assert_eq!(request.routing.len(), cases.len(), "one routing for each case");
    compare::check_cases(cases, config)?;
    let mut sites = request.sites.to_vec();
    sites.sort_unstable();
    sites.dedup();
    let create = |case| {
        let path = folder.path().join(sites_name(case));
        SitesWriter::create(&path, case, &sites, config, &info)
    };
    let kept = cases.iter().filter(|_| !sites.is_empty());
    let files = kept.map(create).collect::<Result<Vec<_>>>()?;
    let mut recorder = TraceRecorder::new(cases, config, &sites, &files, progress);
    let runs: Vec<Run<'_>> = (0..cases.len()).map(|index| request.run(index)).collect();
    let executed = side.forward(&runs, &mut recorder)?;
    let parts = recorder.finish()?;
    check_executed(&runs, &executed)?;
    let mut meta = Meta::of("", config);
    meta.set_run(&info, request.schedule, request.precision);
    meta.model = Some(request.checkpoint.model.clone());
    meta.weights_sha256 = Some(request.checkpoint.weights_sha256.clone());
    meta.config_sha256 = Some(request.checkpoint.config_sha256.clone());
    let mut files = files.into_iter();
    let mut recorded = Vec::with_capacity(cases.len());
    for ((run, executed), parts) in runs.iter().zip(&executed).zip(parts) {
        let mut trace = assemble(run, executed, parts, meta.clone());
        trace.path = request.out.join(trace_name(run.case));
        trace.write(&folder.path().join(trace_name(run.case)))?;
        let sites = files.next().map(|file| file.finish(&trace)).transpose()?;
        recorded.push(RecordedCase {
            name: run.case.name.clone(),
            sites: sites.map(|()| request.out.join(sites_name(run.case))),
            ids_sha256: trace.ids_sha256(),
            trace: trace.path,
        });
    }
    folder.finish()?;
    Ok(Recorded { folder: request.out.into(), cases: recorded })
}

/// The name of a case's trace file within a recording.
pub fn trace_name(case: &Case) -> String {
    format!("{}{}", case.name, trace::SUFFIX)
}

fn sites_name(case: &Case) -> String {
    format!("{}{}", case.name, sites::SUFFIX)
}

/// The trace of one run.
fn assemble(run: &Run<'_>, executed: &Executed, parts: (Array3<f32>, Candidates), mut meta: Meta) -> Trace {
    let choices = &executed.choices;
    let (origin, shadow) = match run.routing {
        Routing::Free => (Origin::Live, None),
        Routing::Forced(_) => (Origin::Forced, Some(id_rows(&executed.shadow))),
    };
    meta.case.clone_from(&run.case.name);
    let (weights, candidates) = parts;
    Trace {
        path: PathBuf::new(),
        meta,
        ids: id_rows(choices),
        layers: (0..choices.layers()).map(spec::LayerId).collect(),
        tokens: run.case.tokens.clone(),
        weights: Some(weights),
        candidates: Some(candidates),
        origin: Some(Array2::from_elem((choices.tokens(), choices.layers()), origin)),
        call: Some(executed.call.clone()),
        shadow,
    }
}

fn id_rows(choices: &Choices) -> Array3<i32> {
    let ids = choices.as_slice().iter().map(|id| i32::from(id.0)).collect();
    let shape = (choices.tokens(), choices.layers(), choices.k());
    Array3::from_shape_vec(shape, ids).expect("choices are [T, L, k]")
}

/// A forced run executed what it was given, a free one what it chose; anything else is no recording of it.
fn check_executed(runs: &[Run<'_>], executed: &[Executed]) -> Result<()> {
    let unpaired = |expected: String, found: String| {
        let next = "mend the side: it must execute, and return, what it was asked for".into();
        Err(Error::Unpaired { expected, found, next })
    };
    if executed.len() != runs.len() {
        let expected = format!("what {} runs executed", runs.len());
        return unpaired(expected, format!("{}", executed.len()));
    }
    for (run, executed) in runs.iter().zip(executed) {
        let (case, choices) = (&run.case.name, &executed.choices);
        let (kind, asked, forced_rows) = match run.routing {
            Routing::Free => ("its own", &executed.shadow, 0),
            Routing::Forced(asked) => ("the given", asked, choices.tokens() * choices.layers()),
        };
        if choices != asked {
            let expected = format!("{kind} choices executed in `{case}`, in their order");
            return unpaired(expected, first_difference(asked, choices));
        }
        if executed.forced_rows != forced_rows {
            let expected = format!("{forced_rows} forced rows in `{case}`");
            return unpaired(expected, format!("{}", executed.forced_rows));
        }
    }
    Ok(())
}

fn first_difference(asked: &Choices, found: &Choices) -> String {
    let shape = |choices: &Choices| [choices.tokens(), choices.layers(), choices.k()];
    if shape(asked) != shape(found) {
        return format!("choices of shape {:?} for {:?}", shape(found), shape(asked));
    }
    let differs = |(asked, found): (&spec::ExpertId, &spec::ExpertId)| asked != found;
    let index = asked.as_slice().iter().zip(found.as_slice()).position(differs).expect("they differ");
    let row = index / asked.k();
    let (token, layer) = (row / asked.layers(), spec::LayerId(row % asked.layers()));
    let ids = |choices: &Choices| choices.at(token, layer).iter().map(|id| id.0).collect::<Vec<_>>();
    format!("{:?} instead of {:?} at token {token}, layer {layer}", ids(found), ids(asked))
}
