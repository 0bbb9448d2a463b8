//! What is measured on paired rows of two sides: plain functions of f32 rows, computed in f64.
//!
//! Every function takes the reference's row first. A NaN in either row gives a NaN, never a small number.
//! Absent on purpose: pairing rows (the comparer does) and limits (the gate has them).

pub mod branch;
pub mod logits;
pub mod router;
