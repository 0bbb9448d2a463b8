//! Percentiles, intervals and what NaN does to them.

use diff::stats::{Rate, Spread, clopper_pearson, percentile};
use rstest::rstest;

#[rstest]
#[case::one_value(&[7.0], 50, 7.0)]
#[case::odd_median(&[1.0, 2.0, 9.0], 50, 2.0)]
#[case::even_median_is_the_lower(&[1.0, 2.0, 9.0, 10.0], 50, 2.0)]
#[case::p99_of_few_is_the_largest(&[1.0, 2.0, 3.0], 99, 3.0)]
#[case::the_textbook_30th(&[15.0, 20.0, 35.0, 40.0, 50.0], 30, 20.0)]
#[case::the_textbook_40th(&[15.0, 20.0, 35.0, 40.0, 50.0], 40, 20.0)]
#[case::the_textbook_100th(&[15.0, 20.0, 35.0, 40.0, 50.0], 100, 50.0)]
fn percentiles_are_by_nearest_rank(#[case] ascending: &[f64], #[case] percent: usize, #[case] expect: f64) {
    assert_eq!(percentile(ascending, percent), expect);
}

#[test]
fn spread_of_one_to_two_hundred() {
    let spread = Spread::of((1..=200).rev().map(f64::from).collect());
    assert_eq!(spread, Spread { count: 200, mean: 100.5, p50: 100.0, p99: 198.0, max: 200.0 });
}

#[rstest]
#[case::positive_nan(f64::NAN)]
#[case::negative_nan(-f64::NAN)]
fn one_nan_among_many_is_the_largest_and_the_mean(#[case] nan: f64) {
    let spread = Spread::of(vec![2.0, nan, 1.0, f64::INFINITY, 0.0]);
    assert!(spread.max.is_nan() && spread.p99.is_nan() && spread.mean.is_nan());
    assert_eq!(spread.p50, 2.0, "the third of 0, 1, 2, inf, NaN");
}

#[test]
fn infinity_is_not_hidden() {
    assert_eq!(Spread::of(vec![1.0, f64::INFINITY]).max, f64::INFINITY);
}

// Exact 95 % intervals from the tables of Clopper and Pearson (1934), to four places.
#[rstest]
#[case(0, 10, 0.0, 0.3085)]
#[case(1, 10, 0.0025, 0.4450)]
#[case(5, 10, 0.1871, 0.8129)]
#[case(10, 10, 0.6915, 1.0)]
#[case(1, 2, 0.0126, 0.9874)]
fn intervals_are_the_published_ones(
    #[case] count: usize,
    #[case] of: usize,
    #[case] low: f64,
    #[case] high: f64,
) {
    let found = clopper_pearson(count, of);
    assert!((found.0 - low).abs() <= 5e-5 && (found.1 - high).abs() <= 5e-5, "{found:?}");
}

#[rstest]
#[case(12_280, 12_288)]
#[case(8_000, 8_192)]
#[case(3, 100_000)]
fn the_seen_count_is_a_tail_of_a_fortieth_at_either_end(#[case] count: usize, #[case] of: usize) {
    let (low, high) = clopper_pearson(count, of);
    let at_least: f64 = binomial(of, low)[count..].iter().sum();
    let at_most: f64 = binomial(of, high)[..=count].iter().sum();
    assert!((at_least - 0.025).abs() <= 1e-6, "{at_least}");
    assert!((at_most - 0.025).abs() <= 1e-6, "{at_most}");
}

/// P(X = 0), P(X = 1), ... P(X = n) of n trials at rate p; each from the one before, by logarithms.
fn binomial(n: usize, p: f64) -> Vec<f64> {
    let (ln_odds, mut ln) = (p.ln() - (-p).ln_1p(), n as f64 * (-p).ln_1p());
    let mut all = vec![ln.exp()];
    for x in 1..=n {
        ln += ((n - x + 1) as f64 / x as f64).ln() + ln_odds;
        all.push(ln.exp());
    }
    all
}

#[test]
fn a_rate_out_of_none_is_nan_and_anything_is_possible() {
    let rate = Rate::new(0, 0);
    assert!(rate.rate.is_nan());
    assert_eq!((rate.low, rate.high), (0.0, 1.0));
}
