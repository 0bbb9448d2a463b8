//! `assay mutants`: the catalogue, and the matrix of what each check catches.

mod processes;

use super::{checkpoint, judged, to_json, write_new};
use crate::bench::Workbench;
use crate::cli::{Mutants, MutantsList, MutantsRun, MutantsShow, MutantsVerb};
use crate::console::{self, Phases, say};
use crate::exit;
use diff::bench::{Bench, Planted};
use diff::gate::planted;
use diff::matrix::{Catalogue, Matrix, SCHEMA, Sheet};
use mutants::Stage;
use spec::{Case, Error, Result, config_file};
use std::path::Path;

/// What `assay mutants run` found on the trained checkpoint and on one from a seed.
pub const MEASURED: &str = include_str!("../../../mutants/measured.json");

/// Carries out one verb; gives the exit code.
pub fn run(arguments: &Mutants, out: &mut String) -> Result<u8> {
    match &arguments.verb {
        MutantsVerb::List(arguments) => list(arguments, out).map(|()| 0),
        MutantsVerb::Show(arguments) => show(arguments, out).map(|()| 0),
        MutantsVerb::Run(arguments) => matrix(arguments, out),
    }
}

fn list(arguments: &MutantsList, out: &mut String) -> Result<()> {
    let stage = arguments.stage.as_deref().map(known_stage).transpose()?;
    let mut rows = everything();
    rows.retain(|row| stage.is_none_or(|stage| row.stage == stage.name()));
    if arguments.json {
        out.push_str(&to_json(&rows)?);
    } else {
        console::print_catalogue(&rows, out);
    }
    Ok(())
}

fn show(arguments: &MutantsShow, out: &mut String) -> Result<()> {
    let rows = everything();
    let row = rows.iter().find(|row| row.id == arguments.id).ok_or_else(|| unknown(&arguments.id))?;
    let measured = measured();
    if arguments.json {
        let found: Vec<_> = measured
            .sheets
            .iter()
            .flat_map(|sheet| sheet.rows.iter().map(|row| (&sheet.checkpoint.name, row)))
            .filter(|(_, measured)| measured.id == row.id)
            .collect();
        out.push_str(&to_json(&serde_json::json!({ "row": row, "measured": found }))?);
    } else {
        console::print_row(row, &measured, out);
    }
    Ok(())
}

/// All bugs, those of the harness included, and all rewrites.
pub fn everything() -> Vec<Planted> {
    let mut rows: Vec<Planted> = crate::bench::catalogue();
    rows.extend(diff::gate::of_harness());
    rows
}

/// [`MEASURED`].
pub fn measured() -> Matrix {
    serde_json::from_str(MEASURED).expect("a test reads the committed matrix")
}

fn matrix(arguments: &MutantsRun, out: &mut String) -> Result<u8> {
    let stage = arguments.stage.as_deref().map(known_stage).transpose()?;
    let rows = everything();
    if let Some(id) = arguments.only.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        return Err(unknown(id));
    }
    let wanted = |row: &Planted| {
        stage.is_none_or(|stage| row.stage == stage.name())
            && (arguments.only.is_empty() || arguments.only.contains(&row.id))
    };
    if let Some(path) = &arguments.output {
        spec::output::refuse_taken(path)?;
    }
    let mut progress = Phases::new();
    let rows: Vec<&Planted> = rows.iter().filter(|row| wanted(row)).collect();
    let sheets = arguments
        .checkpoints
        .iter()
        .map(|dir| sheet(dir, arguments, &rows, &mut progress))
        .collect::<Result<Vec<Sheet>>>()?;
    drop(progress);
    let whole = stage.is_none() && arguments.only.is_empty();
    let matrix = Matrix { schema: SCHEMA.into(), version: env!("CARGO_PKG_VERSION").into(), whole, sheets };
    let text = match arguments.format {
        None => reports::matrix_terminal(&matrix),
        Some(format) => reports::matrix(&matrix, format.into()),
    };
    match &arguments.output {
        None => out.push_str(&text),
        Some(path) => {
            write_new(path, &text)?;
            say!(out, "{}", path.display());
        }
    }
    let failed = matrix.overall().iter().any(|row| row.outcome.is_failure());
    Ok(if failed { exit::FAIL } else { 0 })
}

fn sheet(dir: &Path, arguments: &MutantsRun, rows: &[&Planted], progress: &mut Phases) -> Result<Sheet> {
    let bench = Workbench::open(dir, arguments.threads.map(std::num::NonZero::get), None)?;
    let config = config_file::read(dir)?;
    let known: Vec<String> = planted(&bench).into_iter().map(|planted| planted.id).collect();
    let (gate, _) = judged::gate(dir, None, &known)?;
    let tokens = arguments.tokens.get();
    let (mut stream, _) = judged::default_tokens(dir, &config, tokens)?;
    stream.truncate(tokens);
    let case = Case::new("mutants", stream)?;
    case.check_vocabulary(bench.reference().config())?;
    let golden = judged::golden(dir, None, &gate, &config)?;
    let scan = checkpoint::examine(dir)?;
    let catalogue = Catalogue {
        checkpoint: judged::of_scan(dir, scan),
        gate: &gate,
        case: &case,
        golden: golden.as_ref(),
        rows,
    };
    let cores = std::thread::available_parallelism();
    let jobs = arguments.jobs.or(cores.ok()).map_or(1, std::num::NonZero::get).min(rows.len());
    if jobs > 1 {
        // everything that can be refused has been read by now
        drop(bench);
        return processes::sheet(dir, rows, jobs, arguments, progress);
    }
    diff::matrix::run(&bench, &catalogue, progress)
}

fn known_stage(name: &str) -> Result<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.name() == name).ok_or_else(|| Error::Argument {
        what: "--stage".into(),
        expected: format!("one of {}", Stage::ALL.map(Stage::name).join(", ")),
        found: format!("`{name}`"),
        next: "choose one of these".into(),
    })
}

fn unknown(id: &str) -> Error {
    Error::Argument {
        what: "planted bug".into(),
        expected: "an id of the catalogue".into(),
        found: format!("`{id}`"),
        next: "see `assay mutants list`".into(),
    }
}
