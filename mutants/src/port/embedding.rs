//! Bugs of the embedding (K5).

use super::scaled;
use mlx_rs::Array;
use port::engine::Op;
use port::{Correct, Steps};

/// Rows times `sqrt(H)`.
pub struct Scaled;

impl Steps for Scaled {
    fn embed(&self, table: &Array, ids: &Array) -> Op {
        scaled(&Correct.embed(table, ids)?, (table.dim(-1) as f32).sqrt())
    }
}

/// The row after a token's own; after the last, the first.
pub struct NextRow;

impl Steps for NextRow {
    fn embed(&self, table: &Array, ids: &Array) -> Op {
        let (one, rows) = (Array::from_slice(&[1_u32], &[1]), table.dim(0).unsigned_abs());
        let next = ids.add(one)?.remainder(Array::from_slice(&[rows], &[1]))?;
        Correct.embed(table, &next)
    }
}
