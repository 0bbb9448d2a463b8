//! Bugs of the rotation: which layers, which pairs (K10, K11).

use ndarray::ArrayViewMut2;
use reference::Steps;
use reference::steps::Heads;

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
