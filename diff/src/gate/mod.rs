//! The gate: every check with its limit, the planted bugs each must catch, a verdict, a record.
//!
//! Job: run the steps of docs/gate.md over a [`Bench`] and end in a [`Record`]. Inputs: both sides and their
//! planted bugs behind [`Bench`], a gate file's limits, sets of text. Output: a record, handed on after every
//! step so that a killed run can go on where it stopped.
//!
//! A reader finds: names of checks and legs in [`checks`], limits in [`limits`], one file per group of
//! measurements (`statics`, `harness`, `reinjected`, `ulp`, `end_to_end`, `schedule`, `kernels`, `nll`,
//! `golden`), value against limit in [`finding`], planted bugs in `control`, the order of steps here.
//!
//! Architecture invariant: neither side is known here, and what is measured on the port is measured on a
//! planted bug by the same code.

pub(crate) mod batch;
mod bootstrap;
mod buffers;
mod build;
pub mod checks;
pub(crate) mod control;
mod end_to_end;
pub mod finding;
pub mod folder;
pub(crate) mod golden;
pub(crate) mod harness;
mod kernels;
pub mod limits;
pub mod lock;
mod logits;
pub(crate) mod nll;
mod pass;
pub mod record;
mod reinjected;
mod rows;
mod schedule;
pub(crate) mod sequence;
mod set;
pub(crate) mod statics;
mod tally;
mod top1;
pub(crate) mod ulp;
mod verdict;

pub use control::of_harness;
pub use golden::Golden;

use crate::bench::{Bench, Planted};
use crate::compare::Progress;
use checks::Group;
use finding::judge_all;
use limits::Gate;
use record::{Finding, Outcome, Phase, Record};
use sequence::Sequence;
use spec::{Case, Error, Precision, Result};
use statics::Held;
use std::time::Instant;

/// A set of text.
#[derive(Debug, Clone)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its sequences.
    pub cases: Vec<Case>,
}

/// What a run needs beside the two sides.
pub struct Plan<'a> {
    /// Limits and controls.
    pub gate: &'a Gate,
    /// The sets of text, each with at least one sequence.
    pub sets: &'a [Set],
    /// The sequence that controls, floors and schedules run on.
    pub control_case: &'a Case,
    /// How many of its last tokens are fed one at a time where decoding is checked.
    pub decoded: usize,
    /// Recorded outputs of a third implementation, where the gate applies `anchor.golden`.
    pub golden: Option<&'a Golden>,
    /// A control whose bug is not planted, to see that this is noticed.
    pub disabled_control: Option<&'a str>,
}

/// What every measurement is given.
pub(crate) struct Context<'a> {
    pub(crate) bench: &'a dyn Bench,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) held: &'a Held,
    /// The rows of `schedule.batch`.
    pub(crate) batch: &'a [Case],
}

/// The ids of all bugs that a gate file may name: the sides', and those of forcing itself.
pub fn planted(bench: &dyn Bench) -> Vec<Planted> {
    let mut all = bench.planted();
    all.retain(|planted| !planted.rewrite);
    all.extend(control::of_harness());
    all
}

/// Takes a record through every step it has not been through yet; `save` is handed the record after each.
/// A step is done if its name is among the record's phases.
///
/// Errors: whatever a side or `save` returns; the record handed to `save` last is whole up to there.
pub fn run(
    bench: &dyn Bench,
    plan: &Plan<'_>,
    record: Record,
    save: &mut dyn FnMut(&Record) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<Record> {
    progress.phase("reading tensors", 1);
    let held = statics::of_reference(bench.reference())?;
    let batch = batch::rows_of(plan.control_case, bench.reference().config())?;
    let context = Context { bench, plan, held: &held, batch: &batch };
    let mut runner = Runner { record, save, progress };
    runner.step("census", |record, _| {
        let measured = statics::census(bench.port(Precision::F32), held.tensors())?;
        record.findings.extend(judge_all(&[measured], context.plan.gate, None));
        Ok(())
    })?;
    // a port that refuses its checkpoint cannot be asked anything else
    let refused = |finding: &Finding| finding.check == "static.census" && finding.outcome == Outcome::Fail;
    if !runner.record.findings.iter().any(refused) {
        steps(&context, &mut runner)?;
    }
    let mut record = runner.record;
    verdict::sort(&mut record, plan);
    (record.verdict, record.reasons) = verdict::of(&record, plan.gate);
    (runner.save)(&record)?;
    Ok(record)
}

/// Everything that needs a port: sets, what is measured once, planted bugs.
fn steps(context: &Context<'_>, runner: &mut Runner<'_>) -> Result<()> {
    for set in context.plan.sets {
        runner.step(&format!("set {}", set.name), |record, progress| {
            let found = set::measure(context, set, progress)?;
            record.findings.extend(judge_all(&found.measured, context.plan.gate, Some(&set.name)));
            record.sets.push(found.record);
            record.bytes_read.push(found.bytes);
            Ok(())
        })?;
    }
    let mut sequence = None;
    for (name, groups) in ONCE {
        let groups: Vec<Group> =
            groups.iter().copied().filter(|group| applies(context.plan.gate, *group)).collect();
        if groups.is_empty() {
            continue;
        }
        runner.step(name, |record, progress| {
            let sequence = prepared(&mut sequence, context, record, progress)?;
            for group in groups {
                let measured = sequence.unmutated(context, group, progress)?;
                record.findings.extend(judge_all(&measured, context.plan.gate, None));
            }
            Ok(())
        })?;
    }
    let planted = planted(context.bench);
    for bound in control::bound(context, &planted) {
        runner.step(&bound.step(), |record, progress| {
            let sequence = prepared(&mut sequence, context, record, progress)?;
            record.controls.push(control::run(context, sequence, &bound, progress));
            Ok(())
        })?;
    }
    Ok(())
}

/// What is measured once, by step.
const ONCE: [(&str, &[Group]); 6] = [
    ("tensors", &[Group::Weights]),
    ("harness", &[Group::Product, Group::ForcingExact, Group::ForcingActive]),
    ("head and schedules", &[Group::Head, Group::Chunk, Group::Decode, Group::Batch]),
    ("kernels", &[Group::Kernels]),
    ("long decode", &[Group::Buffers]),
    ("golden outputs", &[Group::Golden]),
];

/// Whether some check that the gate applies needs a group.
pub(crate) fn applies(gate: &Gate, group: Group) -> bool {
    let needs = |check: &checks::Check| check.legs.iter().any(|(_, of)| *of == group);
    checks::all().any(|check| gate.checks.contains_key(check.name) && needs(check))
}

/// The sequence, prepared when it is first needed; its bytes are recorded once, also by a run that goes on.
fn prepared<'s, 'a>(
    sequence: &'s mut Option<Sequence<'a>>,
    context: &Context<'a>,
    record: &mut Record,
    progress: &mut dyn Progress,
) -> Result<&'s Sequence<'a>> {
    if sequence.is_none() {
        let new = Sequence::prepare(context, progress)?;
        let passes = [("control sequence", Some(&new.passed)), ("rows of the batch", new.batch.as_ref())];
        for (name, passed) in passes {
            if !record.bytes_read.iter().any(|read| read.pass == name) {
                record.bytes_read.extend(passed.map(|passed| set::bytes_read(name, passed)));
            }
        }
        *sequence = Some(new);
    }
    Ok(sequence.as_ref().expect("prepared above"))
}

struct Runner<'a> {
    record: Record,
    save: &'a mut dyn FnMut(&Record) -> Result<()>,
    progress: &'a mut dyn Progress,
}

impl Runner<'_> {
    /// Carries out a step that the record has not been through.
    fn step(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut Record, &mut dyn Progress) -> Result<()>,
    ) -> Result<()> {
        if self.record.times.phases.iter().any(|phase| phase.name == name) {
            return Ok(());
        }
        self.progress.section(name);
        let start = Instant::now();
        // a step that fails leaves nothing of itself
        let mut record = self.record.clone();
        work(&mut record, self.progress)?;
        record.times.phases.push(Phase { name: name.into(), seconds: start.elapsed().as_secs_f64() });
        self.record = record;
        (self.save)(&self.record)
    }
}

/// Refuses sets that hold no tokens. Errors: [`Error::Unpaired`], naming the set and what would be void.
pub fn refuse_empty(sets: &[Set], gate: &Gate) -> Result<()> {
    let Some(empty) = sets.iter().find(|set| set.cases.is_empty()) else { return Ok(()) };
    let void: Vec<&str> = checks::all()
        .filter(|check| check.by_set && gate.checks.contains_key(check.name))
        .map(|check| check.name)
        .collect();
    Err(Error::Unpaired {
        expected: format!("at least one token in set `{}`", empty.name),
        found: format!("none; VOID, nothing would be compared by {}", void.join(", ")),
        next: "give a text that is not empty".into(),
    })
}
