//! The forward pass from end to end (K5, K6, K18), and what a lane must be to enter it.

use crate::lane::{self, Lane, LaneState, Tap};
use crate::steps::{Matrix, Norm};
use crate::weights::Weights;
use crate::workers::Workers;
use crate::{head, layer, precision};
use ndarray::Array2;
use spec::{Error, Executed, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Site};
use std::collections::BTreeSet;

/// A checkpoint, its configuration, and the threads that compute it.
pub(crate) struct Model {
    pub config: ModelConfig,
    pub weights: Weights,
    pub workers: Workers,
}

impl Model {
    /// K5 to K18 for every lane, one layer at a time.
    pub fn forward(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        lane::assert_sources(lanes);
        self.check(lanes)?;
        let mut states = self.embed(lanes, recorder)?;
        for layer in self.config.layer_ids() {
            lane::reinject(&mut states, &self.workers);
            layer::pass(self, layer, &mut states, recorder)?;
            recorder.layer_done(layer)?;
        }
        lane::reinject(&mut states, &self.workers);
        head::pass(self, &states, recorder)?;
        Ok(states.into_iter().map(LaneState::executed).collect())
    }

    /// One layer of every lane, from given inputs.
    pub fn layer(
        &self,
        layer: LayerId,
        lanes: &[Lane<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        self.check(lanes)?;
        assert!(layer.0 < self.config.num_layers(), "layer {layer} of {}", self.config.num_layers());
        let mut states = self.inject(lanes, h_in)?;
        layer::pass(self, layer, &mut states, recorder)
    }

    /// Final norm and head of every lane, from given inputs.
    pub fn head(&self, lanes: &[Lane<'_>], h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        self.check(lanes)?;
        head::pass(self, &self.inject(lanes, h_in)?, recorder)
    }

    /// RMSNorm of rows, stored in the lane's precision (K7).
    pub fn norm(
        &self,
        lane: &LaneState<'_>,
        which: Norm,
        mut rows: Array2<f32>,
        weight: &[f32],
    ) -> Array2<f32> {
        let eps = self.config.rms_norm_eps as f32;
        lane.by_rows(&mut rows, &self.workers, |_, rows| lane.steps.rms_norm(which, rows, weight, eps));
        rows
    }

    /// A product, stored in the lane's precision.
    pub fn product(
        &self,
        lane: &LaneState<'_>,
        which: Matrix,
        x: &Array2<f32>,
        w: &Array2<f32>,
    ) -> Array2<f32> {
        let mut out = self.workers.product(lane.steps, which, x.view(), w.view());
        precision::store_all(lane.precision(), &mut out, &self.workers);
        out
    }

    /// Every lane at its embedding (K5). Each row that some lane needs is decoded once.
    fn embed<'a>(&self, lanes: &[Lane<'a>], recorder: &mut dyn Recorder) -> Result<Vec<LaneState<'a>>> {
        let ids: BTreeSet<usize> =
            lanes.iter().flat_map(|lane| lane.run.case.tokens.iter().map(|id| id.index())).collect();
        let ids: Vec<usize> = ids.into_iter().collect();
        let rows = self.weights.rows("model.embed_tokens.weight", &ids)?;
        let mut states = Vec::new();
        for (index, lane) in lanes.iter().enumerate() {
            let place = |id: usize| ids.binary_search(&id).expect("every id was collected");
            let places: Vec<usize> = lane.run.case.tokens.iter().map(|id| place(id.index())).collect();
            let mut state = LaneState::new(index, lane, Array2::default((0, 0)), &self.config);
            let mut h = rows.select(ndarray::Axis(0), &places);
            state.by_rows(&mut h, &self.workers, |_, rows| lane.steps.embed(&self.config, rows));
            state.h = h;
            Tap { recorder, run: index, layer: None }.all(Site::Embedding, &state.h)?;
            states.push(state);
        }
        Ok(states)
    }

    /// Every lane with a given residual, stored in its precision.
    fn inject<'a>(&self, lanes: &[Lane<'a>], h_in: &[Array2<f32>]) -> Result<Vec<LaneState<'a>>> {
        assert_eq!(lanes.len(), h_in.len(), "one input per run");
        let mut states = Vec::new();
        for (index, (lane, h)) in lanes.iter().zip(h_in).enumerate() {
            let wanted = (lane.run.case.len(), self.config.hidden_size);
            if h.dim() != wanted {
                return Err(Error::Case {
                    case: lane.run.case.name.clone(),
                    expected: format!("an input of shape {wanted:?} (tokens, hidden size)"),
                    found: format!("{:?}", h.dim()),
                    next: "record the input again on this checkpoint and text".into(),
                });
            }
            // rows must be contiguous, whatever layout was given
            let mut h = h.as_standard_layout().into_owned();
            precision::store_all(lane.run.precision, &mut h, &self.workers);
            states.push(LaneState::new(index, lane, h, &self.config));
        }
        Ok(states)
    }

    /// Refuses what cannot be run, before any work.
    fn check(&self, lanes: &[Lane<'_>]) -> Result<()> {
        for Lane { run, .. } in lanes {
            run.case.check_vocabulary(&self.config)?;
            if let Routing::Forced(choices) = run.routing {
                choices.check(&run.case.name, run.case.len(), &self.config)?;
            }
            if run.precision == Precision::Bf16
                && let Some((name, dtype)) = self.weights.wider_than_bf16()
            {
                return Err(Error::Case {
                    case: run.case.name.clone(),
                    expected: "a BF16 checkpoint for the bf16 emulation".into(),
                    found: format!("tensor `{name}` in {dtype}"),
                    next: "run in f32, or convert the checkpoint to BF16".into(),
                });
            }
        }
        Ok(())
    }
}
