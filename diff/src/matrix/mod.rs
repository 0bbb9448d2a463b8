//! The matrix: every planted bug and every correct rewrite of the catalogue against every check.
//!
//! Inputs: a [`Bench`], a gate file's limits, one sequence. Output: a [`Sheet`]: which bug is caught by which
//! leg, by what margin; which is missed, which cannot do anything here, which crashed; and whether a check
//! fires on a correct rewrite. Everything is measured by the gate's own code and judged by the limits of the
//! run without a bug. All bugs of the reference go through one pass, in lanes.
//!
//! Absent on purpose: sets of text, and the bindings of a gate file, which say what a bug *must* fire; here
//! it is measured what it does fire.

mod sheet;

pub use sheet::{Cell, Matrix, Outcome, Overall, Row, SCHEMA, Sheet, Subtlety};

use crate::bench::{Bench, Occasion, Planted, PlantedIn};
use crate::compare::Progress;
use crate::gate::checks::{self, Group, NLL_MUTANTS};
use crate::gate::finding::{Measurement, fired, judge_all};
use crate::gate::golden::GoldenLane;
use crate::gate::limits::Gate;
use crate::gate::record::{Checkpoint, Finding, Outcome as Judged};
use crate::gate::sequence::{Sequence, Subject, measure};
use crate::gate::statics::{self, Held};
use crate::gate::{Context, Golden, Plan, applies, batch, harness, nll};
use crate::stats::is_worse;
use spec::{Case, Error, Precision, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Tokens at the end of the sequence that are fed one at a time.
pub const DECODED: usize = 64;

/// The measurements of a port.
const OF_PORT: [Group; 12] = [
    Group::Weights,
    Group::Reinjected(Precision::F32),
    Group::Reinjected(Precision::Bf16),
    Group::Head,
    Group::Forced(Precision::F32),
    Group::Forced(Precision::Bf16),
    Group::Free,
    Group::Chunk,
    Group::Decode,
    Group::Kernels,
    Group::Batch,
    Group::Buffers,
];

/// The measurements of forcing itself, and of what is recorded.
const OF_HARNESS: [Group; 4] = [
    Group::ForcingExact,
    Group::ForcingActive,
    Group::Reinjected(Precision::F32),
    Group::Forced(Precision::F32),
];

/// What is run.
pub struct Catalogue<'a> {
    /// What was loaded.
    pub checkpoint: Checkpoint,
    /// Limits.
    pub gate: &'a Gate,
    /// The one sequence.
    pub case: &'a Case,
    /// Recorded outputs of a third implementation, where the gate applies `anchor.golden`.
    pub golden: Option<&'a Golden>,
    /// The rows to run, in their order.
    pub rows: &'a [&'a Planted],
}

/// Runs it. Errors: whatever the sides return without any bug.
pub fn run(bench: &dyn Bench, catalogue: &Catalogue<'_>, progress: &mut dyn Progress) -> Result<Sheet> {
    let start = Instant::now();
    progress.section("without a bug");
    let held = statics::of_reference(bench.reference())?;
    let plan = Plan {
        gate: catalogue.gate,
        sets: &[],
        control_case: catalogue.case,
        decoded: DECODED.min(catalogue.case.len() / 2),
        golden: catalogue.golden,
        disabled_control: None,
    };
    let batch = batch::rows_of(catalogue.case, bench.reference().config())?;
    let context = Context { bench, plan: &plan, held: &held, batch: &batch };
    let sequence = Sequence::prepare(&context, progress)?;
    let occasion = Occasion { batch: sequence.batch.is_some(), ..occasion(&held, catalogue) };
    let mut matrix =
        Runner { context: &context, sequence: &sequence, occasion, failing: Vec::new(), progress };
    matrix.without_bugs()?;
    let mut rows = matrix.of_reference(catalogue.rows)?;
    for planted in catalogue.rows {
        for &side in planted.sides.iter().filter(|side| **side != PlantedIn::Reference) {
            rows.push(matrix.row(planted, side));
        }
    }
    rows.sort_by_key(|row| catalogue.rows.iter().position(|planted| planted.id == row.id));
    let failing = matrix.failing;
    let gate = catalogue.gate;
    Ok(Sheet {
        checkpoint: catalogue.checkpoint.clone(),
        gate: gate.name.clone(),
        tokens: catalogue.case.len(),
        chunk: gate.chunk,
        decoded: plan.decoded,
        checks: checks::all().filter(|c| gate.checks.contains_key(c.name)).map(|c| c.name.into()).collect(),
        failing,
        rows,
        seconds: start.elapsed().as_secs_f64(),
    })
}

struct Runner<'r, 'a> {
    context: &'r Context<'a>,
    sequence: &'r Sequence<'a>,
    /// What the sequence offers.
    occasion: Occasion,
    /// Checks that fail without a bug.
    failing: Vec<String>,
    progress: &'r mut dyn Progress,
}

impl Runner<'_, '_> {
    /// What every group gives without a bug.
    fn without_bugs(&mut self) -> Result<()> {
        let gate = self.context.plan.gate;
        for group in OF_PORT.into_iter().chain(OF_HARNESS).filter(|group| applies(gate, *group)) {
            let measured = self.sequence.unmutated(self.context, group, self.progress)?;
            for finding in judge_all(&measured, gate, None) {
                let name = format!("{} {}", finding.check, finding.leg);
                if finding.outcome == Judged::Fail && !self.failing.contains(&name) {
                    self.failing.push(name);
                }
            }
        }
        Ok(())
    }

    /// One bug or rewrite of the port, of its checkpoint, or of forcing.
    fn row(&mut self, planted: &Planted, side: PlantedIn) -> Row {
        self.progress.section(&planted.id);
        let unmet = self.context.bench.unmet(&planted.id, &self.occasion);
        let cells = match unmet.is_empty() || planted.rewrite {
            true => {
                let measured = catch_unwind(AssertUnwindSafe(|| self.cells(planted, side)));
                measured.unwrap_or_else(|panic| Err(panicked(&*panic)))
            }
            false => Ok(Vec::new()),
        };
        row(planted, side, &unmet, cells)
    }

    fn cells(&mut self, planted: &Planted, side: PlantedIn) -> Result<Vec<Cell>> {
        let (context, sequence) = (self.context, self.sequence);
        let gate = context.plan.gate;
        let subject = Subject::Planted(&planted.id, side);
        let mut cells = Vec::new();
        if side == PlantedIn::Checkpoint {
            let with = measure(context, sequence, subject, Group::Census, self.progress)?;
            let without = sequence.unmutated(context, Group::Census, self.progress)?;
            judge_cells(gate, &with, &without, &mut cells);
            if cells.iter().any(|cell| cell.fired) {
                // a port that refuses its checkpoint cannot be asked anything else
                return Ok(cells);
            }
        }
        let groups: &[Group] = if side == PlantedIn::Harness { &OF_HARNESS } else { &OF_PORT };
        for &group in groups.iter().filter(|group| applies(gate, **group)) {
            // a bug in a step leaves the weights that both ports share, one in a checkpoint all kernels; and
            // nothing but a cache lives from call to call
            let in_cache = planted.stage == "cache";
            match (group, side) {
                (Group::Weights, PlantedIn::Port) | (Group::Kernels, PlantedIn::Checkpoint) => continue,
                (Group::Buffers, _) if !in_cache => continue,
                _ => {}
            }
            let with = measure(context, sequence, subject, group, self.progress)?;
            let without = sequence.unmutated(context, group, self.progress)?;
            judge_cells(gate, &with, &without, &mut cells);
        }
        Ok(cells)
    }

    /// All bugs and rewrites of the reference, in one pass.
    fn of_reference(&mut self, planted: &[&Planted]) -> Result<Vec<Row>> {
        let (bench, gate) = (self.context.bench, self.context.plan.gate);
        let in_reference = |planted: &&Planted| planted.sides.contains(&PlantedIn::Reference);
        let planted: Vec<&Planted> = planted.iter().copied().filter(in_reference).collect();
        let tokens = self.context.plan.golden.map_or(0, Golden::tokens);
        let occasion = Occasion { tokens, ..self.occasion };
        let product = self.sequence.unmutated(self.context, Group::Product, self.progress)?;
        let ids: Vec<Option<&str>> =
            [None].into_iter().chain(planted.iter().map(|planted| Some(planted.id.as_str()))).collect();
        let lanes = match self.context.plan.golden {
            Some(golden) if !planted.is_empty() => golden.lanes(bench, &ids)?,
            _ => Vec::new(),
        };
        let mut rows = Vec::new();
        for (index, planted) in planted.into_iter().enumerate() {
            let mut cells = Vec::new();
            judge_cells(gate, &[harness::reference_f64(bench, Some(&planted.id))], &product, &mut cells);
            let mut unmet = Vec::new();
            if let Some(lane) = lanes.get(1 + index) {
                judge_cells(gate, &lane.measured, &lanes[0].measured, &mut cells);
                cells.extend(damage(gate, planted, lane, &lanes[0]));
                unmet.extend(bench.unmet(&planted.id, &occasion));
            } else {
                unmet.push("recorded outputs of a third implementation".into());
            }
            rows.push(row(planted, PlantedIn::Reference, &unmet, Ok(cells)));
        }
        Ok(rows)
    }
}

/// What the sequence and the checkpoint's selection biases offer.
fn occasion(held: &Held, catalogue: &Catalogue<'_>) -> Occasion {
    let of_bias = |(name, _): &(&String, &Vec<f32>)| name.ends_with(".expert_bias");
    let biases = || held.vectors.iter().filter(of_bias).flat_map(|(_, bias)| bias);
    Occasion {
        tokens: catalogue.case.len(),
        chunk: catalogue.gate.chunk,
        batch: false,
        nonzero_bias: biases().any(|&value| value != 0.0),
        wide_bias: biases().any(|&value| half::bf16::from_f32(value).to_f32() != value),
    }
}

/// What a bug of the reference costs in likelihood, as `nll.bits_per_byte` judges it.
fn damage(gate: &Gate, planted: &Planted, lane: &GoldenLane, correct: &GoldenLane) -> Option<Cell> {
    gate.limit("nll.bits_per_byte", NLL_MUTANTS[0])?;
    // the correct reading held against the bug's
    let with = [nll::leg_of(NLL_MUTANTS[0], &correct.nll, &lane.nll)];
    let without = [nll::leg_of(NLL_MUTANTS[0], &lane.nll, &correct.nll)];
    let mut cells = Vec::new();
    judge_cells(gate, &with, &without, &mut cells);
    cells.into_iter().next().map(|cell| Cell { leg: planted.id.clone(), ..cell })
}

/// One cell per check: the worst of the legs that fired and pass without the bug, else the worst of the
/// others.
fn judge_cells(gate: &Gate, with: &[Measurement], without: &[Measurement], cells: &mut Vec<Cell>) {
    let without = judge_all(without, gate, None);
    for finding in judge_all(with, gate, None) {
        let of_leg = |clean: &&Finding| (&clean.check, &clean.leg) == (&finding.check, &finding.leg);
        let fired = without.iter().find(of_leg).is_some_and(|clean| fired(&finding, clean));
        let (value, limit, margin) = (finding.value, finding.limit, finding.excess);
        let new = Cell { check: finding.check, leg: finding.leg, value, limit, margin, fired };
        match cells.iter_mut().find(|cell| cell.check == new.check) {
            None => cells.push(new),
            Some(old) => {
                if (new.fired, is_worse(new.margin, old.margin)) > (old.fired, false) {
                    *old = new;
                }
            }
        }
    }
}

fn row(planted: &Planted, side: PlantedIn, unmet: &[String], cells: Result<Vec<Cell>>) -> Row {
    let fired = |cells: &[Cell]| cells.iter().any(|cell| cell.fired);
    let (outcome, why, cells) = match cells {
        Err(error) => (Outcome::Crashed, error.to_string(), Vec::new()),
        Ok(cells) if planted.rewrite => {
            (if fired(&cells) { Outcome::FalseAlarm } else { Outcome::Quiet }, String::new(), cells)
        }
        Ok(cells) if fired(&cells) => (Outcome::Caught, String::new(), cells),
        Ok(cells) if !unmet.is_empty() => {
            (Outcome::NotExercised, format!("needs {}", unmet.join(", ")), cells)
        }
        Ok(cells) => (Outcome::Missed, String::new(), cells),
    };
    Row {
        id: planted.id.clone(),
        side: side.name().into(),
        rewrite: planted.rewrite,
        stage: planted.stage.clone(),
        outcome,
        why,
        cells,
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    Error::Argument {
        what: "a planted bug".into(),
        expected: "numbers, right or wrong".into(),
        found: format!("a panic: {}", words.unwrap_or("without a word")),
        next: "mend the bug: it must run".into(),
    }
}
