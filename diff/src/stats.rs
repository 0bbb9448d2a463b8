//! Summaries of many numbers: percentiles, mean, worst, and the interval of a rate.
//!
//! Everything is f64. NaN is the largest of all numbers here: it reaches `max`, and it can only move a
//! percentile upwards; no summary of a list with a NaN in it looks like one without.
//! Absent on purpose: limits and words such as "close".

use crate::number;
use statrs::distribution::{Beta, ContinuousCDF};

/// Confidence of every interval that is printed.
pub const CONFIDENCE: f64 = 0.95;

/// One list of numbers, summarised. The unit is the list's own.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    /// How many numbers.
    pub count: usize,
    /// Their mean; NaN if one of them is.
    #[serde(with = "number")]
    pub mean: f64,
    /// Median, by nearest rank.
    #[serde(with = "number")]
    pub p50: f64,
    /// 99th percentile, by nearest rank.
    #[serde(with = "number")]
    pub p99: f64,
    /// The largest; NaN if one of them is.
    #[serde(with = "number")]
    pub max: f64,
}

impl Spread {
    /// Summarises a list. Panics on an empty one: nothing was compared, which the caller refuses first.
    pub fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a summary of nothing");
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.sort_by(|a, b| order(*a, *b));
        Self {
            count: values.len(),
            mean,
            p50: percentile(&values, 50),
            p99: percentile(&values, 99),
            max: values[values.len() - 1],
        }
    }
}

/// The nearest-rank percentile of an ascending list: its smallest element that at least `percent` % of the
/// elements do not exceed, the `ceil(percent * n / 100)`-th. Always an element of the list; for 50 and an
/// even `n` the lower of the two in the middle. Panics on an empty list or a percentage outside 1 to 100.
pub fn percentile(ascending: &[f64], percent: usize) -> f64 {
    assert!((1..=100).contains(&percent), "a percentage from 1 to 100, not {percent}");
    ascending[(percent * ascending.len()).div_ceil(100) - 1]
}

/// Ascending order in which NaN, of either sign, comes after everything else.
pub fn order(a: f64, b: f64) -> std::cmp::Ordering {
    a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal))
}

/// Whether `new` takes the place of `worst` in a fold to the largest: NaN beats every number, nothing beats
/// NaN.
pub fn is_worse(new: f64, worst: f64) -> bool {
    order(new, worst).is_gt()
}

/// The first of the items with the largest number, by [`is_worse`]; `None` of none.
pub fn first_worst<T>(items: impl Iterator<Item = T>, number: impl Fn(&T) -> f64) -> Option<T> {
    items.reduce(|worst, new| if is_worse(number(&new), number(&worst)) { new } else { worst })
}

/// How often something happened, with its Clopper–Pearson interval.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Rate {
    /// How often it happened.
    pub count: usize,
    /// Out of how many.
    pub of: usize,
    /// `count / of`; NaN out of none.
    #[serde(with = "number")]
    pub rate: f64,
    /// Lower end of the interval of [`CONFIDENCE`].
    #[serde(with = "number")]
    pub low: f64,
    /// Upper end.
    #[serde(with = "number")]
    pub high: f64,
}

impl Rate {
    /// `count` out of `of`.
    pub fn new(count: usize, of: usize) -> Self {
        let (low, high) = clopper_pearson(count, of);
        Self { count, of, rate: count as f64 / of as f64, low, high }
    }
}

/// The exact (Clopper–Pearson) interval of [`CONFIDENCE`] for a rate of which `count` out of `of` were seen:
/// the rates under which neither tail, the seen count included, is less likely than half of what is left.
/// Nominal: it takes the trials as independent. `(0, 1)` out of none. Panics if `count > of`.
pub fn clopper_pearson(count: usize, of: usize) -> (f64, f64) {
    assert!(count <= of, "{count} out of {of}");
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let quantile = |a: usize, b: usize, p: f64| {
        Beta::new(a as f64, b as f64).expect("both shapes are positive").inverse_cdf(p)
    };
    let low = if count == 0 { 0.0 } else { quantile(count, of - count + 1, tail) };
    let high = if count == of { 1.0 } else { quantile(count + 1, of - count, 1.0 - tail) };
    (low, high)
}

/// A root mean square that is being accumulated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RootMeanSquare {
    sum: f64,
    count: usize,
}

impl RootMeanSquare {
    /// Takes one value.
    pub fn add(&mut self, value: f64) {
        self.sum += value * value;
        self.count += 1;
    }

    /// The root mean square so far; NaN of nothing, or if a value was NaN.
    pub fn value(self) -> f64 {
        (self.sum / self.count as f64).sqrt()
    }
}
