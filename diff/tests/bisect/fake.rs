//! Both sides as tables, for two layers, hidden size 2, 4 experts, 2 per token, 3 tokens in the vocabulary.
//!
//! Every row is written down in [`honest`]; the port's is edited by a defect, the calibrator's is off by what
//! [`Fake::rounding`] says. Nothing is computed from weights or inputs.

#[path = "../support/config.rs"]
mod config;

use diff::bench::{Bench, Idle, Lane, Occasion, Planted};
use ndarray::{Array2, ArrayView2};
use spec::{
    At, Choices, Error, Executed, ExpertId, Kernels, LayerId, ModelConfig, Precision, Recorder, Result,
    Routing, Run, SideInfo, Site,
};
use spec::{Schedule, Side};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Which row is about to be recorded.
pub struct Row {
    /// Whether the whole model runs, not a part on its own.
    pub end_to_end: bool,
    pub layer: Option<usize>,
    pub site: Site,
    pub position: usize,
    /// Positions of the call it is in.
    pub call: Range<usize>,
    /// Tokens of the sequence.
    pub tokens: usize,
}

/// Changes a row.
pub type Edit = fn(&Row, &mut [f32]);

/// The row that the reference and an honest port record.
pub fn honest(layer: Option<usize>, site: Site, position: usize) -> Vec<f32> {
    let number = position as f32 + 1.0;
    match site {
        Site::Embedding => vec![number; 2],
        Site::RouterLogits | Site::SelectionScores => vec![4.0, 3.0, -3.0, -4.0],
        Site::Choice | Site::ShadowChoice => vec![0.0, 1.0],
        Site::TopkWeights => vec![0.75, 0.5],
        Site::ExpertOut => vec![1.0, 2.0, 3.0, 4.0],
        Site::LayerOut => vec![number + 100.0 * (layer.unwrap() as f32 + 1.0); 2],
        Site::Logits => vec![1.0, 2.0, 3.0],
        _ => vec![1.0, 2.0],
    }
}

/// How often each kind of run was made.
#[derive(Debug, Default)]
pub struct Made {
    pub passes: Cell<usize>,
    pub layers: Cell<usize>,
    pub forwards: Cell<usize>,
}

/// One side.
#[derive(Clone)]
pub struct Table {
    config: ModelConfig,
    edit: Edit,
    made: Rc<Made>,
    /// Refuses to run once so many runs of parts were made.
    stops_after: Option<usize>,
}

impl Table {
    fn emit(
        &self,
        (index, run): (usize, &Run<'_>),
        end_to_end: bool,
        layer: Option<usize>,
        sites: &[Site],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        let tokens = run.case.len();
        for call in run.schedule.calls(tokens) {
            for &site in sites {
                if !recorder.wants(index, layer.map(LayerId), site) {
                    continue;
                }
                let row = |position| {
                    let mut values = honest(layer, site, position);
                    let row = Row { end_to_end, layer, site, position, call: call.clone(), tokens };
                    (self.edit)(&row, &mut values);
                    values
                };
                let values: Vec<f32> = call.clone().flat_map(row).collect();
                let rows = Array2::from_shape_vec((call.len(), values.len() / call.len()), values).unwrap();
                let at = At { run: index, layer: layer.map(LayerId), site, rows: call.clone() };
                recorder.record(&at, rows.view())?;
            }
        }
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        if self.stops_after.is_some_and(|after| self.made.layers.get() >= after) {
            return Err(Error::Engine {
                engine: "table",
                doing: "run a layer".into(),
                message: "told to stop".into(),
            });
        }
        Ok(())
    }
}

fn of_layers() -> Vec<Site> {
    Site::ALL.into_iter().filter(|site| site.is_per_layer()).collect()
}

fn executed(run: &Run<'_>) -> Executed {
    let mut choices = Choices::unset(run.case.len(), 2, 2);
    for token in 0..run.case.len() {
        for layer in [0, 1].map(LayerId) {
            choices.set(token, layer, &[ExpertId(0), ExpertId(1)]);
        }
    }
    let forced_rows = if matches!(run.routing, Routing::Free) { 0 } else { 2 * run.case.len() };
    Executed { shadow: choices.clone(), choices, forced_rows, call: vec![0; run.case.len()] }
}

impl Side for Table {
    fn describe(&self) -> SideInfo {
        SideInfo {
            side: "port".into(),
            engine: "table".into(),
            device: "paper".into(),
            precision: Precision::F32,
            notes: Vec::new(),
        }
    }

    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        self.made.forwards.set(self.made.forwards.get() + 1);
        for run in runs.iter().enumerate() {
            self.emit(run, true, None, &[Site::Embedding], recorder)?;
            self.emit(run, true, Some(0), &of_layers(), recorder)?;
            self.emit(run, true, Some(1), &of_layers(), recorder)?;
            self.emit(run, true, None, &[Site::FinalNorm, Site::Logits], recorder)?;
        }
        Ok(runs.iter().map(executed).collect())
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        self.stop()?;
        self.made.layers.set(self.made.layers.get() + 1);
        assert_eq!(h_in[0].dim(), (runs[0].case.len(), 2));
        runs.iter()
            .enumerate()
            .try_for_each(|run| self.emit(run, false, Some(layer.0), &of_layers(), recorder))
    }

    fn head(&self, runs: &[Run<'_>], _h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        let sites = [Site::FinalNorm, Site::Logits];
        runs.iter().enumerate().try_for_each(|run| self.emit(run, false, None, &sites, recorder))
    }

    fn tensors(&self, _visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        panic!("a search reads no tensors")
    }
}

/// Both sides.
pub struct Fake {
    reference: Table,
    port: Table,
    /// What f64 changes in the reference's rows.
    pub rounding: Edit,
}

impl Fake {
    /// A port with a defect; in f64 the reference's rows are the same.
    pub fn new(defect: Edit) -> Self {
        let table =
            |edit: Edit| Table { config: config::config(), edit, made: Rc::default(), stops_after: None };
        Self { reference: table(|_, _| {}), port: table(defect), rounding: |_, _| {} }
    }

    /// Stops where the port has run so many layers.
    pub fn stopping_after(mut self, layers: usize) -> Self {
        self.port.stops_after = Some(layers);
        self
    }

    /// The passes of the reference and the port's runs so far.
    pub fn made(&self) -> (usize, usize, usize) {
        let (reference, port) = (&self.reference.made, &self.port.made);
        (reference.passes.get(), port.layers.get(), port.forwards.get())
    }
}

impl Bench for Fake {
    fn active_bytes(&self) -> Result<u64> {
        Ok(0)
    }

    fn reference(&self) -> &dyn Side {
        &self.reference
    }

    fn reference_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        let passes = &self.reference.made.passes;
        passes.set(passes.get() + 1);
        let side = |lane: &Lane<'_>| match lane.mutant {
            None => self.reference.clone(),
            Some(diff::bisect::CALIBRATOR) => Table { edit: self.rounding, ..self.reference.clone() },
            Some(other) => panic!("nobody plants {other}"),
        };
        let sides: Vec<Table> = lanes.iter().map(side).collect();
        let mut every = |layer: Option<usize>, sites: &[Site]| -> Result<()> {
            for (index, (side, lane)) in sides.iter().zip(lanes).enumerate() {
                let run = Run { schedule: Schedule::chunks_of(lane.run.case.len()), ..lane.run };
                side.emit((index, &run), true, layer, sites, recorder)?;
            }
            layer.map_or(Ok(()), |layer| recorder.layer_done(LayerId(layer)))
        };
        every(None, &[Site::Embedding])?;
        every(Some(0), &of_layers())?;
        every(Some(1), &of_layers())?;
        every(None, &[Site::FinalNorm, Site::Logits])?;
        Ok(lanes.iter().map(|lane| executed(&lane.run)).collect())
    }

    fn reference_bytes_read(&self) -> u64 {
        0
    }

    fn reference_product(
        &self,
        _mutant: Option<&str>,
        _x: ArrayView2<'_, f32>,
        _w: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        panic!("a search multiplies nothing")
    }

    fn port(&self, precision: Precision) -> Result<Box<dyn Side>> {
        assert_eq!(precision, Precision::F32);
        Ok(Box::new(self.port.clone()))
    }

    fn mutated_port(&self, _mutant: &str, _precision: Precision, _idle: Idle) -> Result<Box<dyn Side>> {
        panic!("a search plants nothing")
    }

    fn planted(&self) -> Vec<Planted> {
        Vec::new()
    }

    fn unmet(&self, _id: &str, _occasion: &Occasion) -> Vec<String> {
        Vec::new()
    }

    fn kernels(&self, _mutant: Option<&str>) -> Result<Box<dyn Kernels>> {
        unreachable!("a search calls no kernel by itself")
    }

    fn together(&self, _ids: &str) -> bool {
        panic!("a search plants nothing")
    }
}
