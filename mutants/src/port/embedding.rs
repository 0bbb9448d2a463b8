//! Bugs of the embedding (K5).

use super::scaled;
use mlx_rs::Array;
use port::engine::Op;
use port::{Correct, Steps, Weight};

/// Rows times `sqrt(H)`.
pub struct Scaled;

impl Steps for Scaled {
    fn embed(&self, table: &Weight, ids: &Array) -> Op {
        let rows = Correct.embed(table, ids)?;
        scaled(&rows, (rows.dim(-1) as f32).sqrt())
    }
}

/// The row after a token's own; after the last, the first.
pub struct NextRow;

impl Steps for NextRow {
    fn embed(&self, table: &Weight, ids: &Array) -> Op {
        let (one, rows) = (Array::from_slice(&[1_u32], &[1]), table.arrays()[0].dim(0).unsigned_abs());
        let next = ids.add(one)?.remainder(Array::from_slice(&[rows], &[1]))?;
        Correct.embed(table, &next)
    }
}
