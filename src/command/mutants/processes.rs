//! Rows of the matrix in several processes of this program, so that every core works, and a bug that ends its
//! process takes no other row with it.
//!
//! Inputs: a checkpoint, ids. Output: one [`Sheet`]. A process that ends without a sheet is asked again row
//! by row; a row that ends its own process is *crashed*.

use crate::cli::MutantsRun;
use diff::bench::Planted;
use diff::compare::Progress;
use diff::matrix::{Matrix, Outcome, Row, Sheet};
use spec::{Error, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// As a process gives [`crate::exit::FAIL`]: rows that should not have come out so.
const FAIL: i32 = crate::exit::FAIL as i32;

/// One process, its rows, and where its matrix will be.
struct Worker<'a> {
    rows: Vec<&'a Planted>,
    child: Child,
    folder: TempDir,
}

/// Runs `rows` in `jobs` processes. Errors: [`Error::Io`] if none can be started; [`Error::Engine`] if even
/// one row alone gives no sheet, none at all having been made.
pub fn sheet(
    dir: &Path,
    rows: &[&Planted],
    jobs: usize,
    arguments: &MutantsRun,
    progress: &mut dyn Progress,
) -> Result<Sheet> {
    let begun = Instant::now();
    progress.phase("rows, in several processes", rows.len());
    let part = |job: usize| rows.iter().copied().skip(job).step_by(jobs).collect::<Vec<_>>();
    let workers: Vec<Worker<'_>> =
        (0..jobs).map(|job| start(dir, part(job), jobs, arguments)).collect::<Result<_>>()?;
    let (mut sheets, mut lost) = (Vec::new(), Vec::new());
    for worker in workers {
        let rows = worker.rows.clone();
        match finish(worker)? {
            Ok(sheet) => sheets.push(sheet),
            Err(_) => lost.extend(rows.iter().copied()),
        }
        progress.step(rows.len());
    }
    let mut crashed = Vec::new();
    for row in lost {
        match finish(start(dir, vec![row], 1, arguments)?)? {
            Ok(sheet) => sheets.push(sheet),
            Err(why) => crashed.extend(row.sides.iter().map(|side| Row {
                id: row.id.clone(),
                side: side.name().into(),
                rewrite: row.rewrite,
                stage: row.stage.clone(),
                outcome: Outcome::Crashed,
                why: why.clone(),
                cells: Vec::new(),
            })),
        }
    }
    let mut sheets = sheets.into_iter();
    let Some(mut whole) = sheets.next() else {
        let message = crashed.first().map_or("no rows".into(), |row| row.why.clone());
        return Err(Error::Engine { engine: "assay", doing: "run planted bugs".into(), message });
    };
    whole.rows.extend(sheets.flat_map(|sheet| sheet.rows));
    whole.rows.extend(crashed);
    whole.rows.sort_by_key(|row| rows.iter().position(|planted| planted.id == row.id));
    whole.seconds = begun.elapsed().as_secs_f64();
    Ok(whole)
}

fn start<'a>(dir: &Path, rows: Vec<&'a Planted>, jobs: usize, arguments: &MutantsRun) -> Result<Worker<'a>> {
    let next = "set TMPDIR to a folder with room";
    let folder = TempDir::new().map_err(Error::io("create a folder in", std::env::temp_dir(), next))?;
    let program = std::env::current_exe();
    let program = program.map_err(Error::io("find the program", "assay", "run it from a file"))?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = arguments.threads.map_or(cores.div_ceil(jobs), std::num::NonZero::get);
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let child = Command::new(&program)
        .args(["mutants", "run", "--jobs", "1", "--format", "json", "--only", &ids.join(",")])
        .args(["--tokens", &arguments.tokens.to_string(), "--threads", &threads.to_string()])
        .arg("--output")
        .arg(folder.path().join("matrix.json"))
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io("start", &program, "try with --jobs 1"))?;
    Ok(Worker { rows, child, folder })
}

/// The sheet, or how the process ended. Errors: [`Error::Io`].
fn finish(worker: Worker<'_>) -> Result<Result<Sheet, String>> {
    let next = "try with --jobs 1";
    let output = worker.child.wait_with_output().map_err(Error::io("wait for", "a process", next))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let ended =
        || format!("its process ended with {}: {}", output.status, said.lines().last().unwrap_or("-"));
    if !matches!(output.status.code(), Some(0 | FAIL)) {
        return Ok(Err(ended()));
    }
    let text = std::fs::read_to_string(worker.folder.path().join("matrix.json"));
    let matrix = text.ok().and_then(|text| serde_json::from_str::<Matrix>(&text).ok());
    Ok(matrix.and_then(|mut matrix| matrix.sheets.pop()).ok_or_else(ended))
}
