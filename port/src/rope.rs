//! Rotary position embedding (K10), through `fast::rope` with explicit frequencies.
//!
//! Inputs: heads `[1, N, T, D]`, the absolute position of the first of the T tokens, or one for each row of a
//! batch. Outputs: the same shape and dtype. Absent on purpose: which layers rotate; see
//! [`crate::Steps::rotates`].

use crate::engine::{Op, dim};
use mlx_rs::{Array, Dtype, fast};

/// What `fast::rope` calls frequencies, `[D/2]` f32: periods, `theta^(2j/D)` with base and exponent rounded
/// to f32 and the power correctly rounded to f32 (by way of f64). MLX takes `f32(1 / period)`, which is
/// `inv_freq[j]` of K10. Its own `base` argument is not used: angles built from it drift with position.
pub fn periods(theta: f64, head_dim: usize) -> Array {
    let base = f64::from(theta as f32);
    let exponents = (0..head_dim).step_by(2).map(|i| i as f32 / head_dim as f32);
    let periods: Vec<f32> = exponents.map(|exponent| base.powf(exponent.into()) as f32).collect();
    Array::from_slice(&periods, &[dim(periods.len())])
}

/// Rotates `x`, `[1, N, T, D]`, in pairs `(j, j + D/2)`, by positions `offset..offset + T`.
///
/// Computed in f32 and rounded once: on the CPU MLX would otherwise round cosine, sine and both products to
/// bf16, which its Metal kernel does not.
pub fn rotate(x: &Array, periods: &Array, offset: usize) -> Op {
    let wide = x.as_dtype(Dtype::Float32)?;
    let width = x.dim(-1);
    fast::rope(wide, width, false, None, 1.0, dim(offset), periods)?.as_dtype(x.dtype())
}

/// Rotates each row of `x`, `[B, N, T, D]`, from a position of its own on. `offsets`: `[B]` i32; below 0 in
/// padding. Computed as [`rotate`] does.
pub fn rotate_rows(x: &Array, periods: &Array, offsets: &Array) -> Op {
    let wide = x.as_dtype(Dtype::Float32)?;
    fast::rope_dynamic(wide, x.dim(-1), false, None, 1.0, offsets, periods)?.as_dtype(x.dtype())
}
