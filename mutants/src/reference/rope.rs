//! Bugs of the rotation: pairs, frequencies, positions, layers (K10, K11).

use super::product::bf16;
use ndarray::{Array2, ArrayViewMut2};
use reference::steps::Heads;
use reference::{Correct, RopeTable, Steps};
use spec::ModelConfig;

/// Every layer rotates.
pub struct OnEveryLayer;

impl Steps for OnEveryLayer {
    fn qk_rope(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        let half = heads.config.head_dim / 2;
        rotate(heads, rows, |j| (j, j + half));
    }
}

/// Pairs `(2j, 2j + 1)` for `(j, j + D/2)`.
pub struct AdjacentPairs;

impl Steps for AdjacentPairs {
    fn qk_rope(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        if turns(heads) {
            rotate(heads, rows, |j| (2 * j, 2 * j + 1));
        }
    }
}

/// Frequencies rounded to bf16 before angles are made of them.
pub struct Bf16Frequencies;

impl Steps for Bf16Frequencies {
    fn inv_freq(&self, config: &ModelConfig) -> Vec<f32> {
        Correct.inv_freq(config).into_iter().map(bf16).collect()
    }
}

/// Positions rounded to bf16 before angles are made of them: exact up to 256.
pub struct Bf16Positions;

impl Steps for Bf16Positions {
    fn qk_rope(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        let inv_freq = Correct.inv_freq(heads.config);
        let angle = |(row, j): (usize, usize)| bf16((heads.first + row) as f32) * inv_freq[j];
        let angles = Array2::from_shape_fn((rows.nrows(), inv_freq.len()), angle);
        let table = RopeTable { cos: angles.mapv(f32::cos), sin: angles.mapv(f32::sin) };
        Correct.qk_rope(&Heads { first: 0, table: &table, ..*heads }, rows);
    }
}

/// A base of 10000, whatever the config says.
pub struct Base10000;

impl Steps for Base10000 {
    fn inv_freq(&self, config: &ModelConfig) -> Vec<f32> {
        Correct.inv_freq(&ModelConfig { rope_theta: 10_000.0, ..config.clone() })
    }
}

/// Whether the layer rotates.
pub(super) fn turns(heads: &Heads<'_>) -> bool {
    heads.config.rotates(heads.layer)
}

/// Rotates the pairs of each head of `rows`, `[n, heads * D]`, the `j`-th by the `j`-th angle.
fn rotate(heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>, pair: impl Fn(usize) -> (usize, usize)) {
    let width = heads.config.head_dim;
    for (position, mut row) in (heads.first..).zip(rows.rows_mut()) {
        let (cos, sin) = (heads.table.cos.row(position), heads.table.sin.row(position));
        for head in row.as_slice_mut().expect("rows are contiguous").chunks_exact_mut(width) {
            for j in 0..width / 2 {
                let (low, high) = pair(j);
                let (a, b) = (head[low], head[high]);
                head[low] = a * cos[j] - b * sin[j];
                head[high] = b * cos[j] + a * sin[j];
            }
        }
    }
}
