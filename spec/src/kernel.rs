//! A port's kernels by themselves: what one call of each is given, without a checkpoint.
//!
//! Inputs and outputs are host arrays in f32. Absent on purpose: arithmetic, and which calls are worth
//! making.

use crate::{Affine, Precision, Result, SideInfo};
use ndarray::{Array2, Array3, ArrayView2, ArrayView3};

/// The kernels of a port that have failed by shape: gather, rotation, attention.
pub trait Kernels {
    /// Who computes.
    fn describe(&self) -> SideInfo;

    /// Each row times its own expert's matrix (K17), `[R, out]`. Errors: an engine failure.
    fn gather(&self, call: &Gather<'_>) -> Result<Array2<f32>>;

    /// One token of each of B sequences, rotated (K10), `[B, N, D]`. Errors: an engine failure.
    fn rotate(&self, call: &Rotate<'_>) -> Result<Array3<f32>>;

    /// Attention of one sequence (K13), `[Nq, T, D]`. Errors: an engine failure.
    fn attend(&self, call: &Attend<'_>) -> Result<Array3<f32>>;
}

/// A gather over a stack of experts.
#[derive(Debug, Clone, Copy)]
pub struct Gather<'a> {
    /// `[R, in]`
    pub rows: ArrayView2<'a, f32>,
    /// `[E, out, in]`
    pub stack: &'a Stack,
    /// Of each row, `[R]`; ascending.
    pub ids: &'a [u32],
    /// Whether the kernel is told that ids ascend, and may go expert by expert.
    pub sorted: bool,
    /// Of rows and result.
    pub precision: Precision,
    /// How rows lie in memory.
    pub row_layout: RowLayout,
    /// How experts lie in memory.
    pub stack_layout: StackLayout,
}

/// Matrices of experts.
#[derive(Debug, Clone, PartialEq)]
pub enum Stack {
    /// All values, `[E, out, in]`.
    Dense(Array3<f32>),
    /// MLX's affine packing: value = scale * code + bias.
    Packed {
        /// `[E, out, in]`
        codes: Array3<u8>,
        /// `[E, out, in / group]`
        scales: Array3<f32>,
        /// As `scales`.
        biases: Array3<f32>,
        /// Bits and group.
        packing: Affine,
    },
}

impl Stack {
    /// E, out, in.
    pub fn dim(&self) -> (usize, usize, usize) {
        match self {
            Stack::Dense(values) => values.dim(),
            Stack::Packed { codes, .. } => codes.dim(),
        }
    }
}

/// How the rows of a gather, `[R, 1, in]`, lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLayout {
    /// One after the other.
    Contiguous,
    /// So, with the axis of length 1 put in afterwards.
    UnitAxis,
    /// Every second row of twice as many.
    EverySecond,
    /// One row in memory for all of them; they are all equal.
    OneForAll,
}

/// How the experts of a gather lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackLayout {
    /// One after the other.
    Contiguous,
    /// Every second of twice as many.
    EverySecond,
    /// Each matrix by columns, seen through a transpose; of dense stacks only.
    Transposed,
}

/// A rotation of one token of each of B sequences.
#[derive(Debug, Clone, Copy)]
pub struct Rotate<'a> {
    /// `[B, N, D]`
    pub heads: ArrayView3<'a, f32>,
    /// Where each sequence is.
    pub positions: Positions<'a>,
}

/// Positions of the tokens of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions<'a> {
    /// The same for all.
    Common(usize),
    /// One for each sequence, `[B]`.
    Each(&'a [usize]),
}

/// Attention of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Attend<'a> {
    /// `[Nq, T, D]`
    pub queries: ArrayView3<'a, f32>,
    /// `[Nkv, S, D]`
    pub keys: ArrayView3<'a, f32>,
    /// As `keys`.
    pub values: ArrayView3<'a, f32>,
    /// Who sees whom, `[T, S]`; none: every query every key.
    pub visible: Option<ArrayView2<'a, bool>>,
}
