//! `assay gate`: every check and its planted bugs, to a verdict and a record.

use super::judged::{self, Judged, Switches};
use super::to_json;
use crate::cli;
use crate::console::{self, Phases, say};
use diff::bench::Bench;
use diff::gate::lock::{self, Lock};
use diff::gate::record::{Environment, Inputs, NotApplicable, Record, SCHEMA, Times, Verdict};
use diff::gate::{Plan, folder};
use spec::{Error, Precision, Result};
use std::path::{Path, PathBuf};

/// Runs, or goes on with a run; prints what was found.
pub fn run(arguments: &cli::Gate, out: &mut String) -> Result<Option<Verdict>> {
    let switches = Switches {
        threads: arguments.threads.map(std::num::NonZero::get),
        port_mutant: arguments.port_mutant.as_deref(),
        disabled_control: arguments.disable_control.as_deref(),
    };
    let begun = arguments.resume.as_ref().map(|folder| folder::read(folder)).transpose()?;
    let mut judged = judged::read(&arguments.judged, &switches)?;
    if let Some(path) = &arguments.lock {
        let (lock, record) = Lock::read(path)?;
        lock.hold(path, &lock::entries(&judged.inputs))?;
        judged.inputs.lock = Some(record);
    }
    let (run_folder, record) = match (&arguments.resume, begun) {
        (Some(folder), Some(record)) => (folder.clone(), resumable(folder, record, &judged.inputs)?),
        _ => new_run(arguments, &judged)?,
    };
    let plan = Plan {
        gate: &judged.gate,
        sets: &judged.sets,
        control_case: &judged.control_case,
        decoded: judged.control_case.len().div_ceil(2),
        golden: judged.golden.as_ref(),
        disabled_control: arguments.disable_control.as_deref(),
    };
    let mut progress = if arguments.quiet { Phases::quiet() } else { Phases::new() };
    let mut save = |record: &Record| folder::write(&run_folder, record, reports::layers_csv);
    save(&record)?;
    let record = diff::gate::run(&judged.bench, &plan, record, &mut save, &mut progress)?;
    drop(progress);
    print(arguments, &run_folder, &record, out)?;
    Ok(record.verdict)
}

fn print(arguments: &cli::Gate, folder: &Path, record: &Record, out: &mut String) -> Result<()> {
    if arguments.json {
        out.push_str(&to_json(record)?);
    } else if arguments.quiet {
        say!(out, "{}", record.verdict.map_or_else(|| "unfinished".into(), |verdict| verdict.to_string()));
    } else {
        out.push_str(&reports::terminal(record));
        say!(out, "record: {}", folder.display());
    }
    Ok(())
}

/// A record with nothing in it, and its new folder.
fn new_run(arguments: &cli::Gate, judged: &Judged) -> Result<(PathBuf, Record)> {
    let name = arguments.name.clone().unwrap_or_else(|| judged.inputs.checkpoint.name.clone());
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(sound) {
        return Err(Error::Argument {
            what: "--name".into(),
            expected: "letters, digits, `-`, `_`, `.`".into(),
            found: format!("`{name}`"),
            next: "choose a name that can name a folder".into(),
        });
    }
    let environment = environment(&judged.bench)?;
    let now = jiff::Timestamp::now();
    let folder = arguments.output.join(format!("{}-{name}", now.strftime("%Y%m%dT%H%M%SZ")));
    let next = "name a folder that can be written to with --output";
    std::fs::create_dir_all(&arguments.output).map_err(Error::io(
        "create folder",
        &arguments.output,
        next,
    ))?;
    // a folder of that name is another run's, begun in the same second
    let next = "start it again in a second, give it another --name, or name another --output";
    std::fs::create_dir(&folder).map_err(Error::io("create folder", &folder, next))?;
    let not_applicable = judged
        .gate
        .not_applicable
        .iter()
        .map(|(check, reason)| NotApplicable { check: check.clone(), reason: reason.clone() });
    let record = Record {
        schema: SCHEMA.into(),
        name,
        verdict: None,
        reasons: Vec::new(),
        inputs: judged.inputs.clone(),
        findings: Vec::new(),
        not_applicable: not_applicable.collect(),
        sets: Vec::new(),
        controls: Vec::new(),
        bytes_read: Vec::new(),
        environment,
        times: Times { started: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), phases: Vec::new() },
    };
    Ok((folder, record))
}

fn environment(bench: &dyn Bench) -> Result<Environment> {
    let mut sides = vec![bench.reference().describe()];
    for precision in [Precision::F32, Precision::Bf16] {
        match bench.port(precision) {
            Ok(port) => sides.push(port.describe()),
            // what a port refuses is for the gate to find
            Err(Error::Tensor { .. } | Error::Checkpoint { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    sides.iter().for_each(console::warn_of_tf32);
    Ok(Environment { sides })
}

/// A stopped run goes on only with what it began with. Errors: [`Error::Argument`].
fn resumable(folder: &Path, record: Record, now: &Inputs) -> Result<Record> {
    let refuse = |expected: &str, found: String, next: &str| Error::Argument {
        what: format!("--resume {}", folder.display()),
        expected: expected.into(),
        found,
        next: next.into(),
    };
    if let Some(verdict) = record.verdict {
        let next = "print it with `assay report`";
        return Err(refuse("a run that was stopped", format!("a finished one: {verdict}"), next));
    }
    if record.inputs == *now {
        return Ok(record);
    }
    let begun = Lock::new(lock::entries(&record.inputs));
    let mut changed = begun.changed(&lock::entries(now));
    let switches = |inputs: &Inputs| (inputs.port_mutant.clone(), inputs.disabled_control.clone());
    if switches(&record.inputs) != switches(now) {
        changed.push("planted bugs".into());
    }
    if record.inputs.lock != now.lock {
        changed.push("lock".into());
    }
    if changed.is_empty() {
        changed.push("name of the checkpoint or of a text".into());
    }
    let next = "give the same arguments as at first, or start a new run";
    Err(refuse("what the run began with", format!("another {}", changed.join(", ")), next))
}
