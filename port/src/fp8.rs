//! Matrices of the FP8 release (K4): E4M3 codes and one f32 scale per block, unpacked at load.
//!
//! Inputs: codes as MLX loads them, `[out, in]` u8, and `weight_scale_inv`, one f32 for each block, of which
//! the last of a row or column may be cut short. Outputs: f32 values. Absent on purpose: FP8 products; MLX
//! has none with these scales.

use crate::engine::{Op, dim};
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::{Array, Dtype, ops};

/// The E4M3 codes of NaN. MLX would read them as 480 and -480.
const NAN: [u8; 2] = [0x7f, 0xff];

/// Blocks that cover `shape`, `[out, in]`: the shape of the scales.
pub fn grid(shape: [usize; 2], block: [usize; 2]) -> [usize; 2] {
    [shape[0].div_ceil(block[0]), shape[1].div_ceil(block[1])]
}

/// code * scale, one f32 product each. `codes`: `[out, in]` u8, `scales`: [`grid`] f32.
pub fn unpack(codes: &Array, scales: &Array, block: [usize; 2]) -> Op {
    let each = ops::repeat_axis::<f32>(scales.clone(), dim(block[0]), 0)?;
    let each = ops::repeat_axis::<f32>(each, dim(block[1]), 1)?;
    let each = each.try_index((..codes.dim(0), ..codes.dim(1)))?;
    codes.from_fp8(Dtype::Float32)?.multiply(each)
}

/// True where a code is a number. `codes`: u8.
pub fn is_number(codes: &Array) -> Op {
    let [plus, minus] = NAN.map(|code| codes.ne(Array::from_slice(&[code], &[])));
    plus?.logical_and(minus?)
}
