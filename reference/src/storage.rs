//! How one tensor of the model is stored, and its values by rows (K3, K4).
//!
//! Inputs: parts of mapped files. Outputs: f32 values, and which stored number is to blame for a value that
//! is not finite. Absent on purpose: which tensor of the files is whose (`resolve`), and threads (`weights`).

use crate::affine;
use crate::checkpoint::{Entry, Files, ShardId};
use crate::decode;
use safetensors::Dtype;
use spec::quantization::Affine;
use std::ops::Range;

/// A tensor of the files, or one expert's share of a stack `[E, ..]`.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Name in the files.
    pub tensor: String,
    pub shard: ShardId,
    pub dtype: Dtype,
    /// `[n]` or `[rows, n]`; of a whole stack `[E, rows, n]`.
    pub shape: Vec<usize>,
    /// Byte range within the shard's file.
    pub bytes: Range<usize>,
    /// Which of a stack it is.
    expert: Option<usize>,
}

impl Part {
    /// All of a tensor.
    pub fn whole(tensor: &str, entry: &Entry) -> Self {
        let Entry { shard, dtype, shape, bytes } = entry.clone();
        Self { tensor: tensor.into(), shard, dtype, shape, bytes, expert: None }
    }

    /// One expert's share of a stack.
    fn expert(&self, expert: usize) -> Self {
        let size = self.bytes.len() / self.shape[0];
        let start = self.bytes.start + expert * size;
        let (bytes, shape) = (start..start + size, self.shape[1..].to_vec());
        Self { bytes, shape, expert: Some(expert), ..self.clone() }
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len() / rows(&self.shape)
    }

    fn rows<'a>(&self, files: &'a Files, first: usize, count: usize) -> &'a [u8] {
        let start = self.bytes.start + first * self.row_bytes();
        &files.shards[self.shard.0].map[start..start + count * self.row_bytes()]
    }

    fn widen_row(&self, files: &Files, row: usize, values: &mut [f32]) {
        decode::widen(self.dtype, self.rows(files, row, 1), values);
    }

    /// The index within the tensor of the files.
    fn index(&self, row: usize, column: usize) -> Vec<usize> {
        let row = (self.shape.len() > 1).then_some(row);
        self.expert.into_iter().chain(row).chain([column]).collect()
    }
}

fn rows(shape: &[usize]) -> usize {
    shape[..shape.len() - 1].iter().product()
}

/// What its numbers stand for.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// The values.
    Plain,
    /// Codes in U32 words; scales and biases `[out, in / group]`.
    Affine { scales: Part, biases: Part, packing: Affine },
    /// FP8 E4M3 codes; one scale for each block of `block[0]` rows and `block[1]` columns (K4).
    Fp8 { scales: Part, block: [usize; 2] },
}

/// A tensor of the model: `shape` in values.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub shape: Vec<usize>,
    pub weight: Part,
    pub form: Form,
}

impl Stored {
    /// One expert's matrix of a stack.
    pub fn expert(&self, expert: usize) -> Self {
        let form = match &self.form {
            Form::Plain => Form::Plain,
            Form::Affine { scales, biases, packing } => Form::Affine {
                scales: scales.expert(expert),
                biases: biases.expert(expert),
                packing: *packing,
            },
            Form::Fp8 { scales, block } => Form::Fp8 { scales: scales.expert(expert), block: *block },
        };
        Self { shape: self.shape[1..].to_vec(), weight: self.weight.expert(expert), form }
    }

    /// Values of a row; a vector is one row.
    pub fn columns(&self) -> usize {
        *self.shape.last().expect("no tensor is a scalar")
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Every part of the files that it takes.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        let beside = match &self.form {
            Form::Plain => [None, None],
            Form::Affine { scales, biases, .. } => [Some(scales), Some(biases)],
            Form::Fp8 { scales, .. } => [Some(scales), None],
        };
        [Some(&self.weight)].into_iter().chain(beside).flatten()
    }

    /// Values of whole rows from row `first` on, as many as fit in `values`. Holds one row of scales and one
    /// of biases besides.
    pub fn decode(&self, files: &Files, first: usize, values: &mut [f32]) {
        let columns = self.columns();
        let codes = self.weight.rows(files, first, values.len() / columns);
        match &self.form {
            Form::Plain => decode::widen(self.weight.dtype, codes, values),
            Form::Affine { scales, biases, packing } => {
                let mut row_scales = vec![0.0; columns / packing.group];
                let mut row_biases = row_scales.clone();
                let codes = codes.chunks_exact(self.weight.row_bytes());
                for (row, (values, codes)) in (first..).zip(values.chunks_exact_mut(columns).zip(codes)) {
                    scales.widen_row(files, row, &mut row_scales);
                    biases.widen_row(files, row, &mut row_biases);
                    affine::unpack_row(*packing, codes, &row_scales, &row_biases, values);
                }
            }
            Form::Fp8 { scales, block } => {
                let mut row_scales = vec![0.0; columns.div_ceil(block[1])];
                decode::widen(self.weight.dtype, codes, values);
                for (row, values) in (first..).zip(values.chunks_exact_mut(columns)) {
                    scales.widen_row(files, row / block[0], &mut row_scales);
                    for (values, scale) in values.chunks_mut(block[1]).zip(&row_scales) {
                        values.iter_mut().for_each(|value| *value *= scale);
                    }
                }
            }
        }
    }

    /// The part with the number that makes `value` at that place not finite, and the words for it.
    pub fn blame(&self, files: &Files, row: usize, column: usize, value: f32) -> (&Part, String) {
        let beside: Vec<(&Part, usize, usize)> = match &self.form {
            Form::Plain => vec![],
            Form::Affine { scales, biases, packing } => {
                [scales, biases].map(|part| (part, row, column / packing.group)).into()
            }
            Form::Fp8 { scales, block } => vec![(scales, row / block[0], column / block[1])],
        };
        for (part, row, column) in beside {
            let mut numbers = vec![0.0; *part.shape.last().expect("scales are matrices")];
            part.widen_row(files, row, &mut numbers);
            if !numbers[column].is_finite() {
                return (part, decode::not_finite_words(numbers[column], &part.index(row, column)));
            }
        }
        (&self.weight, decode::not_finite_words(value, &self.weight.index(row, column)))
    }
}
