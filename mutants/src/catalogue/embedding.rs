//! Planted bugs of the embedding (K5).

use super::{OURS, PUBLISHED};
use crate::mutant::{Mutant, Stage};
use crate::port::Step;
use crate::port::embedding;

pub const ROWS: &[Mutant] = &[
    Mutant::new(
        "mup_embed_scale",
        Stage::Embedding,
        "embedded rows are multiplied by the root of their width",
    )
    .rows(&["E01"])
    .seen_in(&[PUBLISHED])
    .port(&[Step::Embed], || Box::new(embedding::Scaled)),
    Mutant::new("embedding_row_shifted", Stage::Embedding, "each token has the row of the one after it")
        .seen_in(&[OURS])
        .port(&[Step::Embed], || Box::new(embedding::NextRow)),
];
