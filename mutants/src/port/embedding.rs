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
