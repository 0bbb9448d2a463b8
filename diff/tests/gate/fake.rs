//! Both sides as tables, for two layers, hidden size 2, 4 experts, 2 per token, 3 tokens in the vocabulary.
//!
//! Nothing is computed from weights: every row is written down in [`honest`], the port's arms and the
//! emulation are edits of it, so each finding can be worked out by hand. What a table cannot be is told
//! apart in [`Port::logits`]: logits depend on the experts that were executed.

#[path = "../support/config.rs"]
mod config;
#[path = "../support/kernels.rs"]
mod kernels;

use crate::tensors::tensors;
use config::config;
use diff::bench::{Bench, Idle, Lane, Occasion, Planted, PlantedIn};
use kernels::{Fault, Plain};
use ndarray::{Array2, ArrayView2};
use spec::{
    At, Choices, Error, Executed, ExpertId, Kernels, LayerId, ModelConfig, Precision, Recorder, Result,
    Routing, Run, Schedule, Side, SideInfo, Site,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

/// Which row is about to be recorded.
pub struct Row<'a> {
    pub case: &'a str,
    pub layer: Option<usize>,
    pub site: Site,
    pub position: usize,
    /// Tokens of the call it is recorded in.
    pub call: usize,
    /// Sequences that go through together.
    pub together: usize,
}

impl Row<'_> {
    /// Whether it is this one.
    pub fn is(&self, case: &str, layer: Option<usize>, site: Site, position: usize) -> bool {
        (self.case, self.layer, self.site, self.position) == (case, layer, site, position)
    }
}

/// Changes a row.
pub type Edit = fn(&Row<'_>, &mut Vec<f32>);

/// Logits of a position whose experts are its own, in its own order.
pub const LOGITS: [f32; 3] = [5.1, 0.1, 0.3];
/// The same where the experts were summed in another order.
pub const LOGITS_REORDERED: [f32; 3] = [5.1, 0.1, 0.301];
/// Logits of a position that executed other experts.
pub const LOGITS_OF_OTHERS: [f32; 3] = [0.1, 1.1, 0.1];
/// Bytes that each lane of a pass reads.
pub const LANE_BYTES: u64 = 7;

/// The row that the reference, the emulation and an honest port record.
pub fn honest(layer: Option<usize>, site: Site, position: usize) -> Vec<f32> {
    let even = position.is_multiple_of(2);
    let number = position as f32 + 1.0;
    match site {
        Site::Embedding => vec![number; 2],
        // of weight [3, 4] times [1, -1], whose mean square is 1
        Site::OProj => vec![1.0, -1.0],
        Site::AttnBranch => vec![3.0, -4.0],
        Site::QRope | Site::KRope if layer == Some(0) => {
            // [1, 1] rotated by the position: one pair, whose frequency is 1
            let (sin, cos) = (position as f64).sin_cos();
            [cos - sin, cos + sin].map(|x| half::bf16::from_f64(x).to_f32()).to_vec()
        }
        Site::RouterLogits if even => vec![2.1, 1.1, -1.1, -2.1],
        Site::RouterLogits => vec![-2.1, -1.1, 1.1, 2.1],
        Site::Choice | Site::ShadowChoice if even => vec![0.0, 1.0],
        Site::Choice | Site::ShadowChoice => vec![3.0, 2.0],
        Site::TopkWeights => vec![0.3, 0.2],
        // 0.3 * 1 + 0.2 * 3.5 = 1
        Site::ExpertOut => vec![1.0, 1.0, 3.5, 3.5],
        Site::SharedUp => vec![2.0; 2],
        // 2 / (1 + exp(-1)) = 1.46212 as bf16
        Site::SharedAct => vec![1.460_937_5; 2],
        Site::Shared => vec![0.0; 2],
        // of weight [1, 0] times [1, 1]
        Site::MoeBranch => vec![1.0, 0.0],
        Site::LayerOut => vec![number + 10.0 * (layer.unwrap() as f32 + 1.0); 2],
        Site::Logits => LOGITS.to_vec(),
        _ => vec![1.0; 2],
    }
}

/// The port, one precision.
#[derive(Clone)]
pub struct Port {
    pub config: ModelConfig,
    pub precision: Precision,
    pub edits: Vec<Edit>,
    pub obeys_forcing: bool,
    pub takes_batches: bool,
    pub tensors: BTreeMap<String, Vec<f32>>,
    /// Given twice by `tensors`.
    pub twice: Option<&'static str>,
}

impl Port {
    fn new(precision: Precision) -> Self {
        let tensors = tensors();
        let (config, edits) = (config(), Vec::new());
        Self { config, precision, edits, obeys_forcing: true, takes_batches: true, tensors, twice: None }
    }

    fn row(&self, run: &Run<'_>, layer: Option<usize>, site: Site, position: usize, call: usize) -> Vec<f32> {
        let mut row = match (site, layer) {
            (Site::Choice, Some(layer)) => self.executed(run, layer, position),
            (Site::Logits, _) => self.logits(run, position),
            _ => honest(layer, site, position),
        };
        let together = run.schedule.batch;
        let place = Row { case: &run.case.name, layer, site, position, call, together };
        self.edits.iter().for_each(|edit| edit(&place, &mut row));
        row
    }

    fn shadow(&self, run: &Run<'_>, layer: usize, position: usize) -> Vec<f32> {
        self.row(run, Some(layer), Site::ShadowChoice, position, 1)
    }

    fn executed(&self, run: &Run<'_>, layer: usize, position: usize) -> Vec<f32> {
        match run.routing {
            Routing::Forced(choices) if self.obeys_forcing => {
                choices.at(position, LayerId(layer)).iter().map(|id| f32::from(id.0)).collect()
            }
            _ => self.shadow(run, layer, position),
        }
    }

    fn logits(&self, run: &Run<'_>, position: usize) -> Vec<f32> {
        let mut logits = LOGITS;
        for layer in 0..2 {
            let own = honest(Some(layer), Site::ShadowChoice, position);
            let executed = self.executed(run, layer, position);
            if executed == [own[1], own[0]] {
                logits = LOGITS_REORDERED;
            } else if executed != own {
                return LOGITS_OF_OTHERS.to_vec();
            }
        }
        logits.to_vec()
    }

    fn emit(
        &self,
        (index, run): (usize, &Run<'_>),
        layer: Option<usize>,
        site: Site,
        call: &Range<usize>,
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        let layer_id = layer.map(LayerId);
        if !recorder.wants(index, layer_id, site) {
            return Ok(());
        }
        let values: Vec<f32> =
            call.clone().flat_map(|position| self.row(run, layer, site, position, call.len())).collect();
        let rows = Array2::from_shape_vec((call.len(), values.len() / call.len()), values).unwrap();
        recorder.record(&At { run: index, layer: layer_id, site, rows: call.clone() }, rows.view())
    }

    fn choices(&self, run: &Run<'_>, of: impl Fn(usize, usize) -> Vec<f32>) -> Choices {
        let mut choices = Choices::unset(run.case.len(), 2, 2);
        for (position, layer) in (0..run.case.len()).flat_map(|position| [(position, 0), (position, 1)]) {
            let ids: Vec<ExpertId> = of(layer, position).iter().map(|&id| ExpertId(id as u16)).collect();
            choices.set(position, LayerId(layer), &ids);
        }
        choices
    }

    fn layer_of(&self, layer: usize, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<()> {
        for run in runs.iter().enumerate() {
            for call in run.1.schedule.calls(run.1.case.len()) {
                for site in Site::ALL.into_iter().filter(|site| site.is_per_layer()) {
                    self.emit(run, Some(layer), site, &call, recorder)?;
                }
            }
        }
        recorder.layer_done(LayerId(layer))
    }

    fn of_no_layer(&self, site: Site, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<()> {
        for run in runs.iter().enumerate() {
            for call in run.1.schedule.calls(run.1.case.len()) {
                self.emit(run, None, site, &call, recorder)?;
            }
        }
        Ok(())
    }
}

impl Side for Port {
    fn describe(&self) -> SideInfo {
        SideInfo {
            side: "port".into(),
            engine: "table".into(),
            device: "paper".into(),
            precision: self.precision,
            notes: Vec::new(),
        }
    }

    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        if !self.takes_batches && runs.iter().any(|run| run.schedule.batch > 1) {
            return Err(Error::Argument {
                what: "a batch".into(),
                expected: "1".into(),
                found: "more".into(),
                next: "wait".into(),
            });
        }
        self.of_no_layer(Site::Embedding, runs, recorder)?;
        self.layer_of(0, runs, recorder)?;
        self.layer_of(1, runs, recorder)?;
        self.of_no_layer(Site::Logits, runs, recorder)?;
        let executed = |run: &Run<'_>| Executed {
            choices: self.choices(run, |layer, position| self.executed(run, layer, position)),
            shadow: self.choices(run, |layer, position| self.shadow(run, layer, position)),
            forced_rows: if matches!(run.routing, Routing::Free) { 0 } else { 2 * run.case.len() },
            call: vec![0; run.case.len()],
        };
        Ok(runs.iter().map(executed).collect())
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        _h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        self.layer_of(layer.0, runs, recorder)
    }

    fn head(&self, runs: &[Run<'_>], _h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        self.of_no_layer(Site::Logits, runs, recorder)
    }

    fn tensors(&self, visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        self.tensors.iter().try_for_each(|(name, values)| visit(name, values))?;
        self.twice.map_or(Ok(()), |name| visit(name, &self.tensors[name]))
    }
}

/// A bug and how it is planted in either port, or that it cannot be loaded.
pub struct Bug {
    pub id: &'static str,
    pub side: PlantedIn,
    pub plant: fn(&mut Port) -> Result<()>,
}

pub struct Fake {
    reference: Port,
    /// The bf16 emulation: forced, free and re-injected.
    pub emulation: Port,
    pub f32: Port,
    pub bf16: Port,
    pub bugs: Vec<Bug>,
    /// Of the judged port's kernels, as [`Plain`] has them.
    pub gather: Fault,
    pub drift: f32,
    /// Bugs that are said to be correct rewrites.
    pub rewrites: Vec<&'static str>,
    /// Bugs that are said to need something.
    pub unmet: Vec<&'static str>,
    bytes: Cell<u64>,
    /// Whether the port made last leaves memory behind, and how much it did.
    leaks: Cell<bool>,
    held: Cell<u64>,
    /// The idle expert each planted port was loaded with.
    pub idle: RefCell<Vec<Idle>>,
}

impl Fake {
    /// Honest ports and the bugs of [`super::gates`].
    pub fn new() -> Self {
        Self {
            reference: Port::new(Precision::F32),
            emulation: Port::new(Precision::Bf16),
            f32: Port::new(Precision::F32),
            bf16: Port::new(Precision::Bf16),
            bugs: super::gates::bugs(),
            gather: |_, _| {},
            drift: 0.0,
            rewrites: Vec::new(),
            unmet: Vec::new(),
            bytes: Cell::new(0),
            leaks: Cell::new(false),
            held: Cell::new(0),
            idle: RefCell::default(),
        }
    }
}

impl Bench for Fake {
    fn active_bytes(&self) -> Result<u64> {
        self.held.set(self.held.get() + if self.leaks.get() { 1 << 20 } else { 0 });
        Ok(self.held.get())
    }

    fn reference(&self) -> &dyn Side {
        &self.reference
    }

    fn reference_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        self.bytes.set(self.bytes.get() + LANE_BYTES * lanes.len() as u64);
        let side = |lane: &Lane<'_>| match (lane.mutant, lane.run.precision) {
            (Some(_), _) => Port { edits: vec![super::gates::break_everything], ..self.reference.clone() },
            (None, Precision::F32) => self.reference.clone(),
            (None, Precision::Bf16) => self.emulation.clone(),
        };
        let sides: Vec<Port> = lanes.iter().map(side).collect();
        let whole = |lane: &Lane<'_>| Schedule::chunks_of(lane.run.case.len());
        let all: Vec<(&Port, Run<'_>)> = sides
            .iter()
            .zip(lanes)
            .map(|(side, lane)| (side, Run { schedule: whole(lane), ..lane.run }))
            .collect();
        let mut every = |layer: Option<usize>, sites: &[Site]| -> Result<()> {
            for (index, (side, run)) in all.iter().enumerate() {
                for &site in sites {
                    side.emit((index, run), layer, site, &(0..run.case.len()), recorder)?;
                }
            }
            Ok(())
        };
        let of_layer: Vec<Site> = Site::ALL.into_iter().filter(|site| site.is_per_layer()).collect();
        every(None, &[Site::Embedding])?;
        every(Some(0), &of_layer)?;
        every(Some(1), &of_layer)?;
        every(None, &[Site::Logits])?;
        let mut nobody = spec::side::Nothing;
        let executed =
            |(side, run): &(&Port, Run<'_>)| side.forward(&[*run], &mut nobody).map(|mut all| all.remove(0));
        all.iter().map(executed).collect()
    }

    fn reference_bytes_read(&self) -> u64 {
        self.bytes.get()
    }

    fn reference_product(
        &self,
        mutant: Option<&str>,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        let factor = if mutant.is_some() { 1.001 } else { 1.0 };
        x.mapv(f64::from).dot(&w.mapv(f64::from).t()).mapv(|sum| (factor * sum) as f32)
    }

    fn port(&self, precision: Precision) -> Result<Box<dyn Side>> {
        self.leaks.set(false);
        Ok(Box::new(if precision == Precision::F32 { self.f32.clone() } else { self.bf16.clone() }))
    }

    fn mutated_port(&self, mutant: &str, precision: Precision, idle: Idle) -> Result<Box<dyn Side>> {
        self.leaks.set(mutant == "everything");
        self.idle.borrow_mut().push(idle);
        let bug = self.bugs.iter().find(|bug| bug.id == mutant).expect("a bug of the catalogue");
        let mut port = Port::new(precision);
        (bug.plant)(&mut port)?;
        Ok(Box::new(port))
    }

    fn kernels(&self, mutant: Option<&str>) -> Result<Box<dyn Kernels>> {
        Ok(Box::new(match mutant {
            Some("everything") => Plain { seen: 1024, ..Plain::new() },
            _ => Plain { gather: self.gather, drift: self.drift, ..Plain::new() },
        }))
    }

    fn together(&self, _ids: &str) -> bool {
        false
    }

    fn planted(&self) -> Vec<Planted> {
        let planted = |bug: &Bug| Planted {
            id: bug.id.into(),
            what: format!("does {}", bug.id),
            rewrite: self.rewrites.contains(&bug.id),
            sides: vec![bug.side],
            ..Planted::default()
        };
        self.bugs.iter().map(planted).collect()
    }

    fn unmet(&self, id: &str, occasion: &Occasion) -> Vec<String> {
        let short = format!("more than {} tokens", occasion.tokens);
        self.unmet.iter().filter(|known| **known == id).map(|_| short.clone()).collect()
    }
}
