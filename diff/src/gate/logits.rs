//! Logits of a run against stored ones, position by position, kept as numbers; and what is made of these:
//! spreads, buckets along the context, rates, growth.

use super::record::{Bucket, RunName, RunRecord, SequenceRate};
use crate::compare::Place;
use crate::metrics::logits;
use crate::stats::{Rate, Spread, first_worst};
use ndarray::ArrayView1;
use spec::Case;

/// A mean KL below this is as good as zero: growth is not taken from it (docs/gate.md, `forced.kl`).
const MEAN_FLOOR_NATS: f64 = 1e-15;
/// Buckets along the context at most.
const BUCKETS_MAX: usize = 8;

/// By case, by position.
#[derive(Debug, Clone)]
pub(crate) struct LogitsRows {
    /// KL of the stored to the run's logits, nats.
    pub(crate) kl: Vec<Vec<f64>>,
    /// At a confident position of the stored logits: whether the run's top token is the same.
    pub(crate) kept: Vec<Vec<Option<bool>>>,
    /// Logits of the run that bf16 can hold exactly.
    pub(crate) in_bf16: usize,
    /// Logits of the run.
    pub(crate) values: usize,
    /// Logits whose bits are not the stored ones'.
    pub(crate) differing: usize,
}

impl LogitsRows {
    pub(crate) fn new(cases: usize) -> Self {
        Self {
            kl: vec![Vec::new(); cases],
            kept: vec![Vec::new(); cases],
            in_bf16: 0,
            values: 0,
            differing: 0,
        }
    }

    /// Takes the next position of a case, `[V]` f32 each.
    pub(crate) fn position(&mut self, case: usize, stored: ArrayView1<'_, f32>, run: ArrayView1<'_, f32>) {
        self.kl[case].push(logits::kl_nats(stored, run));
        let expected = logits::top(stored).filter(|top| top.is_confident());
        let kept = |top: logits::Top| logits::top(run).is_some_and(|found| found.token == top.token);
        self.kept[case].push(expected.map(kept));
        self.in_bf16 += run.iter().filter(|value| in_bf16(**value)).count();
        self.values += run.len();
        self.differing += stored.iter().zip(run).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    }

    /// KL of all positions, in order.
    pub(crate) fn all(&self) -> Vec<f64> {
        self.kl.concat()
    }

    /// Mean over all positions; NaN of none.
    pub(crate) fn mean(&self) -> f64 {
        mean(&self.all())
    }

    /// Case and position of the largest KL. Panics on no positions.
    pub(crate) fn worst(&self) -> (usize, usize) {
        let of_case = |(case, rows): (usize, &Vec<f64>)| {
            rows.iter().enumerate().map(move |(position, &kl)| (kl, case, position)).collect::<Vec<_>>()
        };
        let worst = first_worst(self.kl.iter().enumerate().flat_map(of_case), |row| row.0);
        worst.map(|(_, case, position)| (case, position)).expect("at least one position")
    }

    /// Confident positions that kept their top token.
    pub(crate) fn confident(&self) -> Rate {
        rate(&self.kept.concat())
    }

    /// Share of the run's logits that bf16 can hold.
    pub(crate) fn share_in_bf16(&self) -> f64 {
        self.in_bf16 as f64 / self.values as f64
    }

    /// Mean and largest KL along the context, over the buckets of [`buckets`].
    pub(crate) fn buckets(&self, chunk: usize) -> Vec<Bucket> {
        let longest = self.kl.iter().map(Vec::len).max().unwrap_or(0);
        let bucket = |(from, to): (usize, usize)| {
            let of_case = |rows: &Vec<f64>| rows[from.min(rows.len())..to.min(rows.len())].to_vec();
            let kl: Vec<f64> = self.kl.iter().flat_map(of_case).collect();
            let max = first_worst(kl.iter().copied(), |kl| *kl).unwrap_or(f64::NEG_INFINITY);
            Bucket { from, to, positions: kl.len(), mean: mean(&kl), max }
        };
        buckets(longest, chunk).into_iter().map(bucket).collect()
    }

    pub(crate) fn record(&self, run: RunName, cases: &[Case], chunk: usize) -> RunRecord {
        let (case, position) = self.worst();
        let sequence = |(case, kept): (&Case, &Vec<Option<bool>>)| SequenceRate {
            case: case.name.clone(),
            rate: rate(kept),
        };
        RunRecord {
            run,
            kl_nats: Spread::of(self.all()),
            kl_worst: Place { case: cases[case].name.clone(), position },
            buckets: self.buckets(chunk),
            confident_top1: self.confident(),
            by_sequence: cases.iter().zip(&self.kept).map(sequence).collect(),
        }
    }
}

/// Ranges of positions of equal length, each of at least two chunks (the last takes what is left), at most
/// [`BUCKETS_MAX`] of them.
fn buckets(len: usize, chunk: usize) -> Vec<(usize, usize)> {
    let count = (len / (2 * chunk)).clamp(1, BUCKETS_MAX);
    let width = len / count;
    (0..count).map(|i| (i * width, if i + 1 == count { len } else { (i + 1) * width })).collect()
}

/// The last bucket's mean over the first's, each at least [`MEAN_FLOOR_NATS`]; `None` of fewer than two.
pub(crate) fn growth(buckets: &[Bucket]) -> Option<f64> {
    let (first, last) = (buckets.first()?, buckets.last()?);
    // written so that a NaN stays one
    let floored = |mean: f64| if mean < MEAN_FLOOR_NATS { MEAN_FLOOR_NATS } else { mean };
    (buckets.len() > 1).then(|| floored(last.mean) / floored(first.mean))
}

/// Whether a bf16 holds this number exactly: the lower half of its bits is zero.
pub(crate) fn in_bf16(value: f32) -> bool {
    value.to_bits() & 0xFFFF == 0
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn rate(kept: &[Option<bool>]) -> Rate {
    let confident = kept.iter().flatten();
    Rate::new(confident.clone().filter(|kept| **kept).count(), confident.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::two_chunks_a_bucket(512, 128, &[(0, 256), (256, 512)])]
    #[case::at_most_eight(4096, 128, &[(0, 512), (512, 1024), (1024, 1536), (1536, 2048), (2048, 2560),
        (2560, 3072), (3072, 3584), (3584, 4096)])]
    #[case::the_last_takes_the_rest(701, 100, &[(0, 233), (233, 466), (466, 701)])]
    #[case::never_none(100, 128, &[(0, 100)])]
    fn buckets_hold_at_least_two_chunks(
        #[case] len: usize,
        #[case] chunk: usize,
        #[case] expected: &[(usize, usize)],
    ) {
        assert_eq!(buckets(len, chunk), expected);
    }

    #[rstest]
    #[case(1.0, true)]
    #[case(-0.0, true)]
    #[case(1.0 + f32::EPSILON, false)]
    #[case(1.0 + 0.0078125, true)]
    #[case(1.0 + 0.00390625, false)]
    fn eight_bits_of_significand_fit_into_bf16(#[case] value: f32, #[case] fits: bool) {
        assert_eq!(in_bf16(value), fits);
    }

    #[rstest]
    #[case::grows(&[1e-13, 1e-12], Some(10.0))]
    #[case::zeros_do_not_divide(&[0.0, 0.0], Some(1.0))]
    #[case::one_bucket(&[1e-13], None)]
    fn growth_is_last_over_first(#[case] means: &[f64], #[case] expected: Option<f64>) {
        let bucket = |&mean: &f64| Bucket { from: 0, to: 1, positions: 1, mean, max: mean };
        let found = growth(&means.iter().map(bucket).collect::<Vec<_>>());
        assert_eq!(found.is_some(), expected.is_some());
        assert!(found.zip(expected).is_none_or(|(found, expected)| (found / expected - 1.0).abs() <= 1e-12));
    }

    #[test]
    fn growth_from_or_to_nan_is_nan() {
        let bucket = |mean: f64| Bucket { from: 0, to: 1, positions: 1, mean, max: mean };
        assert!(growth(&[bucket(f64::NAN), bucket(1.0)]).unwrap().is_nan());
        assert!(growth(&[bucket(1.0), bucket(f64::NAN)]).unwrap().is_nan());
    }
}
