//! Where a port leaves the reference: the part of the model, the site, the rows, and the shortest sequence.
//!
//! Inputs: a [`Bench`], one sequence, how the port is fed, a folder. Outputs: a [`Finding`], and in the
//! folder the log of steps, the finding and the shrunk sequence.
//!
//! Order of the search: one sweep feeds every part of both sides the same input (`sweep`), which gives the
//! wrong parts, and of the first its first site, its rows and their pattern; if no part is wrong on its own,
//! the port runs end to end, under several schedules where that is wrong; then the sequence is shrunk and the
//! result confirmed by a run. Every step is logged when it is done.
//!
//! Architecture invariant: neither side is known here, and what a site may be off is measured on the
//! reference ([`FACTOR`]), never given by hand.

mod bound;
mod ends;
mod finding;
mod origin;
mod pattern;
mod probe;
mod replay;
mod sentence;
mod shrink;
mod sweep;

pub use bound::{FACTOR, FLOOR};
pub use ends::schedule_words;
pub use finding::{
    EndToEnd, Finding, Key, Origin, PartName, PartRow, Runs, SCHEMA, ScheduleRow, Shrunk, SiteRow, Which,
    ranges,
};
pub use origin::origins;
pub use pattern::{Facts, Pattern, classify, grows, rank_correlation};
pub use replay::LOG;
pub use shrink::{probes_max, shortest};

use crate::bench::Bench;
use crate::beside::{Beside, Part};
use crate::compare::{Progress, check_cases};
use ends::Ends;
use probe::{Probe, Start, cut_case, cut_schedule, first_out, layer_of, wanted};
use replay::Replay;
use spec::{Case, Precision, Result, Schedule, Side, Site, output};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use sweep::{Judge, Sweep};

/// The rewrite of the reference, with every step in f64, that measures the reference's rounding errors.
pub const CALIBRATOR: &str = "steps_in_f64";
/// The shrunk sequence, a JSON list with one list of token ids, so that nothing cuts it.
pub const CASE: &str = "case.json";
/// The finding.
pub const FINDING: &str = "finding.json";
/// What the first wrong part was fed.
const INPUT: &str = "part-input.safetensors";

/// What is searched, and where to.
pub struct Plan<'a> {
    /// The sequence.
    pub case: &'a Case,
    /// What the log belongs to; its schedule is how the port is fed.
    pub key: &'a Key,
    /// Takes the log, the finding and the shrunk sequence.
    pub folder: &'a Path,
}

/// Searches, or goes on with a search.
///
/// Errors: [`spec::Error::Argument`] on a folder with the log of another search, [`spec::Error::Case`] on a
/// sequence that cannot be run, [`spec::Error::Io`], whatever a side returns.
pub fn run(bench: &dyn Bench, plan: &Plan<'_>, progress: &mut dyn Progress) -> Result<Finding> {
    assert_eq!(plan.key.precision, Precision::F32, "bounds come from f32 steps against f64 steps");
    check_cases(std::slice::from_ref(plan.case), bench.reference().config())?;
    let mut replay = Replay::open(plan.folder, plan.key)?;
    let port = bench.port(Precision::F32)?;
    let search = Search { bench, port: &*port, plan };
    let Sweep { parts, origin, slack } = replay.step("sweep", || search.sweep(progress))?;
    let mut finding = Finding {
        schema: SCHEMA.into(),
        key: plan.key.clone(),
        sentence: String::new(),
        factor: FACTOR,
        parts,
        origin: None,
        end_to_end: None,
        shrunk: None,
        runs: Runs { sweeps: 1, ..Runs::default() },
    };
    match origin {
        Some(origin) => search.of_part(origin, &mut finding, &mut replay, progress)?,
        None => search.of_ends(slack, &mut finding, &mut replay, progress)?,
    }
    finding.sentence = sentence::of(&finding);
    search.write(&finding)?;
    Ok(finding)
}

struct Search<'a> {
    bench: &'a dyn Bench,
    port: &'a dyn Side,
    plan: &'a Plan<'a>,
}

impl Search<'_> {
    fn sweep(&self, progress: &mut dyn Progress) -> Result<Sweep> {
        let (case, schedule) = (self.plan.case, self.plan.key.schedule);
        let mut judge = Judge::new(self.bench.reference().config(), case, schedule);
        let sites: Vec<Site> = Site::ALL.into_iter().filter(|site| site.is_per_layer()).collect();
        let beside = Beside {
            bench: self.bench,
            port: self.port,
            case,
            schedule,
            precision: Precision::F32,
            lanes: &[None, Some(CALIBRATOR)],
            sites: &sites,
        };
        let mut witness = |part: Part, lanes: &[_], port: &_| {
            judge.take(part, lanes, port);
            Ok(())
        };
        beside.run(&mut witness, progress)?;
        let (sweep, start) = judge.finish();
        if let Some(start) = start {
            start.write(&self.plan.folder.join(INPUT))?;
        }
        Ok(sweep)
    }

    /// A part that is wrong on its own: whether one call shows it too, and the shortest sequence.
    fn of_part(
        &self,
        mut origin: Origin,
        finding: &mut Finding,
        replay: &mut Replay,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let schedule = self.plan.key.schedule;
        let bounds: Vec<(Site, f64)> =
            origin.evidence.iter().filter(|row| row.origin).map(|row| (row.site, row.bound)).collect();
        let (row, prefix) = (origin.position..origin.position + 1, 0..origin.position + 1);
        let mut cuts = vec![prefix.clone()];
        if origin.part == PartName::Embedding {
            // its rows depend on nothing but their token
            cuts.insert(0, row);
        } else {
            let start = Start::read(&self.plan.folder.join(INPUT))?;
            let (bench, port, case) = (self.bench, self.port, self.plan.case);
            let probe = Probe { bench, port, case, part: origin.part, start: &start, bounds: &bounds };
            let call = self.call_of(origin.position);
            let runs = &mut finding.runs;
            runs.probes_max = 1 + probes_max(origin.position, call.end);
            progress.phase("probes of the first wrong part", runs.probes_max);
            if call.start > 0 {
                let one = Schedule::chunks_of(prefix.len());
                let first = replay.step("probe: one call", || probe.first_out(prefix.clone(), one))?;
                origin.in_one_call = Some(first.is_some());
                runs.probes += 1;
                progress.step(1);
            }
            origin.pattern = origin.pattern.refined(origin.in_one_call);
            let shortest = shortest(origin.position, call.end, |cut| {
                let name = format!("probe: tokens {}..{}", cut.start, cut.end);
                let fed = cut_schedule(schedule, cut.start);
                runs.probes += 1;
                let first = replay.step(&name, || probe.first_out(cut, fed));
                progress.step(1);
                first
            })?;
            cuts = vec![shortest.clone(), 0..shortest.end];
            cuts.dedup();
        }
        let shrunk = self.confirmed(&cuts, &origin, &bounds, finding, replay, progress)?;
        finding.shrunk = Some(shrunk);
        finding.origin = Some(origin);
        Ok(())
    }

    /// The call that takes a position.
    fn call_of(&self, position: usize) -> Range<usize> {
        let calls = self.plan.key.schedule.calls(self.plan.case.len());
        calls.into_iter().find(|call| call.contains(&position)).expect("calls cover the sequence")
    }

    /// The first of the cuts of which a run shows it, or the whole sequence, of which the sweep did.
    fn confirmed(
        &self,
        cuts: &[Range<usize>],
        origin: &Origin,
        bounds: &[(Site, f64)],
        finding: &mut Finding,
        replay: &mut Replay,
        progress: &mut dyn Progress,
    ) -> Result<Shrunk> {
        let layers = layer_of(origin.part).map(|layer| [layer.0, layer.0 + 1]);
        let shrunk = |cut: Range<usize>, confirmed| Shrunk {
            schedule: cut_schedule(self.plan.key.schedule, cut.start),
            start: cut.start,
            end: cut.end,
            layers,
            confirmed,
        };
        for cut in cuts {
            finding.runs.confirmations += 1;
            let name = format!("confirm: tokens {}..{}", cut.start, cut.end);
            let shows = replay.step(&name, || self.shows(cut, origin.part, bounds, &mut *progress))?;
            if shows {
                return Ok(shrunk(cut.clone(), true));
            }
        }
        Ok(shrunk(0..self.plan.case.len(), false))
    }

    /// Whether a whole run of a cut shows a site of the part out of bound.
    fn shows(
        &self,
        cut: &Range<usize>,
        wanted_part: PartName,
        bounds: &[(Site, f64)],
        progress: &mut dyn Progress,
    ) -> Result<bool> {
        let case = cut_case(self.plan.case, cut)?;
        let mut first = None;
        let mut witness = |part: Part, lanes: &[_], port: &_| {
            let is_it = match (part, wanted_part) {
                (Part::Embedding, PartName::Embedding) | (Part::Head, PartName::Head) => true,
                (Part::Layer(layer), PartName::Layer(wanted, _)) => layer == wanted,
                _ => false,
            };
            if is_it {
                first = first_out(bounds, &lanes[0], port);
            }
            Ok(())
        };
        let sites: Vec<Site> = wanted(bounds).into_iter().filter(|site| site.is_per_layer()).collect();
        let beside = Beside {
            bench: self.bench,
            port: self.port,
            case: &case,
            schedule: cut_schedule(self.plan.key.schedule, cut.start),
            precision: Precision::F32,
            lanes: &[None],
            sites: &sites,
        };
        beside.run(&mut witness, progress)?;
        Ok(first.is_some())
    }

    /// No part is wrong on its own: end to end, and the shortest sequence that shows it there.
    fn of_ends(
        &self,
        slack: f64,
        finding: &mut Finding,
        replay: &mut Replay,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let (case, schedule) = (self.plan.case, self.plan.key.schedule);
        let ends = Ends { bench: self.bench, port: self.port, case, slack };
        let others = ends::others(schedule, case.len(), self.bench.reference().config());
        let found = replay.step("end to end", || ends.run(schedule, &others, &mut *progress))?;
        let runs = &mut finding.runs;
        runs.schedules = found.schedules.len();
        let first = &found.schedules[0];
        if let Some(position) = first.position {
            let call_end = self.call_of(position).end;
            runs.probes_max = 1 + probes_max(position, call_end);
            let mut asked = BTreeSet::new();
            // a probe is a whole run already
            let mut shows = |cut: Range<usize>| {
                let name = format!("end to end: tokens {}..{}", cut.start, cut.end);
                let fed = cut_schedule(schedule, cut.start);
                let case = cut_case(case, &cut)?;
                let ends = Ends { bench: self.bench, port: self.port, case: &case, slack };
                asked.insert(name.clone());
                let found = replay.step(&name, || ends.run(fed, &[], &mut *progress))?;
                Ok(found.schedules[0].position)
            };
            let cut = shortest(position, call_end, &mut shows)?;
            let confirmed = shows(cut.clone())?.is_some();
            runs.probes = asked.len();
            let cut = if confirmed { cut } else { 0..case.len() };
            finding.shrunk = Some(Shrunk {
                schedule: cut_schedule(schedule, cut.start),
                start: cut.start,
                end: cut.end,
                layers: first.layer.map(|layer| [0, layer.0 + 1]),
                confirmed,
            });
        }
        finding.end_to_end = Some(found);
        Ok(())
    }

    fn write(&self, finding: &Finding) -> Result<()> {
        if let Some(shrunk) = &finding.shrunk {
            let tokens = &self.plan.case.tokens[shrunk.start..shrunk.end];
            write_json(&self.plan.folder.join(CASE), &[tokens])?;
        }
        write_json(&self.plan.folder.join(FINDING), finding)
    }
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).expect("numbers and names");
    output::write_file(path, |file| writeln!(file, "{text}"))
}
