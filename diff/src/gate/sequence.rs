//! The one short sequence that the harness, the schedules and every control run on, the rows that are cut
//! from it for batches, and what is measured on them in one go.

use super::Context;
use super::checks::{Group, NLL_MUTANTS};
use super::end_to_end::{floor, in_order_of_id, measure_forced, measure_free};
use super::finding::Measurement;
use super::harness::{self, Broken, Forcing};
use super::logits::LogitsRows;
use super::pass::{self, Passed};
use super::reinjected::{self, measure_bf16, measure_f32};
use super::{applies, batch, buffers, kernels, nll, schedule, set, statics};
use crate::bench::{Idle, Lane, PlantedIn};
use crate::compare::Progress;
use spec::{Error, Precision, Result, Routing, Run, Schedule, Side};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The sequence, passed by the reference, and the judged port's floor on it.
pub(crate) struct Sequence<'a> {
    pub(crate) passed: Passed<'a>,
    /// The rows of `schedule.batch`, where the gate applies it and the sequence is long enough.
    pub(crate) batch: Option<Passed<'a>>,
    floor: LogitsRows,
    /// What the judged port gave so far, by group.
    unmutated: RefCell<BTreeMap<Group, Vec<Measurement>>>,
}

impl<'a> Sequence<'a> {
    /// One pass of the reference, another over the rows of a batch where they are needed, and the floor.
    /// Errors: whatever a side returns.
    pub(crate) fn prepare(context: &Context<'a>, progress: &mut dyn Progress) -> Result<Self> {
        let cases = std::slice::from_ref(context.plan.control_case);
        let passed = pass::run(context.bench, cases, &context.held.vectors, &[], progress)?;
        let with_batch = applies(context.plan.gate, Group::Batch) && !context.batch.is_empty();
        let pass_batch = || pass::run(context.bench, context.batch, &context.held.vectors, &[], progress);
        let batch = with_batch.then(pass_batch).transpose()?;
        let port = context.bench.port(Precision::F32)?;
        let floor = floor(&*port, &passed.rows, context.plan.gate.chunk, in_order_of_id, progress)?;
        Ok(Self { passed, batch, floor, unmutated: RefCell::default() })
    }

    /// What the judged port gives on the sequence, measured once. Errors: whatever a side returns.
    pub(crate) fn unmutated(
        &self,
        context: &Context<'_>,
        group: Group,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Measurement>> {
        if let Some(known) = self.unmutated.borrow().get(&group) {
            return Ok(known.clone());
        }
        let measured = measure(context, self, Subject::Judged, group, progress)?;
        self.unmutated.borrow_mut().insert(group, measured.clone());
        Ok(measured)
    }

    /// An expert that the fewest tokens of the sequence chose.
    pub(crate) fn idle(&self) -> Idle {
        self.passed.rows.idle()
    }
}

/// What is measured: the port that is judged, or a planted bug.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// The port that is judged.
    Judged,
    /// A bug, and where it is planted.
    Planted(&'a str, PlantedIn),
}

impl Subject<'_> {
    fn port(self, context: &Context<'_>, idle: Idle, precision: Precision) -> Result<Box<dyn Side>> {
        match self {
            Subject::Planted(id, PlantedIn::Port | PlantedIn::Checkpoint) => {
                context.bench.mutated_port(id, precision, idle)
            }
            Subject::Planted(id, PlantedIn::Harness) => {
                let (port, broken) = (context.bench.port(precision)?, Broken::find(id));
                Ok(Box::new(Forcing {
                    port,
                    broken: broken.expect("a bug of the harness is one of its own"),
                }))
            }
            Subject::Planted(_, PlantedIn::Reference) | Subject::Judged => context.bench.port(precision),
        }
    }

    fn in_port(&self) -> Option<&str> {
        match self {
            Subject::Planted(id, PlantedIn::Port) => Some(id),
            _ => None,
        }
    }

    fn in_reference(&self) -> Option<&str> {
        match self {
            Subject::Planted(id, PlantedIn::Reference) => Some(id),
            _ => None,
        }
    }
}

/// Measures one group on the sequence. Errors: whatever a side returns.
pub(crate) fn measure(
    context: &Context<'_>,
    sequence: &Sequence<'_>,
    subject: Subject<'_>,
    group: Group,
    progress: &mut dyn Progress,
) -> Result<Vec<Measurement>> {
    let (rows, chunk, floor) = (&sequence.passed.rows, context.plan.gate.chunk, &sequence.floor);
    let emulation = &sequence.passed.emulation;
    let port = |arm: Precision| subject.port(context, sequence.idle(), arm);
    Ok(match group {
        Group::Census => vec![statics::census(port(Precision::F32), context.held.tensors())?],
        Group::Weights => {
            let ports = [port(Precision::F32)?, port(Precision::Bf16)?];
            vec![statics::measure(context.held, &[&*ports[0], &*ports[1]])?]
        }
        Group::ForcingExact => {
            let exact = |arm: Precision, progress: &mut dyn Progress| {
                harness::forcing_exact(&*port(arm)?, arm, rows, chunk, progress)
            };
            vec![exact(Precision::F32, progress)?, exact(Precision::Bf16, progress)?]
        }
        Group::ForcingActive => harness::forcing_active(&*port(Precision::F32)?, rows, chunk, progress)?,
        Group::Product => vec![harness::reference_f64(context.bench, subject.in_reference())],
        Group::Reinjected(Precision::F32) => {
            let layers = reinjected::run(&*port(Precision::F32)?, Precision::F32, rows, chunk, progress)?;
            measure_f32(rows, &layers)
        }
        Group::Reinjected(Precision::Bf16) => {
            let layers = reinjected::run(&*port(Precision::Bf16)?, Precision::Bf16, rows, chunk, progress)?;
            measure_bf16(rows, &layers, &emulation.reinjected)
        }
        Group::Head => vec![schedule::head(&*port(Precision::F32)?, rows, chunk)?],
        Group::Forced(arm) => {
            let run = set::forced(&*port(arm)?, arm, rows, chunk, progress)?;
            measure_forced(arm, rows, &run, floor, emulation, chunk)
        }
        Group::Free => {
            let run = set::free(&*port(Precision::Bf16)?, rows, chunk, progress)?;
            measure_free(rows, &run, emulation)
        }
        Group::Chunk => schedule::chunks(&*port(Precision::F32)?, rows, chunk, floor, progress)?,
        Group::Decode => {
            let decoded = context.plan.decoded;
            vec![schedule::decode(&*port(Precision::F32)?, rows, chunk, decoded, floor, progress)?]
        }
        Group::Buffers => {
            vec![buffers::measure(context.bench, &*port(Precision::F32)?, rows, progress)?]
        }
        Group::Kernels => {
            let kernels = context.bench.kernels(subject.in_port())?;
            kernels::measure(&*kernels, context.bench.reference().config(), progress)?
        }
        Group::Batch => match &sequence.batch {
            Some(batch) => batch::measure(&*port(Precision::F32)?, &batch.rows, progress)?,
            None => batch::nothing(),
        },
        Group::Nll => damage(context, subject)?,
        Group::Golden => match context.plan.golden {
            Some(golden) => {
                let bench = context.bench.source().unwrap_or(context.bench);
                golden.measure(bench, subject.in_reference())?
            }
            None => return Err(no_golden()),
        },
    })
}

/// What `nll.bits_per_byte` says on the sequence of the reference as it is, or would say of one that has a
/// bug: then the correct reading is held against the bug's.
fn damage(context: &Context<'_>, subject: Subject<'_>) -> Result<Vec<Measurement>> {
    let case = context.plan.control_case;
    let run = Run {
        case,
        schedule: Schedule::chunks_of(case.len()),
        routing: Routing::Free,
        precision: Precision::F32,
    };
    let lane = |mutant| Lane { run, mutant, ids_of: None, input_of: None };
    let wanted = |name: &&str| subject.in_reference().is_none_or(|id| id == *name);
    let names: Vec<&'static str> = NLL_MUTANTS.into_iter().filter(wanted).collect();
    let lanes: Vec<Lane<'_>> = [None].into_iter().chain(names.iter().copied().map(Some)).map(lane).collect();
    let nll = pass::nll_of(context.bench, &lanes)?;
    let (reference, mutants) = nll.split_first().expect("the reference's own lane");
    let leg = |(name, mutant): (&&'static str, &Vec<f64>)| match subject.in_reference() {
        None => nll::leg_of(name, mutant, reference),
        Some(_) => nll::leg_of(name, reference, mutant),
    };
    Ok(names.iter().zip(mutants).map(leg).collect())
}

fn no_golden() -> Error {
    Error::Argument {
        what: "the golden outputs".into(),
        expected: "a file for `anchor.golden`, which this gate applies".into(),
        found: "none".into(),
        next: "give one with --golden, or a gate file that says why it is not applicable".into(),
    }
}
