//! Steps of the port with one of them wrong, by stage. Shapes as in [`::port::Steps`].
//!
//! Absent on purpose: a step that is right; what a bug does not touch is [`::port::Correct`]'s.

pub mod attention;
pub mod batch;
mod both;
pub mod cache;
pub mod embedding;
pub mod experts;
pub mod gather;
pub mod head;
pub mod mask;
pub mod norm;
pub mod rope;
pub mod router;

pub use both::{Both, Step, are_apart};

use ::port::engine::Op;
use mlx_rs::{Array, Dtype};

/// `x` times a number, in the dtype of `x`.
fn scaled(x: &Array, factor: f32) -> Op {
    x.multiply(Array::from_f32(factor))?.as_dtype(x.dtype())
}

/// Values rounded to a narrower dtype and brought back.
fn through(dtype: Dtype, x: &Array) -> Op {
    x.as_dtype(dtype)?.as_dtype(x.dtype())
}
