//! A matrix as the kernels get it: dense, or packed by MLX's affine quantiser.
//!
//! Inputs: arrays of a checkpoint. Outputs: products with rows, rows of a table, dense values. Absent on
//! purpose: FP8 (K4), which is unpacked when it is loaded ([`crate::fp8`]), and files ([`crate::source`]).

use crate::engine::{Op, dim};
use mlx_rs::{Array, ops};
use spec::Affine;

/// A matrix `[out, in]`, or a stack of them, `[E, out, in]`.
#[derive(Debug, Clone)]
pub enum Weight {
    /// All its values.
    Dense(Array),
    /// Codes, scales and biases.
    Packed(Packed),
}

/// Codes of a few bits; those of a group share a scale and a bias: value = scale * code + bias.
#[derive(Debug, Clone)]
pub struct Packed {
    /// `[.., out, in * bits / 32]` u32
    pub words: Array,
    /// `[.., out, in / group]`; products and values are computed in this dtype.
    pub scales: Array,
    /// As `scales`.
    pub biases: Array,
    /// Bits and group.
    pub packing: Affine,
}

impl Weight {
    /// All values, in the dtype of the array or of the scales.
    pub fn dense(&self) -> Op {
        match self {
            Weight::Dense(array) => Ok(array.clone()),
            Weight::Packed(packed) => packed.dense(),
        }
    }

    /// `rows @ weight^T` for a matrix, in the dtype of `rows`, `[.., in]`: `[.., out]`.
    ///
    /// On the CPU MLX's packed product in bf16 also sums in bf16 (2 % off at 256 terms), so that scales were
    /// widened at load, rows are widened here, and the result is rounded once. On Metal, whose kernels sum in
    /// f32, everything has the working dtype, and both conversions do nothing.
    pub fn product(&self, rows: &Array) -> Op {
        match self {
            Weight::Dense(array) => ops::matmul(rows, array.transpose()?),
            Weight::Packed(Packed { words, scales, biases, packing }) => {
                let wide = rows.as_dtype(scales.dtype())?;
                let (group, bits) = numbers(*packing);
                ops::quantized_matmul(wide, words, scales, biases, true, group, bits)?.as_dtype(rows.dtype())
            }
        }
    }

    /// Each row times its own matrix of a stack: the one place that knows where MLX can gather. `rows`:
    /// `[R, 1, in]`, `ids`: `[R]` u32, ascending if `sorted`. Output: `[R, 1, out]` in the dtype of `rows`.
    ///
    /// On the CPU `gather_mm` takes f32 only: the stack was widened at load, the rows are widened here, and
    /// the result is rounded back; of packed stacks as in [`Weight::product`].
    pub fn gathered(&self, rows: &Array, ids: &Array, sorted: bool) -> Op {
        let product = match self {
            Weight::Dense(stack) => {
                let wide = rows.as_dtype(stack.dtype())?;
                ops::gather_mm(wide, stack.swap_axes(-1, -2)?, None, ids, sorted)?
            }
            Weight::Packed(Packed { words, scales, biases, packing }) => {
                let wide = rows.as_dtype(scales.dtype())?;
                let (group, bits) = numbers(*packing);
                ops::gather_qmm(wide, words, scales, biases, None, ids, true, group, bits, sorted)?
            }
        };
        product.as_dtype(rows.dtype())
    }

    /// Rows of a table `[V, H]`: `ids`, any shape, u32, to `[.., H]`, in the dtype of [`Weight::dense`].
    pub fn rows(&self, ids: &Array) -> Op {
        self.map(|array| array.take_axis(ids, 0))?.dense()
    }

    /// How it is packed, if it is.
    pub fn packing(&self) -> Option<Affine> {
        match self {
            Weight::Dense(_) => None,
            Weight::Packed(packed) => Some(packed.packing),
        }
    }

    /// The same change of the leading axes of every array that makes up the weight.
    pub fn map(&self, change: impl Fn(&Array) -> Op) -> Op<Self> {
        Ok(match self {
            Weight::Dense(array) => Weight::Dense(change(array)?),
            Weight::Packed(packed) => Weight::Packed(Packed {
                words: change(&packed.words)?,
                scales: change(&packed.scales)?,
                biases: change(&packed.biases)?,
                packing: packed.packing,
            }),
        })
    }

    /// The arrays that make it up: the dense one, or words, scales and biases.
    pub fn arrays(&self) -> Vec<&Array> {
        match self {
            Weight::Dense(array) => vec![array],
            Weight::Packed(packed) => vec![&packed.words, &packed.scales, &packed.biases],
        }
    }
}

impl Packed {
    fn dense(&self) -> Op {
        let (group, bits) = numbers(self.packing);
        ops::dequantize(&self.words, &self.scales, &self.biases, group, bits)
    }
}

impl From<Array> for Weight {
    fn from(array: Array) -> Self {
        Weight::Dense(array)
    }
}

/// Group and bits as MLX takes them.
fn numbers(packing: Affine) -> (i32, i32) {
    (dim(packing.group), packing.bits.cast_signed())
}
