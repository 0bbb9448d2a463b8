//! The port as a [`Side`]: runs, chunks, layers.
//!
//! Inputs: runs. Outputs: recorded rows and what was executed. A call (a chunk of prefill, or one token)
//! passes all layers before the next call starts, and every layer of a call is evaluated before the next is
//! built, so that no more than one layer of one call is in flight. Absent on purpose: which runs of a batch
//! go through a call together ([`crate::batch`]).

use crate::attention::Past;
use crate::batch;
use crate::batch_cache::BatchCache;
use crate::engine::{Doing, describe, dim, length, values, working_dtype};
use crate::head::head;
use crate::layer::{Layer, LayerOut};
use crate::record::{Span, Taps};
use crate::router::Forced;
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

/// Where a run's ids come from, what ran, what the port would have chosen, and in which call.
pub(crate) struct Log<'a> {
    forced: Option<&'a Choices>,
    executed: Executed,
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
        if run.schedule.batch == 0 {
            return refuse(
                "a run's batch",
                "1 or more".into(),
                "0".into(),
                "say how many go through together",
            );
        }
        run.case.check_vocabulary(&self.config)?;
        match run.routing {
            Routing::Free => Ok(()),
            Routing::Forced(choices) => choices.check(&run.case.name, run.case.len(), &self.config),
        }
    }

    /// Refuses a batch where layers or the head are fed by themselves: each run is fed its own rows there.
    /// Errors: as [`Port::check`].
    fn check_single(&self, run: &Run<'_>) -> Result<()> {
        if run.schedule.batch > 1 {
            return Err(Error::Argument {
                what: "a run's batch".into(),
                expected: "1 where a layer or the head is fed somebody else's rows".into(),
                found: run.schedule.batch.to_string(),
                next: "feed the sequences one by one".into(),
            });
        }
        self.check(run)
    }

    /// One layer of one call, evaluated, its rows recorded, its ids logged. `h`: `[B, T, H]`; output alike.
    fn run_layer(
        &self,
        layer: &Layer<'_>,
        h: &Array,
        mut past: Past<'_>,
        spans: &[Span],
        logs: &mut [Log<'_>],
        recorder: &mut dyn Recorder,
    ) -> Result<Array> {
        let doing = || format!("run layer {} on {}", layer.id, words(spans));
        let choices = |span: &Span| logs[span.run].forced;
        let forced = Forced::of(spans, (length(h, 0), length(h, 1)), layer.id, choices);
        let mut taps = Taps::new(spans, Some(layer.id), recorder);
        let out = layer.run(h, &mut past, forced.as_ref(), &mut taps).doing(doing())?;
        let arrays = [&out.h, &out.ids, &out.own].into_iter().chain(past.arrays()).chain(taps.arrays());
        transforms::eval(arrays).doing(doing())?;
        taps.deliver(recorder)?;
        note(layer.id, spans, &out, logs).doing(doing())?;
        Ok(out.h)
    }

    /// One call through the whole model. `ids`: `[B, T]` u32; `pasts`: by layer; `logs`: by run.
    pub(crate) fn call(
        &self,
        ids: &Array,
        pasts: Vec<Past<'_>>,
        spans: &[Span],
        logs: &mut [Log<'_>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        let mut taps = Taps::new(spans, None, recorder);
        let rows = self.steps.embed(&self.weights.embedding, ids).doing("embed")?;
        let mut h = rows.as_dtype(working_dtype(self.precision)).doing("embed")?;
        taps.put(spec::Site::Embedding, &h).doing("embed")?;
        taps.deliver(recorder)?;
        for (id, past) in self.config.layer_ids().zip(pasts) {
            h = self.run_layer(&self.layer_of(id), &h, past, spans, logs, recorder)?;
        }
        head(&*self.steps, &self.weights.head, &self.config, &h, spans, recorder)
    }

    fn forward_one(
        &self,
        index: usize,
        run: &Run<'_>,
        logs: &mut [Log<'_>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        let mut caches: Vec<_> = self.config.layer_ids().map(|id| self.layer_of(id).cache()).collect();
        for (number, positions) in (0..).zip(run.schedule.calls(run.case.len())) {
            logs[index].took(&positions, number);
            let ids: Vec<u32> = run.case.tokens[positions.clone()].iter().map(|id| id.0).collect();
            let ids = Array::from_slice(&ids, &[1, dim(ids.len())]);
            let pasts = caches.iter_mut().map(|cache| Past::One(&mut **cache)).collect();
            self.call(&ids, pasts, &[Span::alone(index, positions)], logs, recorder)?;
        }
        Ok(())
    }

    /// An empty cache of a batch of so many rows for each layer.
    pub(crate) fn batch_caches(&self, rows: usize) -> Vec<BatchCache> {
        self.config.layer_ids().map(|id| self.layer_of(id).batch_cache(rows)).collect()
    }

    /// The steps.
    pub(crate) fn steps(&self) -> &dyn Steps {
        &*self.steps
    }

    /// A log of nothing yet.
    pub(crate) fn log<'a>(&self, run: &Run<'a>) -> Log<'a> {
        let tokens = run.case.len();
        let unset = Choices::unset(tokens, self.config.num_layers(), self.config.experts_per_token);
        let forced = match run.routing {
            Routing::Free => None,
            Routing::Forced(choices) => Some(choices),
        };
        let (choices, shadow, call) = (unset.clone(), unset, Vec::with_capacity(tokens));
        Log { forced, executed: Executed { choices, shadow, forced_rows: 0, call } }
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
        if runs.iter().any(|run| run.schedule.batch > 1) {
            batch::refuse_unlike(runs)?;
            return batch::forward(self, runs, recorder);
        }
        let mut logs: Vec<Log<'_>> = runs.iter().map(|run| self.log(run)).collect();
        for (index, run) in runs.iter().enumerate() {
            self.forward_one(index, run, &mut logs, recorder)?;
        }
        Ok(logs.into_iter().map(Log::finish).collect())
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        assert_eq!(runs.len(), h_in.len(), "one input for each run");
        runs.iter().try_for_each(|run| self.check_single(run))?;
        let layer = self.layer_of(layer);
        let mut logs: Vec<Log<'_>> = runs.iter().map(|run| self.log(run)).collect();
        for (index, run) in runs.iter().enumerate() {
            let h = self.residual(run, &h_in[index])?;
            let mut cache = layer.cache();
            for positions in run.schedule.calls(run.case.len()) {
                let (chunk, spans) = (rows(&h, &positions)?, [Span::alone(index, positions)]);
                self.run_layer(&layer, &chunk, Past::One(&mut *cache), &spans, &mut logs, recorder)?;
            }
        }
        Ok(())
    }

    fn head(&self, runs: &[Run<'_>], h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        assert_eq!(runs.len(), h_in.len(), "one input for each run");
        runs.iter().try_for_each(|run| self.check_single(run))?;
        for (index, run) in runs.iter().enumerate() {
            let h = self.residual(run, &h_in[index])?;
            for positions in run.schedule.calls(run.case.len()) {
                let (chunk, spans) = (rows(&h, &positions)?, [Span::alone(index, positions)]);
                head(&*self.steps, &self.weights.head, &self.config, &chunk, &spans, recorder)?;
            }
        }
        Ok(())
    }

    fn tensors(&self, visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        tensors::visit(&self.weights, visit)
    }
}

impl Log<'_> {
    /// These tokens were taken by call `number`.
    pub(crate) fn took(&mut self, positions: &Range<usize>, number: u32) {
        self.executed.call.resize(positions.end, number);
    }

    /// What was executed.
    pub(crate) fn finish(self) -> Executed {
        self.executed
    }
}

/// Reads back what a layer of a call executed.
fn note(layer: LayerId, spans: &[Span], out: &LayerOut, logs: &mut [Log<'_>]) -> crate::engine::Op<()> {
    let (columns, k) = (length(&out.ids, 1), length(&out.ids, 2));
    let narrow = |id: &u32| ExpertId(u16::try_from(*id).expect("ids below the number of experts"));
    let all = |ids: &Array| -> crate::engine::Op<Vec<ExpertId>> {
        Ok(values::<u32>(ids)?.iter().map(narrow).collect())
    };
    let (ran, own) = (all(&out.ids)?, all(&out.own)?);
    for span in spans {
        let log = &mut logs[span.run];
        if log.forced.is_some() {
            log.executed.forced_rows += span.positions.len();
        }
        for (position, column) in span.positions.clone().zip(span.columns()) {
            let start = (span.row * columns + column) * k;
            log.executed.choices.set(position, layer, &ran[start..start + k]);
            log.executed.shadow.set(position, layer, &own[start..start + k]);
        }
    }
    Ok(())
}

/// Whose tokens a call holds.
fn words(spans: &[Span]) -> String {
    let of = |span: &Span| format!("tokens {:?} of run {}", span.positions, span.run);
    spans.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// `h[:, positions, :]`
fn rows(h: &Array, positions: &Range<usize>) -> Result<Array> {
    h.try_index((.., dim(positions.start)..dim(positions.end), ..)).doing("cut a chunk")
}
