//! A side: something that runs the model and reports what it computed, row by row.
//!
//! Absent on purpose: any global. Routing, schedule and precision are part of each [`Run`].

use crate::{Case, Choices, LayerId, ModelConfig, Result, Routing, Schedule, Site};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// The arithmetic of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Everything in f32, weights widened from the checkpoint.
    F32,
    /// The port: bf16 as MLX computes it. The reference: f32 with a rounding to bf16 wherever a bf16 runtime
    /// stores a tensor (`docs/kolibri-1.md`, bf16 emulation).
    Bf16,
}

impl Precision {
    /// The name used in tables and legs.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }
}

/// One case, how it is fed, where its expert ids come from, and the arithmetic.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The tokens.
    pub case: &'a Case,
    /// How they are cut into calls.
    pub schedule: Schedule,
    /// Where expert ids come from.
    pub routing: Routing<'a>,
    /// The arithmetic.
    pub precision: Precision,
}

/// Where recorded rows belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Index into the runs given to [`Side::forward`] or [`Side::layer`].
    pub run: usize,
    /// `None` for the sites of no layer.
    pub layer: Option<LayerId>,
    /// The point of the forward pass.
    pub site: Site,
    /// Token positions of the rows.
    pub rows: Range<usize>,
}

/// Receives rows as they are made. Writers, online comparers and reducers are recorders, so that memory is
/// bounded by what is wanted, never by the model or the text.
pub trait Recorder {
    /// Whether rows of this site are wanted; asked before they are made. A side may skip making a site that
    /// nobody wants, as long as no other output changes by a bit.
    fn wants(&self, run: usize, layer: Option<LayerId>, site: Site) -> bool;

    /// Rows of one site, `[rows.len(), site.width()]` f32. Each (run, layer, site, position) comes exactly
    /// once; the ranges of one site come in ascending order.
    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()>;

    /// Every run has passed this layer and no more rows of it will come. Called by layer-major sides only.
    fn layer_done(&mut self, layer: LayerId) -> Result<()> {
        let _ = layer;
        Ok(())
    }
}

/// A recorder that wants nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Recorder for Nothing {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, _site: Site) -> bool {
        false
    }

    fn record(&mut self, _at: &At, _rows: ArrayView2<'_, f32>) -> Result<()> {
        Ok(())
    }
}

/// What one run of [`Side::forward`] executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// The experts that ran, `[T, L, k]`, in executed order. Under forcing, read back from what was executed,
    /// never copied from what was asked.
    pub choices: Choices,
    /// What the side's own router chose; equal to `choices` in a free run.
    pub shadow: Choices,
    /// Number of (token, layer) rows whose ids came from outside: `T * L` or 0.
    pub forced_rows: usize,
    /// For each token, the index of the call that took it.
    pub call: Vec<u32>,
}

/// Who computed: goes into traces and records.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SideInfo {
    /// "reference" or "port".
    pub side: String,
    /// Engine and version: "ndarray 0.17.2", "MLX 0.32.2 (mlx-rs 0.33.0)".
    pub engine: String,
    /// "cpu", "metal".
    pub device: String,
    /// Arithmetic of the weights held.
    pub precision: Precision,
    /// Everything else that changes numbers: BLAS, CPU features, threads, environment variables.
    pub notes: Vec<(String, String)>,
}

/// One implementation of the model over one checkpoint.
pub trait Side {
    /// Who computes.
    fn describe(&self) -> SideInfo;

    /// The checkpoint's configuration.
    fn config(&self) -> &ModelConfig;

    /// The whole forward pass of every run, K5 to K18. Errors: a case or choices that cannot be run, a tensor
    /// that cannot be used, an engine failure, whatever the recorder returns.
    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>>;

    /// One layer of every run, fed `h_in[i]`, `[T, H]` f32, in place of the output of the layer before
    /// (re-injection). Caches start empty. The runs' schedules and routing hold as in [`Side::forward`].
    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()>;

    /// Final norm and head of every run (K18), fed `h_in[i]`, `[T, H]` f32, the last layer's output.
    fn head(&self, runs: &[Run<'_>], h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()>;

    /// Every tensor as this side holds it: its name in the checkpoint (K3) and its values in the order of the
    /// checkpoint's shape (row-major), widened to f32. Each once, in any order, one at a time on the host.
    /// Errors: a tensor that cannot be used, an engine failure, whatever `visit` returns.
    fn tensors(&self, visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()>;
}
