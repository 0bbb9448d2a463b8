//! The checkpoint's tensors as f32, decoded when asked for and never kept.
//!
//! Inputs: tensor names (K3). Outputs: ndarray matrices and vectors. Absent on purpose: any cache; whoever
//! reads a tensor decides how long it lives.

use crate::checkpoint::{Entry, Files, Shard};
use crate::decode;
use crate::survey;
use crate::workers::Workers;
use ndarray::Array2;
use rayon::prelude::*;
use safetensors::Dtype;
use spec::{Error, ModelConfig, Result};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open checkpoint that passed the census.
pub(crate) struct Weights {
    files: Files,
    bytes_read: AtomicU64,
}

/// Elements that one thread decodes at a time.
const BLOCK: usize = 1 << 16;

impl Weights {
    /// Opens `dir` strictly: the first problem of the survey is the error.
    pub fn open(dir: &Path, config: &ModelConfig) -> Result<Self> {
        let files = Files::read(dir)?;
        match survey::problems(config, &files).into_iter().next() {
            Some(problem) => Err(problem.into()),
            None => Ok(Self { files, bytes_read: AtomicU64::new(0) }),
        }
    }

    /// Checkpoint bytes decoded so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// A tensor other than a selection bias that is not BF16, if there is one.
    pub fn wider_than_bf16(&self) -> Option<(&str, Dtype)> {
        let wide =
            |(name, entry): &(&String, &Entry)| entry.dtype != Dtype::BF16 && !name.ends_with(".expert_bias");
        self.files.entries.iter().find(wide).map(|(name, entry)| (name.as_str(), entry.dtype))
    }

    /// A one-dimensional tensor. Errors: [`Error::Tensor`] on NaN or infinity.
    pub fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let (entry, shard) = self.find(name);
        let mut values = vec![0.0; entry.shape.iter().product()];
        decode::widen(entry.dtype, &shard.map[entry.bytes.clone()], &mut values);
        shard.release(&entry.bytes);
        self.bytes_read.fetch_add(entry.bytes.len() as u64, Ordering::Relaxed);
        refuse_not_finite(shard, name, &values, |flat| decode::index_of(flat, &entry.shape))?;
        Ok(values)
    }

    /// A matrix `[out, in]`, decoded by the calling thread. Errors as [`Weights::vector`].
    pub fn matrix(&self, name: &str) -> Result<Array2<f32>> {
        let (entry, _) = self.find(name);
        let shape = (entry.shape[0], entry.shape[1]);
        Ok(Array2::from_shape_vec(shape, self.vector(name)?).expect("as many values as the shape has"))
    }

    /// A matrix `[out, in]`, decoded by all of `workers`. Errors as [`Weights::vector`].
    pub fn matrix_in_parallel(&self, name: &str, workers: &Workers) -> Result<Array2<f32>> {
        let (entry, _) = self.find(name);
        let shape = (entry.shape[0], entry.shape[1]);
        let values = self.values_in_parallel(name, workers)?;
        Ok(Array2::from_shape_vec(shape, values).expect("as many values as the shape has"))
    }

    /// All values of a tensor, row-major, decoded by all of `workers`. Errors as [`Weights::vector`].
    pub fn values_in_parallel(&self, name: &str, workers: &Workers) -> Result<Vec<f32>> {
        let (entry, shard) = self.find(name);
        let bytes = &shard.map[entry.bytes.clone()];
        let element = decode::element_bytes(entry.dtype);
        let mut values = vec![0.0; entry.shape.iter().product()];
        let finite = workers.run(|| {
            let blocks = values.par_chunks_mut(BLOCK).zip(bytes.par_chunks(BLOCK * element));
            let decoded = blocks.map(|(values, bytes)| {
                decode::widen(entry.dtype, bytes, values);
                decode::first_not_finite(values).is_none()
            });
            decoded.reduce(|| true, |a, b| a & b)
        });
        shard.release(&entry.bytes);
        self.bytes_read.fetch_add(entry.bytes.len() as u64, Ordering::Relaxed);
        if !finite {
            refuse_not_finite(shard, name, &values, |flat| decode::index_of(flat, &entry.shape))?;
        }
        Ok(values)
    }

    /// Rows of a matrix, in the order asked for: `[rows.len(), in]`. Errors as [`Weights::vector`].
    pub fn rows(&self, name: &str, rows: &[usize]) -> Result<Array2<f32>> {
        let (entry, shard) = self.find(name);
        let width = entry.shape[1];
        let row_bytes = width * decode::element_bytes(entry.dtype);
        let mut values = Array2::zeros((rows.len(), width));
        for (&row, mut values) in rows.iter().zip(values.rows_mut()) {
            let start = entry.bytes.start + row * row_bytes;
            let values = values.as_slice_mut().expect("a row of a fresh matrix is contiguous");
            decode::widen(entry.dtype, &shard.map[start..start + row_bytes], values);
            self.bytes_read.fetch_add(row_bytes as u64, Ordering::Relaxed);
            refuse_not_finite(shard, name, values, |column| vec![row, column])?;
        }
        Ok(values)
    }

    fn find(&self, name: &str) -> (&Entry, &Shard) {
        let entry = self.files.entries.get(name).expect("the census found every tensor of the model");
        (entry, &self.files.shards[entry.shard.0])
    }
}

fn refuse_not_finite(
    shard: &Shard,
    name: &str,
    values: &[f32],
    index: impl Fn(usize) -> Vec<usize>,
) -> Result<()> {
    let Some(flat) = decode::first_not_finite(values) else {
        return Ok(());
    };
    Err(Error::Tensor {
        path: shard.path.clone(),
        name: name.into(),
        expected: "finite values".into(),
        found: decode::not_finite_words(values[flat], &index(flat)),
        next: "fetch the file again, or convert the checkpoint again without overflow".into(),
    })
}
