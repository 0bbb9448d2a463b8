//! The port as a [`Side`]: runs, chunks, layers.
//!
//! Inputs: runs. Outputs: recorded rows and what was executed. A call (a chunk of prefill, or one token)
//! passes all layers before the next call starts, and every layer of a call is evaluated before the next is
//! built, so that no more than one layer of one call is in flight. Absent on purpose: batches of several
//! sequences.

use crate::cache::Cache;
use crate::engine::{Doing, describe, dim, length, values, working_dtype};
use crate::head::head;
use crate::layer::{Layer, LayerOut};
use crate::record::Taps;
use crate::router::forced_ids;
use crate::steps::{Correct, Steps};
use crate::tensors;
use crate::weights::Weights;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, transforms};
use ndarray::Array2;
use spec::{
    Choices, Error, Executed, ExpertId, LayerId, ModelConfig, Precision, Recorder, Result, Routing, Run,
    Side, SideInfo, config_file,
};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// A checkpoint loaded into MLX at one precision.
pub struct Port {
    config: ModelConfig,
    info: SideInfo,
    precision: Precision,
    weights: Rc<Weights>,
    steps: Box<dyn Steps>,
    periods: Array,
}

/// Where a run's ids come from, what ran, and what the port would have chosen.
struct Log<'a> {
    forced: Option<&'a Choices>,
    choices: Choices,
    shadow: Choices,
    forced_rows: usize,
}

impl Port {
    /// Loads the checkpoint in `dir`. Errors: a config outside K2, a checkpoint that is not exactly K3, a
    /// value that is not finite.
    pub fn load(dir: &Path, precision: Precision) -> Result<Self> {
        let config = config_file::read(dir)?;
        let weights = Rc::new(Weights::load(dir, &config, precision)?);
        let periods = Correct.rope_periods(&config);
        let info = describe(precision);
        Ok(Self { config, info, precision, weights, steps: Box::new(Correct), periods })
    }

    /// A port of other steps over the same weights, which both hold: nothing is loaded or copied.
    pub fn with_steps(&self, steps: Box<dyn Steps>) -> Self {
        Self {
            config: self.config.clone(),
            info: self.info.clone(),
            precision: self.precision,
            weights: Rc::clone(&self.weights),
            periods: steps.rope_periods(&self.config),
            steps,
        }
    }

    fn layer_of(&self, id: LayerId) -> Layer<'_> {
        Layer {
            config: &self.config,
            id,
            weights: &self.weights.layers[id.0],
            steps: &*self.steps,
            periods: &self.periods,
        }
    }

    /// Refuses what cannot be run, before anything is. Errors: [`Error::Argument`], [`Error::Case`],
    /// [`Error::Routing`].
    fn check(&self, run: &Run<'_>) -> Result<()> {
        let refuse = |what: &str, expected: String, found: String, next: &str| {
            Err(Error::Argument { what: what.into(), expected, found, next: next.into() })
        };
        if run.precision != self.precision {
            let (expected, found) = (format!("{:?}", self.precision), format!("{:?}", run.precision));
            return refuse("a run's precision", expected, found, "load the port at the run's precision");
        }
        if run.schedule.batch != 1 {
            let found = run.schedule.batch.to_string();
            return refuse("a run's batch", "1".into(), found, "run the sequences one by one");
        }
        run.case.check_vocabulary(&self.config)?;
        match run.routing {
            Routing::Free => Ok(()),
            Routing::Forced(choices) => choices.check(&run.case.name, run.case.len(), &self.config),
        }
    }

    /// One layer of one call, evaluated, its rows recorded, its ids logged. `h`: `[1, T, H]`; output alike.
    fn run_layer(
        &self,
        layer: &Layer<'_>,
        h: &Array,
        cache: &mut dyn Cache,
        (run, positions): (usize, Range<usize>),
        log: &mut Log<'_>,
        recorder: &mut dyn Recorder,
    ) -> Result<Array> {
        let doing = || format!("run layer {} on tokens {positions:?}", layer.id);
        let forced = log.forced.map(|choices| forced_ids(choices, positions.clone(), layer.id));
        let mut taps = Taps::new(run, Some(layer.id), positions.clone(), recorder);
        let out = layer.run(h, cache, forced.as_ref(), &mut taps).doing(doing())?;
        let arrays = [&out.h, &out.ids, &out.own].into_iter().chain(cache.arrays()).chain(taps.arrays());
        transforms::eval(arrays).doing(doing())?;
        taps.deliver(recorder)?;
        log.note(layer.id, positions.clone(), &out).doing(doing())?;
        Ok(out.h)
    }

    fn forward_one(&self, index: usize, run: &Run<'_>, recorder: &mut dyn Recorder) -> Result<Executed> {
        let mut caches: Vec<_> = self.config.layer_ids().map(|id| self.layer_of(id).cache()).collect();
        let mut log = Log::new(run, &self.config);
        let mut call = Vec::with_capacity(run.case.len());
        for (number, positions) in (0..).zip(run.schedule.calls(run.case.len())) {
            call.resize(positions.end, number);
            let ids: Vec<u32> = run.case.tokens[positions.clone()].iter().map(|id| id.0).collect();
            let ids = Array::from_slice(&ids, &[1, dim(ids.len())]);
            let mut taps = Taps::new(index, None, positions.clone(), recorder);
            let rows = self.steps.embed(&self.weights.embedding, &ids).doing("embed")?;
            let mut h = rows.as_dtype(working_dtype(self.precision)).doing("embed")?;
            taps.put(spec::Site::Embedding, &h).doing("embed")?;
            taps.deliver(recorder)?;
            for (id, cache) in self.config.layer_ids().zip(&mut caches) {
                let at = (index, positions.clone());
                h = self.run_layer(&self.layer_of(id), &h, &mut **cache, at, &mut log, recorder)?;
            }
            head(&*self.steps, &self.weights.head, &self.config, &h, (index, positions), recorder)?;
        }
        Ok(Executed { choices: log.choices, shadow: log.shadow, forced_rows: log.forced_rows, call })
    }

    /// Somebody else's rows as the residual stream, `[1, T, H]` in the working dtype.
    fn residual(&self, run: &Run<'_>, h_in: &Array2<f32>) -> Result<Array> {
        assert_eq!(h_in.dim(), (run.case.len(), self.config.hidden_size), "rows for `{}`", run.case.name);
        let rows = h_in.as_standard_layout();
        let rows = rows.as_slice().expect("standard layout");
        let wide = Array::from_slice(rows, &[1, dim(h_in.nrows()), dim(h_in.ncols())]);
        wide.as_dtype(working_dtype(self.precision)).doing("take rows in")
    }
}

impl Side for Port {
    fn describe(&self) -> SideInfo {
        self.info.clone()
    }

    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        runs.iter().try_for_each(|run| self.check(run))?;
        runs.iter().enumerate().map(|(index, run)| self.forward_one(index, run, recorder)).collect()
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        assert_eq!(runs.len(), h_in.len(), "one input for each run");
        runs.iter().try_for_each(|run| self.check(run))?;
        let layer = self.layer_of(layer);
        for (index, run) in runs.iter().enumerate() {
            let h = self.residual(run, &h_in[index])?;
            let mut cache = layer.cache();
            let mut log = Log::new(run, &self.config);
            for positions in run.schedule.calls(run.case.len()) {
                let chunk = rows(&h, &positions)?;
                self.run_layer(&layer, &chunk, &mut *cache, (index, positions), &mut log, recorder)?;
            }
        }
        Ok(())
    }

    fn head(&self, runs: &[Run<'_>], h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        assert_eq!(runs.len(), h_in.len(), "one input for each run");
        runs.iter().try_for_each(|run| self.check(run))?;
        for (index, run) in runs.iter().enumerate() {
            let h = self.residual(run, &h_in[index])?;
            for positions in run.schedule.calls(run.case.len()) {
                let chunk = rows(&h, &positions)?;
                head(&*self.steps, &self.weights.head, &self.config, &chunk, (index, positions), recorder)?;
            }
        }
        Ok(())
    }

    fn tensors(&self, visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        tensors::visit(&self.weights, visit)
    }
}

impl<'a> Log<'a> {
    fn new(run: &Run<'a>, config: &ModelConfig) -> Self {
        let unset = Choices::unset(run.case.len(), config.num_layers(), config.experts_per_token);
        let forced = match run.routing {
            Routing::Free => None,
            Routing::Forced(choices) => Some(choices),
        };
        Self { forced, choices: unset.clone(), shadow: unset, forced_rows: 0 }
    }

    /// Reads back what a layer of a call executed.
    fn note(&mut self, layer: LayerId, positions: Range<usize>, out: &LayerOut) -> crate::engine::Op<()> {
        if self.forced.is_some() {
            self.forced_rows += positions.len();
        }
        for (ids, log) in [(&out.ids, &mut self.choices), (&out.own, &mut self.shadow)] {
            let narrow = |id: &u32| ExpertId(u16::try_from(*id).expect("ids below the number of experts"));
            let all: Vec<ExpertId> = values::<u32>(ids)?.iter().map(narrow).collect();
            for (row, position) in all.chunks_exact(length(ids, 2)).zip(positions.clone()) {
                log.set(position, layer, row);
            }
        }
        Ok(())
    }
}

/// `h[:, positions, :]`
fn rows(h: &Array, positions: &Range<usize>) -> Result<Array> {
    h.try_index((.., dim(positions.start)..dim(positions.end), ..)).doing("cut a chunk")
}
