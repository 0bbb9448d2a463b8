//! Planted bugs of the embedding (K5).

use super::PUBLISHED;
use crate::mutant::{Mutant, Stage};
use crate::port::Step;
use crate::port::embedding;

pub const ROWS: &[Mutant] = &[Mutant::new(
    "mup_embed_scale",
    Stage::Embedding,
    "embedded rows are multiplied by the root of their width",
)
.rows(&["E01"])
.seen_in(&[PUBLISHED])
.port(&[Step::Embed], || Box::new(embedding::Scaled))];
