//! How the router of one side differs from the other's: selection scores and chosen sets (K14, K15).

use crate::stats::{self, RootMeanSquare};
use ndarray::{ArrayView1, ArrayView2};

/// From this gap on, a disagreement about a set is no tie. Selection scores are f32 of order 1 to 10, whose
/// rounding is below 1e-6, and two correct f32 orders of summation move a router logit by about as much: a
/// gap a hundred times larger is closed by neither.
pub const TIE_GAP: f64 = 1e-4;

/// The gap of one token: the k-th largest selection score minus the (k+1)-th, `[E]` f32, in f64.
/// Infinite if there is no (k+1)-th; NaN if a score is.
pub fn gap(selection_scores: ArrayView1<'_, f32>, k: usize) -> f64 {
    let mut scores: Vec<f64> = selection_scores.iter().copied().map(f64::from).collect();
    scores.sort_by(|a, b| stats::order(*b, *a));
    match scores.get(k) {
        _ if scores[0].is_nan() => f64::NAN,
        Some(next) => scores[k - 1] - next,
        None => f64::INFINITY,
    }
}

/// Router logits of one side against the other's, as they come: their error, and what it is large against.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogitsError {
    error: RootMeanSquare,
    logits: RootMeanSquare,
}

impl LogitsError {
    /// Takes rows, `[n, E]` f32 each. Panics on different shapes.
    pub fn add(&mut self, reference: ArrayView2<'_, f32>, port: ArrayView2<'_, f32>) {
        ndarray::Zip::from(reference).and(port).for_each(|&r, &p| {
            self.error.add(f64::from(p) - f64::from(r));
            self.logits.add(f64::from(r));
        });
    }

    /// RMS of the differences so far; NaN of none.
    pub fn sigma(self) -> f64 {
        self.error.value()
    }

    /// RMS of the reference's logits so far; NaN of none.
    pub fn rms(self) -> f64 {
        self.logits.value()
    }
}

/// Whether a disagreement of this gap counts as more than a tie; a NaN gap does.
pub fn is_beyond_tie(gap: f64) -> bool {
    !matches!(gap.partial_cmp(&TIE_GAP), Some(std::cmp::Ordering::Less))
}

/// Whether two rows of expert ids, `[k]`, hold the same set, in whatever order: ids as they are, or f32 as
/// recorded. A NaN is equal to nothing.
pub fn same_set<T: PartialEq>(a: ArrayView1<'_, T>, b: ArrayView1<'_, T>) -> bool {
    let count = |row: &ArrayView1<'_, T>, id: &T| row.iter().filter(|other| *other == id).count();
    a.len() == b.len() && a.iter().all(|id| count(&b, id) > 0 && count(&a, id) == count(&b, id))
}

/// `z = gap / sigma` of a disagreement. Of a gap of exactly zero, a perfect tie, it is 0 whatever sigma is,
/// unless that is NaN; of a wider gap under a sigma of zero it is infinite.
pub fn z(gap: f64, sigma: f64) -> f64 {
    if gap == 0.0 && sigma == 0.0 { 0.0 } else { gap / sigma }
}
