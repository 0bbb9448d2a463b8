//! What one kernel gave at one shape, row by row against f64, and beside another way to the same result.
//!
//! Absent on purpose: making any call.

use crate::number;
use crate::stats::{Spread, is_worse};
use ndarray::{Array2, ArrayView1};
use serde::Serialize;

/// How many times the other way's error is too much.
pub const RATIO_MAX: f64 = 3.0;
/// Half of the last bit of an f32, of a number near 1. No result that is rounded to f32 is nearer on average.
pub(super) const ROUNDING: f64 = 1.0 / (1_u64 << 24) as f64;
/// The same of a bf16.
pub(super) const ROUNDING_BF16: f64 = 1.0 / 256.0;

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Rows times their experts' matrices.
    Gather,
    /// RoPE of one token of several sequences.
    Rotation,
    /// Attention.
    Attention,
}

/// One kernel at one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which kernel.
    pub kind: Kind,
    /// In MLX's words: "gather_qmm 4 bits".
    pub kernel: String,
    /// "R 32769, K 72, N 32, E 16".
    pub shape: String,
    /// What is particular: "the run's rows".
    pub what: String,
    /// How it was called, and beside what: "sorted / unsorted".
    pub path: &'static str,
    /// Rows that were compared.
    pub rows: usize,
    /// Relative L2 error against f64, median over rows.
    #[serde(with = "number")]
    pub error: f64,
    /// The same of the other way.
    #[serde(with = "number")]
    pub beside: f64,
    /// The one over the other, each at least half a last bit of f32; at most [`RATIO_MAX`].
    #[serde(with = "number")]
    pub ratio: f64,
    /// The largest error of a row.
    #[serde(with = "number")]
    pub worst: f64,
    /// Beyond which a row is bad.
    #[serde(with = "number")]
    pub limit: f64,
    /// Rows that are bad, in either way.
    pub bad_rows: usize,
    /// The first of them.
    pub first_bad: Option<usize>,
    /// Values with other bits in a second or third call.
    pub differing: usize,
    /// What else there is to say.
    pub note: String,
}

impl Finding {
    /// Whether nothing is wrong.
    pub fn is_fine(&self) -> bool {
        self.ratio <= RATIO_MAX && self.bad_rows == 0 && self.differing == 0
    }
}

/// What was found, to be judged. Rows by width, alike in all three.
pub(super) struct Found<'a> {
    /// In f64.
    pub exact: &'a Array2<f64>,
    /// By the kernel.
    pub found: &'a Array2<f32>,
    /// The other way.
    pub beside: &'a Array2<f32>,
    /// What the best order of a sum may still err by.
    pub floor: f64,
    /// What the worst honest one may err by.
    pub ceiling: f64,
}

/// What a finding is about.
pub(super) struct About {
    pub kind: Kind,
    pub kernel: String,
    pub shape: String,
    pub what: String,
    pub path: &'static str,
    pub differing: usize,
    pub note: String,
}

/// Numbers of a [`Finding`].
pub(super) struct Judged {
    pub rows: usize,
    pub error: f64,
    pub beside: f64,
    pub ratio: f64,
    pub worst: f64,
    pub limit: f64,
    pub bad: Vec<usize>,
}

impl Judged {
    /// With what it is about.
    pub fn finding(self, about: About) -> Finding {
        let About { kind, kernel, shape, what, path, differing, note } = about;
        let Self { rows, error, beside, ratio, worst, limit, bad } = self;
        Finding {
            kind,
            kernel,
            shape,
            what,
            path,
            rows,
            error,
            beside,
            ratio,
            worst,
            limit,
            bad_rows: bad.len(),
            first_bad: bad.first().copied(),
            differing,
            note,
        }
    }
}

impl Found<'_> {
    /// A row is bad if it errs by more than [`RATIO_MAX`] times the other way's worst row, or by more than
    /// the floor where that is larger: on a few rows one order of a sum may be luckier than the other. A bad
    /// other way excuses nothing: beyond the ceiling its own rows are bad. A NaN is beyond everything.
    pub fn judge(&self) -> Judged {
        let errors = |found: &Array2<f32>| -> Vec<f64> {
            let pairs = self.exact.rows().into_iter().zip(found.rows());
            pairs.map(|(exact, found)| relative_error(exact, found)).collect()
        };
        let (found, beside) = (errors(self.found), errors(self.beside));
        let other = Spread::of(beside.clone());
        let capped = if is_worse(other.max, self.ceiling) { self.ceiling } else { other.max };
        let limit = self.floor.max(RATIO_MAX * capped);
        let within = |value: f64, limit: f64| value <= limit;
        let is_bad = |&row: &usize| !within(found[row], limit) || !within(beside[row], self.ceiling);
        let bad = (0..found.len()).filter(is_bad).collect();
        let own = Spread::of(found.clone());
        let seen = |median: f64| if median <= ROUNDING { ROUNDING } else { median };
        let ratio = seen(own.p50) / seen(other.p50);
        let rows = found.len();
        Judged { rows, error: own.p50, beside: other.p50, ratio, worst: own.max, limit, bad }
    }
}

/// `|found - exact| / |exact|`, 0 where they are equal; what is not finite is NaN.
fn relative_error(exact: ArrayView1<'_, f64>, found: ArrayView1<'_, f32>) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (&exact, &found) in exact.iter().zip(found) {
        difference += (f64::from(found) - exact).powi(2);
        norm += exact * exact;
    }
    let error = if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() };
    if error.is_finite() { error } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn judged(found: [f32; 3], beside: [f32; 3]) -> Judged {
        let exact = array![[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]];
        let rows =
            |first: [f32; 3]| Array2::from_shape_fn((3, 2), |(r, c)| if c == 0 { first[r] } else { 0.0 });
        let (found, beside) = (rows(found), rows(beside));
        Found { exact: &exact, found: &found, beside: &beside, floor: 0.001, ceiling: 0.1 }.judge()
    }

    #[test]
    fn a_row_is_bad_beyond_three_times_the_other_ways_worst() {
        // the other way errs by 0.01 in its worst row
        let judged = judged([1.0, 2.0 * 1.029, 4.0 * 1.031], [1.01, 2.0, 4.0]);
        assert_eq!(judged.bad, [2]);
        assert!((judged.limit - 0.03).abs() < 1e-6 && (judged.worst - 0.031).abs() < 1e-6);
    }

    #[test]
    fn below_the_floor_no_row_is_bad() {
        assert_eq!(judged([1.0009, 2.0, 4.0], [1.0, 2.0, 4.0]).bad, [0_usize; 0]);
        assert_eq!(judged([1.0011, 2.0, 4.0], [1.0, 2.0, 4.0]).bad, [0]);
    }

    #[test]
    fn another_way_that_is_bad_excuses_nothing() {
        // both err by half in row 1; the limit is three times the ceiling
        assert_eq!(judged([1.0, 3.0, 4.0], [1.0, 3.0, 4.0]).bad, [1]);
        assert_eq!(judged([1.0, 2.0, 4.0], [1.0, 3.0, 4.0]).bad, [1]);
    }

    #[test]
    fn what_is_not_finite_is_bad_in_either_way() {
        for junk in [f32::NAN, f32::INFINITY] {
            assert_eq!(judged([junk, 2.0, 4.0], [1.0, 2.0, 4.0]).bad, [0]);
            assert_eq!(judged([1.0, 2.0, 4.0], [1.0, junk, 4.0]).bad, [1]);
        }
        let most = judged([f32::NAN; 3], [1.0, 2.0, 4.0]);
        assert!(most.ratio.is_nan());
    }

    #[test]
    fn a_row_of_zeros_is_right_if_it_is_zeros() {
        let (zero, one) = (Array2::zeros((1, 2)), Array2::ones((1, 2)));
        let exact = Array2::zeros((1, 2));
        let bad = |found| Found { exact: &exact, found, beside: &zero, floor: 0.1, ceiling: 0.1 }.judge().bad;
        assert_eq!((bad(&zero), bad(&one)), (vec![], vec![0]));
    }

    #[test]
    fn the_ratio_is_of_medians_of_at_least_half_a_last_bit() {
        assert_eq!(judged([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]).ratio, 1.0);
        let judged = judged([1.04, 2.0 * 1.04, 4.0], [1.02, 2.0 * 1.02, 4.0]);
        assert!((judged.ratio - 2.0).abs() < 1e-5, "{}", judged.ratio);
    }
}
