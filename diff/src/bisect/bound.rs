//! How far a site may be off: bounds from the reference's own rounding errors.
//!
//! The reference's steps are repeated in f64; what the f32 steps are off from that is what rounding does to a
//! site on these very rows. A correct port rounds as often, but elsewhere: it sums in another order, and may
//! fuse or split an operation. Absent on purpose: what to make of a row that is out of bound.

use crate::beside::SiteRows;
use crate::metrics::branch::relative_error;
use crate::metrics::router::{gap, is_beyond_tie, same_set};
use crate::stats::is_worse;
use ndarray::{Array2, ArrayView1, Axis, concatenate, s};
use spec::Site;
use std::borrow::Cow;

/// How many times the reference's own rounding error a port may be off. Two correct f32 orders of a sum of n
/// terms err independently, each by `sqrt(n)` to `n` roundings; the reference sums in several short partial
/// sums, at best `sqrt(n)` of them. For rows of 96 to 6144 values the orders of one sum are therefore up to
/// some ten times apart, and the worst of a few hundred rows is a fair measure of either. Measured: a correct
/// port reaches 2.6 of the 16 on hundreds of tokens of three checkpoints, 5.3 on four thousand.
pub const FACTOR: f64 = 16.0;

/// No bound is tighter: four units in the last place of f32, for sites at which the reference happens to be
/// exact.
pub const FLOOR: f64 = 4.0 * f32::EPSILON as f64;

/// Relative L2 error of each row of one site, `other` from `reference`; of sites that hold expert ids 0 for
/// the same set and 1 for another, a tie between two experts apart. A site whose values belong to executed
/// experts is held against the reference's in the order of the reference's ids.
pub(crate) fn row_errors(site: Site, reference: &SiteRows, other: &SiteRows) -> Vec<f64> {
    let (expected, found) = (&reference[&site], aligned(site, reference, other));
    let rows = expected.rows().into_iter().zip(found.rows());
    let is_tie = |row| site == Site::ShadowChoice && is_tie(row, reference, other);
    if holds_ids(site) {
        let wrong = |(row, (a, b))| f64::from(!same_set(a, b) && !is_tie(row));
        return rows.enumerate().map(wrong).collect();
    }
    rows.map(|(a, b)| relative_error(a, b)).collect()
}

/// Whether a site holds ids, of which none may be wrong.
pub(crate) fn holds_ids(site: Site) -> bool {
    matches!(site, Site::Choice | Site::ShadowChoice)
}

/// The bound of a site from the errors of the reference's own rows against f64. NaN, which nothing is within,
/// if such an error is no number.
pub(crate) fn bound(site: Site, errors: impl Iterator<Item = f64>) -> f64 {
    if holds_ids(site) {
        return 0.0;
    }
    let worst = worst(errors);
    if worst.is_finite() { (FACTOR * worst).max(FLOOR) } else { f64::NAN }
}

/// The largest; NaN if one is; 0 of none.
pub(crate) fn worst(errors: impl Iterator<Item = f64>) -> f64 {
    errors.fold(0.0, |worst, new| if is_worse(new, worst) { new } else { worst })
}

/// What the bound of a row is more, because its angles are rounded (K10): a frequency and its product with
/// the position, half a unit in the last place each, move a pair by `position` times as much at most. Steps
/// in f64 take the same f32 angles and do not show it.
pub(crate) fn of_angles(site: Site, position: usize) -> f64 {
    match site {
        Site::QRope | Site::KRope => position as f64 * f64::from(f32::EPSILON),
        _ => 0.0,
    }
}

/// Whether a row of a site is out of the site's bound.
pub(crate) fn is_row_out(site: Site, position: usize, error: f64, bound: f64) -> bool {
    is_out(error, bound + of_angles(site, position))
}

/// Whether this error is out of bound: not at most the bound, so that a NaN is out.
pub(crate) fn is_out(error: f64, bound: f64) -> bool {
    !matches!(error.partial_cmp(&bound), Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal))
}

/// Whether two sets may differ: by a tie, or because the scores differ by as much as the gap. Scores that
/// differ by too much are out of bound themselves.
fn is_tie(row: usize, reference: &SiteRows, other: &SiteRows) -> bool {
    let scores = |rows: &SiteRows| rows.get(&Site::SelectionScores).map(|all| all.row(row).to_owned());
    let (Some(expected), Some(found)) = (scores(reference), scores(other)) else { return false };
    let gap = gap(expected.view(), reference[&Site::ShadowChoice].ncols());
    let apart = expected.iter().zip(&found).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    // both of two experts may have moved, towards each other
    !is_beyond_tie(gap) || gap <= 2.0 * worst(apart)
}

/// The other's rows with the values of each executed expert where the reference has that expert's.
fn aligned<'a>(site: Site, reference: &SiteRows, other: &'a SiteRows) -> Cow<'a, Array2<f32>> {
    let rows = &other[&site];
    let of_experts = matches!(site, Site::TopkWeights | Site::ExpertOut);
    let (true, Some(expected), Some(found)) =
        (of_experts, reference.get(&Site::Choice), other.get(&Site::Choice))
    else {
        return Cow::Borrowed(rows);
    };
    let width = rows.ncols() / expected.ncols();
    let mut turned = rows.clone();
    for (row, (expected, found)) in expected.rows().into_iter().zip(found.rows()).enumerate() {
        if expected != found && same_set(expected, found) {
            turned.row_mut(row).assign(&reordered(rows.row(row), expected, found, width));
        }
    }
    Cow::Owned(turned)
}

fn reordered(
    values: ArrayView1<'_, f32>,
    expected: ArrayView1<'_, f32>,
    found: ArrayView1<'_, f32>,
    width: usize,
) -> ndarray::Array1<f32> {
    let slot = |id: &f32| found.iter().position(|other| other == id).expect("the sets are the same");
    let parts = expected.iter().map(slot).map(|slot| values.slice(s![slot * width..(slot + 1) * width]));
    concatenate(Axis(0), &parts.collect::<Vec<_>>()).expect("parts of one row")
}

/// Relative L2 errors of the parts of each row, `width` values each, `[T, parts]`; see [`row_errors`].
pub(crate) fn part_errors(site: Site, reference: &SiteRows, other: &SiteRows, width: usize) -> Array2<f64> {
    let (expected, found) = (&reference[&site], aligned(site, reference, other));
    let parts = expected.ncols() / width;
    Array2::from_shape_fn((expected.nrows(), parts), |(row, part)| {
        let columns = s![row, part * width..(part + 1) * width];
        relative_error(expected.slice(columns), found.slice(columns))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;
    use rstest::rstest;

    #[rstest]
    #[case::in_units_of_the_reference(&[1e-7, 2e-7], 32e-7)]
    #[case::never_below_the_floor(&[0.0, 0.0], FLOOR)]
    fn a_bound_is_a_multiple_of_the_worst_error(#[case] errors: &[f64], #[case] expected: f64) {
        let bound = bound(Site::Q, errors.iter().copied());
        assert!((bound - expected).abs() <= 1e-12 * expected, "{bound:e}");
    }

    #[rstest]
    #[case::of_the_reference_beside_numbers(&[f64::NAN, 1e-7])]
    #[case::in_any_order(&[1e-7, f64::NAN])]
    #[case::where_f64_is_zero_and_f32_is_not(&[f64::INFINITY])]
    fn nothing_is_within_a_bound_that_is_no_number(#[case] errors: &[f64]) {
        let bound = bound(Site::Q, errors.iter().copied());
        assert!(bound.is_nan());
        assert!(is_out(0.0, bound));
    }

    #[test]
    fn a_nan_is_out_of_every_bound_and_the_bound_itself_is_not() {
        assert!(is_out(f64::NAN, 1.0));
        assert!(is_out(f64::NAN, f64::INFINITY));
        assert!(!is_out(1.0, 1.0));
        assert!(worst([1.0, f64::NAN, 2.0].into_iter()).is_nan());
    }

    fn rows(site: Site, choice: [f32; 2], values: Array2<f32>) -> SiteRows {
        SiteRows::from([(Site::Choice, array![choice]), (site, values)])
    }

    #[test]
    fn values_of_experts_meet_by_expert_whatever_the_order() {
        let site = Site::ExpertOut;
        let reference = rows(site, [3.0, 1.0], array![[1.0, 2.0, 5.0, 6.0]]);
        let turned = rows(site, [1.0, 3.0], array![[5.0, 6.0, 1.0, 2.0]]);
        assert_eq!(row_errors(site, &reference, &turned), [0.0]);
        // another set is wrong as a set, and its values are held as they come
        let other = rows(site, [1.0, 2.0], array![[5.0, 6.0, 1.0, 2.0]]);
        assert!(row_errors(site, &reference, &other)[0] > 0.5);
        assert_eq!(row_errors(Site::Choice, &reference, &other), [1.0]);
        assert_eq!(row_errors(Site::Choice, &reference, &turned), [0.0]);
    }

    #[rstest]
    #[case::another_expert_at_a_wide_gap([3.0, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0], 1.0)]
    #[case::a_tie([3.0, 2.0, 1.99995, 0.0], [3.0, 2.0, 1.99995, 0.0], 0.0)]
    #[case::scores_that_moved_across_the_gap([3.0, 2.0, 1.9, 0.0], [3.0, 1.94, 1.96, 0.0], 0.0)]
    #[case::a_gap_that_is_no_number([f32::NAN, 2.0, 1.0, 0.0], [3.0, 2.0, 1.0, 0.0], 1.0)]
    fn another_set_is_allowed_where_scores_explain_it(
        #[case] expected: [f32; 4],
        #[case] found: [f32; 4],
        #[case] error: f64,
    ) {
        let of = |scores: [f32; 4], chosen: [f32; 2]| {
            SiteRows::from([(Site::SelectionScores, array![scores]), (Site::ShadowChoice, array![chosen])])
        };
        let (reference, port) = (of(expected, [0.0, 1.0]), of(found, [0.0, 2.0]));
        assert_eq!(row_errors(Site::ShadowChoice, &reference, &port), [error]);
    }
}
