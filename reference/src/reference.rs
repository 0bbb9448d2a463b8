//! The reference as a [`Side`].

use crate::lane::Lane;
use crate::model::Model;
use crate::steps::{Correct, Matrix, Steps};
use crate::weights::Weights;
use crate::workers::Workers;
use ndarray::{Array2, ArrayView2};
use spec::{
    Executed, LayerId, ModelConfig, Precision, Recorder, Result, Run, Side, SideInfo, census, config_file,
};
use std::path::Path;

/// Engine and version in [`SideInfo`]; a test holds it against the lock file.
const ENGINE: &str = "ndarray 0.17.2";
const PRODUCT: &str = "matrixmultiply 0.3.11";

/// How a reference runs. Nothing here changes a bit of any output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Threads, at least 1; `None`: one per core.
    pub threads: Option<usize>,
}

/// The f32 side over one checkpoint.
pub struct Reference {
    model: Model,
    steps: Box<dyn Steps>,
}

impl Reference {
    /// Opens the checkpoint in `dir`, strictly: its configuration, its files, and every tensor's name,
    /// shape and dtype (K1 to K4). Values are only read when they are used. The files are mapped, so they
    /// must not be changed or shortened while the reference lives.
    ///
    /// Errors: [`spec::Error::Config`], [`spec::Error::Checkpoint`], [`spec::Error::Tensor`],
    /// [`spec::Error::Io`]; [`spec::Error::Argument`] on 0 threads.
    pub fn open(dir: &Path, options: Options) -> Result<Self> {
        let workers = Workers::new(options.threads)?;
        let config = config_file::read(dir)?;
        let weights = Weights::open(dir, &config)?;
        Ok(Self { model: Model { config, weights, workers }, steps: Box::new(Correct) })
    }

    /// The same side with other steps: a planted bug.
    pub fn with_steps(self, steps: Box<dyn Steps>) -> Self {
        Self { steps, ..self }
    }

    /// Checkpoint bytes decoded since opening.
    pub fn bytes_read(&self) -> u64 {
        self.model.weights.bytes_read()
    }

    /// [`Side::forward`] for lanes that each have their own steps; [`spec::At::run`] is the index of the
    /// lane. Errors as [`Side::forward`].
    pub fn forward_lanes(&self, lanes: &[Lane<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        self.model.forward(lanes, recorder)
    }

    /// The very product that the forward pass makes, `x · wᵀ`, in the same tiles on the same threads: `x [n,
    /// in]`, `w [m, in]`, to `[n, m]`. For holding it against f64.
    pub fn product(
        &self,
        steps: &dyn Steps,
        matrix: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
    ) -> Array2<f32> {
        self.model.workers.product(steps, matrix, x, w)
    }

    fn lanes<'a>(&'a self, runs: &[Run<'a>]) -> Vec<Lane<'a>> {
        runs.iter().map(|&run| Lane::new(run, &*self.steps)).collect()
    }
}

impl Side for Reference {
    fn describe(&self) -> SideInfo {
        let notes = [
            ("product", PRODUCT.to_string()),
            ("instructions", instructions().to_string()),
            ("threads", self.model.workers.count().to_string()),
        ];
        SideInfo {
            side: "reference".into(),
            engine: ENGINE.into(),
            device: "cpu".into(),
            precision: Precision::F32,
            notes: notes.map(|(key, value)| (key.into(), value)).into(),
        }
    }

    fn config(&self) -> &ModelConfig {
        &self.model.config
    }

    fn forward(&self, runs: &[Run<'_>], recorder: &mut dyn Recorder) -> Result<Vec<Executed>> {
        self.model.forward(&self.lanes(runs), recorder)
    }

    fn layer(
        &self,
        layer: LayerId,
        runs: &[Run<'_>],
        h_in: &[Array2<f32>],
        recorder: &mut dyn Recorder,
    ) -> Result<()> {
        self.model.layer(layer, &self.lanes(runs), h_in, recorder)
    }

    fn head(&self, runs: &[Run<'_>], h_in: &[Array2<f32>], recorder: &mut dyn Recorder) -> Result<()> {
        self.model.head(&self.lanes(runs), h_in, recorder)
    }

    /// Decoded for the call; counts into [`Reference::bytes_read`].
    fn tensors(&self, visit: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        for tensor in census::expected(&self.model.config) {
            visit(&tensor.name, &self.model.weights.values_in_parallel(&tensor.name, &self.model.workers)?)?;
        }
        Ok(())
    }
}

/// The instructions that the matrix product picks on this CPU; they decide its rounding.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return match () {
        () if is_x86_feature_detected!("avx512f") => "x86_64 avx512f",
        () if is_x86_feature_detected!("fma") => "x86_64 fma",
        () if is_x86_feature_detected!("avx") => "x86_64 avx",
        () => "x86_64 sse2",
    };
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_named_in_records_are_those_of_the_lock_file() {
        let lock = include_str!("../../Cargo.lock");
        for engine in [ENGINE, PRODUCT] {
            let (name, version) = engine.split_once(' ').unwrap();
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&entry), "Cargo.lock has another version of {name}");
        }
    }
}
