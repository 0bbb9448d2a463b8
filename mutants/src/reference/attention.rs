//! Bugs of heads and of the scores' scale (K8, K13).

use ndarray::ArrayViewMut2;
use reference::steps::Heads;
use reference::{Correct, Steps};
use spec::ModelConfig;

/// Scores as they are: a scale of 1.
pub struct Unscaled;

impl Steps for Unscaled {
    fn attention_scale(&self, _config: &ModelConfig) -> f32 {
        1.0
    }
}

/// The scale of heads as wide as `H / Nq`, which D need not be.
pub struct ScaledByHidden;

impl Steps for ScaledByHidden {
    fn attention_scale(&self, config: &ModelConfig) -> f32 {
        (config.hidden_size as f32 / config.num_heads as f32).sqrt().recip()
    }
}

/// Query head `h` reads key-value head `h % Nkv`.
pub struct TiledKvHeads;

impl Steps for TiledKvHeads {
    fn kv_head(&self, config: &ModelConfig, head: usize) -> usize {
        head % config.num_kv_heads
    }
}

/// Rows of the query projection read as `[D, Nq]`; with as many key-value heads, those of keys too.
pub struct InterleavedQueries;

impl Steps for InterleavedQueries {
    fn qk_norm(&self, heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>) {
        let (count, width) = (heads.config.num_heads, heads.config.head_dim);
        if rows.ncols() == count * width {
            for mut row in rows.rows_mut() {
                let flat = row.to_vec();
                for (column, value) in row.iter_mut().enumerate() {
                    let (head, place) = (column / width, column % width);
                    *value = flat[place * count + head];
                }
            }
        }
        Correct.qk_norm(heads, rows);
    }
}
