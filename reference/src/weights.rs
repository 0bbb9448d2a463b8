//! The checkpoint's tensors as f32, decoded when asked for and never kept.
//!
//! Inputs: tensor names (K3). Outputs: ndarray matrices and vectors, unpacked from codes (K4).
//! Packed and FP8 matrices are f32 values like any other from here on, in the bf16 emulation too: these are
//! the weights that the port multiplies, and only activations are rounded. Absent on purpose: any cache;
//! whoever reads a tensor decides how long it lives.

use crate::checkpoint::Files;
use crate::decode;
use crate::resolve::{Resolved, resolve};
use crate::storage::{Form, Stored};
use crate::workers::Workers;
use ndarray::Array2;
use rayon::prelude::*;
use safetensors::Dtype;
use spec::{Error, ModelConfig, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open checkpoint that passed the census.
pub(crate) struct Weights {
    files: Files,
    /// By name of the census.
    stored: BTreeMap<String, Stored>,
    bytes_read: AtomicU64,
}

/// Values that one thread decodes at a time, if a row has no more.
const BLOCK: usize = 1 << 16;

impl Weights {
    /// Opens `dir` strictly: the first problem of the survey is the error.
    pub fn open(dir: &Path, config: &ModelConfig) -> Result<Self> {
        let files = Files::read(dir)?;
        let Resolved { stored, problems } = resolve(config, &files);
        match problems.into_iter().next() {
            Some(problem) => Err(problem.into()),
            None => Ok(Self { files, stored, bytes_read: AtomicU64::new(0) }),
        }
    }

    /// Checkpoint bytes decoded so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// A plain tensor other than a selection bias that is not BF16, if there is one. Scales, biases and FP8
    /// codes may be anything: what they stand for is an f32 value, whatever the precision of a run.
    pub fn wider_than_bf16(&self) -> Option<(&str, Dtype)> {
        let wide = |(name, stored): &(&String, &Stored)| {
            let plain = matches!(stored.form, Form::Plain);
            plain && stored.weight.dtype != Dtype::BF16 && !name.ends_with(".expert_bias")
        };
        let (_, stored) = self.stored.iter().find(wide)?;
        Some((&stored.weight.tensor, stored.weight.dtype))
    }

    /// A one-dimensional tensor. Errors: [`Error::Tensor`] on NaN or infinity.
    pub fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let stored = self.find(name);
        let mut values = vec![0.0; stored.elements()];
        stored.decode(&self.files, 0, &mut values);
        self.done(stored);
        self.refuse_not_finite(stored, &values, 0)?;
        Ok(values)
    }

    /// A matrix `[out, in]`, decoded by the calling thread. Errors as [`Weights::vector`].
    pub fn matrix(&self, name: &str) -> Result<Array2<f32>> {
        let values = self.vector(name)?;
        Ok(self.shaped(name, values))
    }

    /// A matrix `[out, in]`, decoded by all of `workers`. Errors as [`Weights::vector`].
    pub fn matrix_in_parallel(&self, name: &str, workers: &Workers) -> Result<Array2<f32>> {
        let values = self.values_in_parallel(name, workers)?;
        Ok(self.shaped(name, values))
    }

    /// All values of a tensor, row-major, decoded by all of `workers`. Errors as [`Weights::vector`].
    pub fn values_in_parallel(&self, name: &str, workers: &Workers) -> Result<Vec<f32>> {
        let stored = self.find(name);
        let rows = (BLOCK / stored.columns()).max(1);
        let mut values = vec![0.0; stored.elements()];
        let finite = workers.run(|| {
            let blocks = values.par_chunks_mut(rows * stored.columns()).enumerate();
            let decoded = blocks.map(|(block, values)| {
                stored.decode(&self.files, block * rows, values);
                decode::first_not_finite(values).is_none()
            });
            decoded.reduce(|| true, |a, b| a & b)
        });
        self.done(stored);
        if !finite {
            self.refuse_not_finite(stored, &values, 0)?;
        }
        Ok(values)
    }

    /// Rows of a matrix, in the order asked for: `[rows.len(), in]`. Errors as [`Weights::vector`].
    pub fn rows(&self, name: &str, rows: &[usize]) -> Result<Array2<f32>> {
        let stored = self.find(name);
        let row_bytes: usize = stored.parts().map(|part| part.row_bytes()).sum();
        let mut values = Array2::zeros((rows.len(), stored.columns()));
        for (&row, mut values) in rows.iter().zip(values.rows_mut()) {
            let values = values.as_slice_mut().expect("a row of a fresh matrix is contiguous");
            stored.decode(&self.files, row, values);
            self.bytes_read.fetch_add(row_bytes as u64, Ordering::Relaxed);
            self.refuse_not_finite(stored, values, row)?;
        }
        Ok(values)
    }

    fn find(&self, name: &str) -> &Stored {
        self.stored.get(name).expect("the census found every tensor of the model")
    }

    fn shaped(&self, name: &str, values: Vec<f32>) -> Array2<f32> {
        let columns = self.find(name).columns();
        let shape = (values.len() / columns, columns);
        Array2::from_shape_vec(shape, values).expect("as many values as the shape has")
    }

    /// Counts a tensor that was read whole, and lets go of the memory behind it.
    fn done(&self, stored: &Stored) {
        for part in stored.parts() {
            self.files.shards[part.shard.0].release(&part.bytes);
            self.bytes_read.fetch_add(part.bytes.len() as u64, Ordering::Relaxed);
        }
    }

    /// `values`: whole rows of the tensor from row `first` on.
    fn refuse_not_finite(&self, stored: &Stored, values: &[f32], first: usize) -> Result<()> {
        let Some(flat) = decode::first_not_finite(values) else {
            return Ok(());
        };
        let (row, column) = (first + flat / stored.columns(), flat % stored.columns());
        let (part, found) = stored.blame(&self.files, row, column, values[flat]);
        Err(Error::Tensor {
            path: self.files.shards[part.shard.0].path.clone(),
            name: part.tensor.clone(),
            expected: "finite values".into(),
            found,
            next: "fetch the file again, or convert the checkpoint again without overflow".into(),
        })
    }
}
