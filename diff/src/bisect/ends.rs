//! The port end to end, where every part alone is right: what a part keeps from one layer or call to the
//! next.
//!
//! The reference runs twice in one pass, in f32 and with every step in f64, on the same experts, each on its
//! own residual: how far the two have drifted apart at a layer's output is what rounding does end to end, and
//! the bound is [`super::FACTOR`] times that. The port's layer outputs, forced onto the same experts, are
//! held against the reference's by layer and position. Absent on purpose: sites within layers, whose inputs
//! differ by then.

use super::CALIBRATOR;
use super::bound::{bound, is_out, worst};
use super::finding::{EndToEnd, ScheduleRow};
use crate::bench::{Bench, Lane};
use crate::beside::{SiteRows, append};
use crate::compare::Progress;
use crate::compare::ledger::Ledger;
use crate::metrics::branch::relative_error;
use crate::spool::Spool;
use ndarray::ArrayView2;
use spec::{At, Case, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule, Side, Site};
use std::collections::BTreeMap;

/// A layer's output, or the logits.
type End = Option<LayerId>;

/// Both sides over one sequence.
pub(crate) struct Ends<'a> {
    pub(crate) bench: &'a dyn Bench,
    pub(crate) port: &'a dyn Side,
    pub(crate) case: &'a Case,
    /// How many times more than by rounding it may be off, for its angles.
    pub(crate) slack: f64,
}

impl Ends<'_> {
    /// The port under a schedule, and, where that is wrong, under others. Errors: whatever a side returns.
    pub(crate) fn run(
        &self,
        schedule: Schedule,
        others: &[Schedule],
        progress: &mut dyn Progress,
    ) -> Result<EndToEnd> {
        let config = self.bench.reference().config();
        let lane = |mutant| Lane {
            run: Run {
                case: self.case,
                schedule: Schedule::chunks_of(self.case.len()),
                routing: Routing::Free,
                precision: Precision::F32,
            },
            mutant,
            ids_of: None,
            input_of: None,
        };
        let lanes = [lane(None), Lane { ids_of: Some(0), ..lane(Some(CALIBRATOR)) }];
        let cases = [self.case.clone(), self.case.clone()];
        progress.phase("reference, end to end", config.num_layers());
        let mut drift = Drift::new(config, &cases, progress)?;
        let executed = self.bench.reference_lanes(&lanes, &mut drift)?;
        let (spool, mut bounds) = drift.finish()?;
        bounds.values_mut().for_each(|bound| *bound *= self.slack);
        let choices = executed.into_iter().next().expect("lane 0").choices;
        let mut schedules = Vec::new();
        for schedule in std::iter::once(schedule).chain(others.iter().copied()) {
            progress.phase("port, end to end", self.case.len());
            let mut held = Held::new(self.port.config(), std::slice::from_ref(self.case), &spool);
            let routing = Routing::Forced(&choices);
            let run = Run { case: self.case, schedule, routing, precision: Precision::F32 };
            self.port.forward(&[run], &mut held)?;
            schedules.push(held.row(schedule, &bounds)?);
            progress.step(self.case.len());
            if schedules[0].position.is_none() {
                break;
            }
        }
        Ok(EndToEnd { schedules })
    }
}

/// The schedules that tell kinds of state apart: one call, chunks of a window, one token per call.
pub(crate) fn others(given: Schedule, tokens: usize, config: &ModelConfig) -> Vec<Schedule> {
    let window = config.sliding_window.map(Schedule::chunks_of);
    let decode = Schedule { decode_from: Some(1), ..Schedule::chunks_of(tokens) };
    let all = std::iter::once(Schedule::chunks_of(tokens)).chain(window).chain([decode]);
    all.filter(|other| other.calls(tokens) != given.calls(tokens)).collect()
}

/// "one call", "chunks of 33", "chunks of 128, one token per call from 64 on".
pub fn schedule_words(schedule: Schedule, tokens: usize) -> String {
    let prefill = schedule.decode_from.unwrap_or(tokens).min(tokens);
    let fed = if schedule.prefill_chunk >= prefill {
        "one call".into()
    } else {
        format!("chunks of {}", schedule.prefill_chunk)
    };
    match schedule.decode_from.filter(|&decode| decode < tokens) {
        Some(decode) if decode <= 1 => "one token per call".into(),
        Some(decode) => format!("{fed}, one token per call from {decode} on"),
        None => fed,
    }
}

fn ends(config: &ModelConfig) -> impl Iterator<Item = (End, Site)> + use<> {
    config.layer_ids().map(|layer| (Some(layer), Site::LayerOut)).chain([(None, Site::Logits)])
}

/// Keeps lane 0's rows on disk, and how far lane 1 is from them.
struct Drift<'a> {
    ledger: Ledger<'a>,
    spool: Spool<End>,
    /// Lane 1's rows that have come, or lane 0's, whichever came first.
    errors: BTreeMap<End, Vec<f64>>,
    /// What one lane has recorded and the other has not yet: `[lane 0, lane 1]` of the end at hand.
    waiting: [SiteRows; 2],
    progress: &'a mut dyn Progress,
}

impl<'a> Drift<'a> {
    fn new(config: &'a ModelConfig, cases: &'a [Case; 2], progress: &'a mut dyn Progress) -> Result<Self> {
        let mut ledger = Ledger::new("reference", cases, config);
        ends(config).for_each(|(layer, site)| ledger.expect(layer, site));
        let extents = ends(config).map(|(layer, site)| (layer, cases[0].len(), site.width(config)));
        let spool = Spool::create(extents)?;
        Ok(Self { ledger, spool, errors: BTreeMap::new(), waiting: Default::default(), progress })
    }

    /// The rows, and the bound of each end.
    fn finish(self) -> Result<(Spool<End>, BTreeMap<End, f64>)> {
        self.ledger.finish()?;
        let bounds =
            self.errors.into_iter().map(|(end, errors)| (end, bound(Site::LayerOut, errors.into_iter())));
        Ok((self.spool, bounds.collect()))
    }
}

impl Recorder for Drift<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        if at.run == 0 {
            self.spool.append(&at.layer, rows)?;
        }
        append(&mut self.waiting[at.run], at.site, rows);
        let [own, exact] = &mut self.waiting;
        let (Some(own), Some(exact)) = (own.get_mut(&at.site), exact.get_mut(&at.site)) else {
            return Ok(());
        };
        // rows of both lanes meet by position: each comes in order
        let both = own.nrows().min(exact.nrows());
        let errors = self.errors.entry(at.layer).or_default();
        errors.extend((0..both).map(|row| relative_error(exact.row(row), own.row(row))));
        for rows in [own, exact] {
            *rows = rows.slice(ndarray::s![both.., ..]).to_owned();
        }
        Ok(())
    }

    fn layer_done(&mut self, _layer: LayerId) -> Result<()> {
        self.progress.step(1);
        Ok(())
    }
}

/// The port's rows against the reference's.
struct Held<'a> {
    ledger: Ledger<'a>,
    config: &'a ModelConfig,
    tokens: usize,
    spool: &'a Spool<End>,
    errors: BTreeMap<End, Vec<f64>>,
}

impl<'a> Held<'a> {
    fn new(config: &'a ModelConfig, cases: &'a [Case], spool: &'a Spool<End>) -> Self {
        let mut ledger = Ledger::new("port", cases, config);
        ends(config).for_each(|(layer, site)| ledger.expect(layer, site));
        Self { ledger, config, tokens: cases[0].len(), spool, errors: BTreeMap::new() }
    }

    /// Where it leaves its bound first: the earliest position, there the first layer.
    fn row(self, schedule: Schedule, bounds: &BTreeMap<End, f64>) -> Result<ScheduleRow> {
        self.ledger.finish()?;
        let first = |end: End| {
            let bound = bounds[&end];
            let position = self.errors[&end].iter().position(|&error| is_out(error, bound))?;
            // the logits come after every layer
            Some((position, end.map_or(usize::MAX, |layer| layer.0), end))
        };
        let first =
            ends(self.config).filter_map(|(end, _)| first(end)).min_by_key(|&(at, order, _)| (at, order));
        Ok(ScheduleRow {
            schedule,
            name: schedule_words(schedule, self.tokens),
            position: first.map(|(position, _, _)| position),
            layer: first.and_then(|(_, _, end)| end),
            logits_error_max: worst(self.errors[&None].iter().copied()),
            logits_bound: bounds[&None],
        })
    }
}

impl Recorder for Held<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, rows)?;
        let expected = self.spool.read(&at.layer, at.rows.clone())?;
        let errors = expected.rows().into_iter().zip(rows.rows()).map(|(a, b)| relative_error(a, b));
        self.errors.entry(at.layer).or_default().extend(errors);
        Ok(())
    }
}
