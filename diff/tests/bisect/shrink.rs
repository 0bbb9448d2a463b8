//! The shortest cut, against sequences whose shortest cut is known.

use diff::bisect::{probes_max, shortest};
use rstest::rstest;
use std::ops::Range;

/// A defect that shows wherever a cut holds a run of at least `long` tokens, and its row is the last one of a
/// call that has at least `after` rows behind it.
fn shows(long: usize, after: usize, first: usize) -> impl Fn(&Range<usize>) -> Option<usize> {
    move |cut| (cut.start + long <= first + 1 && cut.end > first + after).then(|| first - cut.start)
}

#[rstest]
#[case::a_row_alone(1, 0, 40, 41, 40..41)]
#[case::a_full_window(33, 0, 32, 96, 0..33)]
#[case::a_window_late_in_the_text(33, 0, 80, 96, 48..81)]
#[case::the_first_row(1, 0, 0, 96, 0..1)]
#[case::rows_behind_it(1, 1, 36, 72, 36..38)]
#[case::the_whole_call(1, 35, 36, 72, 36..72)]
fn the_shortest_cut_is_found_within_the_bound(
    #[case] long: usize,
    #[case] after: usize,
    #[case] first: usize,
    #[case] call_end: usize,
    #[case] expected: Range<usize>,
) {
    let shows = shows(long, after, first);
    let mut probes = 0;
    let found = shortest(first, call_end, |cut| {
        probes += 1;
        Ok(shows(&cut))
    });
    assert_eq!(found.unwrap(), expected);
    assert!(probes <= probes_max(first, call_end), "{probes} of {}", probes_max(first, call_end));
}

/// One, ceil(log2) of 64 tokens from the row on, ceil(log2) of 96 tokens in all.
#[test]
fn the_bound_is_logarithmic() {
    assert_eq!(probes_max(32, 96), 1 + 6 + 7);
    assert_eq!(probes_max(0, 1), 1);
}

#[test]
fn where_dropping_is_not_monotone_the_cut_still_shows_it() {
    let shows = |cut: &Range<usize>| (cut.start % 3 != 1).then_some(0);
    let found = shortest(20, 21, |cut| Ok(shows(&cut))).unwrap();
    assert!(shows(&found).is_some(), "{found:?}");
}
