//! One pass of the reference over some cases, with all its lanes: the reference itself, its bf16 emulation
//! free, forced and re-injected, and its planted bugs. Each weight is read once for all of them.
//!
//! The reference's own rows go to disk; every other lane meets them there as it comes, because lanes pass in
//! order. Absent on purpose: the port.

use super::build::Source;
use super::logits::LogitsRows;
use super::rows::{LAYER_SITES, Rows, Vectors, extents};
use super::tally::{LayerTally, RouterTally};
use crate::bench::{Bench, Lane};
use crate::compare::ledger::Ledger;
use crate::compare::{Progress, check_cases};
use crate::metrics::logits;
use crate::spool::Spool;
use ndarray::ArrayView2;
use spec::{
    At, Case, Choices, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run, Schedule, Site,
};

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// RF of docs/gate.md: forced onto the choices of R1. Where the checkpoint is no build of another one, R1
    /// itself, which forced onto its own choices gives the same bits.
    Reference,
    /// RE fed the reference's rows at each layer, forced onto its choices.
    Reinjected,
    /// RE from end to end, forced.
    Forced,
    /// RE from end to end, free.
    Free,
    /// A planted bug, by index.
    Mutant(usize),
}

/// The roles that every pass has.
const ROLES: [Role; 4] = [Role::Reference, Role::Reinjected, Role::Forced, Role::Free];

/// The bf16 emulation, held against the reference.
pub(crate) struct Emulation {
    /// By layer.
    pub(crate) reinjected: Vec<LayerTally>,
    /// By layer.
    pub(crate) free_routers: Vec<RouterTally>,
    pub(crate) forced: LogitsRows,
    pub(crate) free: LogitsRows,
}

/// What a pass left.
pub(crate) struct Passed<'a> {
    pub(crate) rows: Rows<'a>,
    pub(crate) emulation: Emulation,
    /// Negative log-likelihood of the next token by lane (the reference's, then each mutant's), case and
    /// position, nats.
    pub(crate) nll: Vec<Vec<Vec<f64>>>,
    pub(crate) lanes: usize,
    pub(crate) bytes: u64,
    /// The checkpoint that this one is a build of, if it is.
    pub(crate) source: Option<Source>,
}

/// Runs the pass. `mutants` are planted bugs of the reference whose likelihood is wanted. Errors:
/// [`spec::Error::Unpaired`], [`spec::Error::Io`], and whatever the reference returns.
pub(crate) fn run<'a>(
    bench: &'a dyn Bench,
    cases: &'a [Case],
    vectors: &'a Vectors,
    mutants: &[&str],
    progress: &mut dyn Progress,
) -> Result<Passed<'a>> {
    let config = bench.reference().config();
    check_cases(cases, config)?;
    let source = bench.source().map(|source| Source::run(source, cases, progress)).transpose()?;
    let roles: Vec<Role> = ROLES.into_iter().chain((0..mutants.len()).map(Role::Mutant)).collect();
    let mut lanes = Vec::new();
    let mut places = Vec::new();
    for (case, tokens) in cases.iter().enumerate() {
        let first = lanes.len();
        for &role in &roles {
            let mut lane = lane(role, tokens, first, mutants);
            if let (Role::Reference, Some(source)) = (role, &source) {
                lane.run.routing = Routing::Forced(&source.choices[case]);
            }
            lanes.push(lane);
            places.push((case, role));
        }
    }
    let lane_cases: Vec<Case> = lanes.iter().map(|lane| lane.run.case.clone()).collect();
    progress.phase("reference, all lanes", config.num_layers() + lanes.len());
    let mut recorder =
        PassRecorder::new(config, cases, vectors, &lane_cases, places, mutants.len(), progress)?;
    let before = bench.reference_bytes_read();
    let executed = bench.reference_lanes(&lanes, &mut recorder)?;
    let bytes = bench.reference_bytes_read() - before;
    recorder.ledger.finish()?;
    let mut rows = recorder.rows;
    rows.choices = executed.into_iter().step_by(roles.len()).map(|executed| executed.choices).collect();
    for (choices, case) in rows.choices.iter().zip(cases) {
        Choices::check(choices, &case.name, case.len(), config)?;
    }
    let lanes = lanes.len();
    Ok(Passed { rows, emulation: recorder.emulation, nll: recorder.nll, lanes, bytes, source })
}

fn lane<'a>(role: Role, case: &'a Case, first: usize, mutants: &[&'a str]) -> Lane<'a> {
    let precision = match role {
        Role::Reference | Role::Mutant(_) => Precision::F32,
        Role::Reinjected | Role::Forced | Role::Free => Precision::Bf16,
    };
    let run = Run { case, schedule: Schedule::chunks_of(case.len()), routing: Routing::Free, precision };
    let forced = matches!(role, Role::Reinjected | Role::Forced);
    Lane {
        run,
        mutant: match role {
            Role::Mutant(index) => Some(mutants[index]),
            _ => None,
        },
        ids_of: forced.then_some(first),
        input_of: (role == Role::Reinjected).then_some(first),
    }
}

/// The sites of a layer that a lane is wanted to record.
fn layer_sites(role: Role) -> &'static [Site] {
    match role {
        Role::Reference => &LAYER_SITES,
        Role::Reinjected => &[Site::AttnBranch, Site::MoeBranch, Site::RouterLogits, Site::ShadowChoice],
        Role::Free => &[Site::RouterLogits, Site::ShadowChoice],
        Role::Forced | Role::Mutant(_) => &[],
    }
}

struct PassRecorder<'a, 'p> {
    ledger: Ledger<'p>,
    /// By lane: its case and role.
    places: Vec<(usize, Role)>,
    rows: Rows<'a>,
    emulation: Emulation,
    nll: Vec<Vec<Vec<f64>>>,
    progress: &'p mut dyn Progress,
}

impl<'a, 'p> PassRecorder<'a, 'p> {
    fn new(
        config: &'a ModelConfig,
        cases: &'a [Case],
        vectors: &'a Vectors,
        lane_cases: &'p [Case],
        places: Vec<(usize, Role)>,
        mutants: usize,
        progress: &'p mut dyn Progress,
    ) -> Result<Self>
    where
        'a: 'p,
    {
        let mut ledger = Ledger::new("reference", lane_cases, config);
        for (lane, (_, role)) in places.iter().enumerate() {
            for layer in config.layer_ids() {
                layer_sites(*role).iter().for_each(|&site| ledger.expect_of(lane, Some(layer), site));
            }
            if *role == Role::Reference {
                ledger.expect_of(lane, None, Site::Embedding);
            }
            if *role != Role::Reinjected {
                ledger.expect_of(lane, None, Site::Logits);
            }
        }
        let spool = Spool::create(extents(config, cases))?;
        let layers = config.num_layers();
        Ok(Self {
            ledger,
            places,
            rows: Rows { config, cases, vectors, spool, choices: Vec::new() },
            emulation: Emulation {
                reinjected: vec![LayerTally::default(); layers],
                free_routers: vec![RouterTally::default(); layers],
                forced: LogitsRows::new(cases.len()),
                free: LogitsRows::new(cases.len()),
            },
            nll: vec![vec![Vec::new(); cases.len()]; 1 + mutants],
            progress,
        })
    }

    fn logits(&mut self, case: usize, role: Role, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        let lane = match role {
            Role::Reference => Some(0),
            Role::Mutant(index) => Some(1 + index),
            _ => None,
        };
        if let Some(lane) = lane {
            let tokens = &self.rows.cases[case].tokens;
            self.nll[lane][case].extend(logits::next_token_nll(tokens, at.rows.start, found));
        }
        let emulation = match role {
            Role::Reference => return self.rows.spool.append(&(case, None, Site::Logits), found),
            Role::Forced => &mut self.emulation.forced,
            Role::Free => &mut self.emulation.free,
            Role::Reinjected | Role::Mutant(_) => return Ok(()),
        };
        let stored = self.rows.spool.read(&(case, None, Site::Logits), at.rows.clone())?;
        for (stored, found) in stored.rows().into_iter().zip(found.rows()) {
            emulation.position(case, stored, found);
        }
        Ok(())
    }
}

impl Recorder for PassRecorder<'_, '_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        let (case, role) = self.places[at.run];
        if at.site == Site::Logits {
            if at.rows.end == self.rows.cases[case].len() {
                self.progress.step(1);
            }
            return self.logits(case, role, at, found);
        }
        match (role, at.layer) {
            (Role::Reference, _) => self.rows.spool.append(&(case, at.layer, at.site), found),
            (Role::Reinjected, Some(layer)) => {
                self.emulation.reinjected[layer.0].take(&self.rows, case, at, found)
            }
            (Role::Free, Some(layer)) => {
                self.emulation.free_routers[layer.0].take(&self.rows, case, at, found)
            }
            _ => unreachable!("the ledger refuses {} of {role:?}", at.site),
        }
    }

    fn layer_done(&mut self, _layer: LayerId) -> Result<()> {
        self.progress.step(1);
        Ok(())
    }
}

/// Negative log-likelihoods of some lanes alone, by lane and position, nats. Errors: the reference's.
pub(crate) fn nll_of(bench: &dyn Bench, lanes: &[Lane<'_>]) -> Result<Vec<Vec<f64>>> {
    let cases: Vec<Case> = lanes.iter().map(|lane| lane.run.case.clone()).collect();
    let mut ledger = Ledger::new("reference", &cases, bench.reference().config());
    ledger.expect(None, Site::Logits);
    let mut recorder = NllRecorder { ledger, cases: &cases, nll: vec![Vec::new(); cases.len()] };
    bench.reference_lanes(lanes, &mut recorder)?;
    recorder.ledger.finish()?;
    Ok(recorder.nll)
}

struct NllRecorder<'a> {
    ledger: Ledger<'a>,
    cases: &'a [Case],
    nll: Vec<Vec<f64>>,
}

impl Recorder for NllRecorder<'_> {
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool {
        self.ledger.wants(run, layer, site)
    }

    fn record(&mut self, at: &At, found: ArrayView2<'_, f32>) -> Result<()> {
        self.ledger.take(at, found)?;
        let tokens = &self.cases[at.run].tokens;
        self.nll[at.run].extend(logits::next_token_nll(tokens, at.rows.start, found));
        Ok(())
    }
}
