//! Each metric on rows small enough to be worked out by hand.

use crate::close;
use diff::metrics::branch::relative_error;
use diff::metrics::logits::{Top, kl_nats, nll_nats, top};
use diff::metrics::router::{gap, is_beyond_tie, same_set, z};
use ndarray::ArrayView1;
use rstest::rstest;
use std::f32::consts::LN_2 as LN_2_F32;
use std::f64::consts::LN_2;

fn row(values: &[f32]) -> ArrayView1<'_, f32> {
    ArrayView1::from(values)
}

const INF: f32 = f32::INFINITY;

#[rstest]
#[case::equal(&[3.0, 4.0], &[3.0, 4.0], 0.0)]
#[case::half_of_five(&[3.0, 4.0], &[3.0, 6.5], 0.5)]
#[case::sign_does_not_matter(&[3.0, 4.0], &[3.0, 1.5], 0.5)]
#[case::zero_on_both_sides(&[0.0, 0.0], &[0.0, -0.0], 0.0)]
#[case::zero_reference(&[0.0, 0.0], &[0.0, 1e-30], f64::INFINITY)]
#[case::infinite_port(&[3.0, 4.0], &[3.0, INF], f64::INFINITY)]
#[case::squares_beyond_f32(&[3e30, 4e30], &[3e30, 6.5e30], 0.5)]
fn relative_errors(#[case] reference: &[f32], #[case] port: &[f32], #[case] expect: f64) {
    let found = relative_error(row(reference), row(port));
    assert!(found == expect || close(found, expect), "{found} for {expect}");
}

#[rstest]
#[case::in_the_port(&[3.0, 4.0], &[f32::NAN, 4.0])]
#[case::in_the_reference(&[f32::NAN, 4.0], &[3.0, 4.0])]
#[case::against_zero(&[0.0, 0.0], &[0.0, f32::NAN])]
#[case::in_both_alike(&[f32::NAN, 4.0], &[f32::NAN, 4.0])]
#[case::equal_infinities(&[INF, 4.0], &[INF, 4.0])]
fn relative_error_of_what_is_no_number_is_nan(#[case] reference: &[f32], #[case] port: &[f32]) {
    assert!(relative_error(row(reference), row(port)).is_nan());
}

#[test]
#[should_panic]
fn rows_of_different_lengths_are_not_cut_to_the_shorter() {
    relative_error(row(&[1.0, 2.0]), row(&[1.0]));
}

#[test]
fn kl_of_two_known_distributions() {
    // p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): KL = 1/2 ln 2 + 0 - 1/4 ln 2
    let (p, q) = ([LN_2_F32, 0.0, 0.0], [1.0, 1.0, 1.0 + LN_2_F32]);
    let found = kl_nats(row(&p), row(&q));
    assert!((found - LN_2 / 4.0).abs() <= 1e-7, "{found}");
}

#[test]
fn kl_is_from_the_reference_to_the_port() {
    // p = (1/2, 1/2), q = (1/5, 4/5), both ways
    let (p, q) = ([0.0, 0.0], [0.0, 4.0_f32.ln()]);
    assert!(close(kl_nats(row(&p), row(&q)), 0.5 * 2.5_f64.ln() + 0.5 * 0.625_f64.ln()));
    assert!(close(kl_nats(row(&q), row(&p)), 0.2 * 0.4_f64.ln() + 0.8 * 1.6_f64.ln()));
}

#[test]
fn a_small_kl_is_exact() {
    // p = (1/2, 1/2), logits of q (2^-20, 0): KL = ln cosh(2^-21) = 2^-43 - ...
    let found = kl_nats(row(&[0.0, 0.0]), row(&[2.0_f32.powi(-20), 0.0]));
    assert!((found / 2.0_f64.powi(-43) - 1.0).abs() <= 1e-9, "{found:e}");
}

#[test]
fn kl_of_equals_is_zero() {
    assert_eq!(kl_nats(row(&[1.0, 2.0, -4.0]), row(&[1.0, 2.0, -4.0])), 0.0);
}

#[test]
fn kl_does_not_depend_on_a_shift() {
    let found = kl_nats(row(&[1.0, 2.0, -4.0]), row(&[3.0, 4.0, -2.0]));
    assert!((0.0..=1e-28).contains(&found), "what is left is the square of an f64 rounding: {found:e}");
}

#[rstest]
#[case::a_token_the_port_excludes(&[0.0, 0.0], &[0.0, -INF], f64::INFINITY)]
#[case::a_token_the_reference_excludes(&[0.0, -INF], &[0.0, 0.0], LN_2)]
#[case::a_token_both_exclude(&[0.0, -INF], &[5.0, -INF], 0.0)]
#[case::a_token_too_unlikely_for_f64(&[0.0, -2000.0], &[0.0, 0.0], LN_2)]
#[case::the_other_way_round(&[0.0, 0.0], &[0.0, -2000.0], 1000.0 - LN_2)]
fn kl_at_the_edges(#[case] reference: &[f32], #[case] port: &[f32], #[case] expect: f64) {
    let found = kl_nats(row(reference), row(port));
    assert!(found == expect || close(found, expect), "{found} for {expect}");
}

#[rstest]
#[case::in_the_port(&[0.0, 1.0], &[0.0, f32::NAN])]
#[case::in_the_reference(&[f32::NAN, 1.0], &[0.0, 1.0])]
#[case::at_a_token_the_reference_excludes(&[0.0, -INF], &[0.0, f32::NAN])]
#[case::infinite_logit(&[0.0, 1.0], &[0.0, INF])]
fn kl_of_what_is_no_distribution_is_nan(#[case] reference: &[f32], #[case] port: &[f32]) {
    assert!(kl_nats(row(reference), row(port)).is_nan());
}

#[test]
fn nll_of_a_quarter_is_two_bits() {
    assert!(close(nll_nats(row(&[LN_2_F32, 0.0, 0.0]), 1), 2.0 * LN_2));
}

#[rstest]
#[case::plain(&[1.0, 4.0, 2.5], 1, 1.5)]
#[case::first_is_top(&[4.0, 1.0, 2.5], 0, 1.5)]
#[case::second_came_before(&[2.5, 1.0, 4.0], 2, 1.5)]
#[case::a_tie_goes_to_the_lower(&[1.0, 3.0, 3.0], 1, 0.0)]
#[case::all_negative(&[-7.0, -5.0], 1, 2.0)]
fn top_token_and_lead(#[case] logits: &[f32], #[case] token: usize, #[case] lead_nats: f64) {
    assert_eq!(top(row(logits)), Some(Top { token, lead_nats }));
}

#[test]
fn a_row_with_nan_has_no_top_token() {
    assert_eq!(top(row(&[1.0, f32::NAN, 0.0])), None);
}

#[rstest]
#[case::in_any_order(&[1.0, 4.0, 0.5, 3.0], 2, 2.0)]
#[case::k_is_one(&[1.0, 4.0, 0.5, 3.0], 1, 1.0)]
#[case::a_tie(&[1.0, 4.0, 1.0, 0.0], 2, 0.0)]
#[case::negative_scores(&[-1.0, -4.0, -2.5, -8.0], 2, 1.5)]
#[case::every_expert_is_chosen(&[1.0, 2.0], 2, f64::INFINITY)]
fn gaps(#[case] scores: &[f32], #[case] k: usize, #[case] expect: f64) {
    assert_eq!(gap(row(scores), k), expect);
}

#[test]
fn a_nan_score_gives_a_nan_gap_which_is_no_tie() {
    let gap = gap(row(&[1.0, 4.0, f32::NAN, 3.0]), 1);
    assert!(gap.is_nan());
    assert!(is_beyond_tie(gap));
}

#[test]
fn the_tie_ends_at_a_gap_of_1e_minus_4() {
    assert!(!is_beyond_tie(0.99e-4));
    assert!(is_beyond_tie(1e-4));
}

#[rstest]
#[case::same_order(&[1.0, 2.0], &[1.0, 2.0], true)]
#[case::other_order(&[1.0, 2.0], &[2.0, 1.0], true)]
#[case::another_expert(&[1.0, 2.0], &[1.0, 3.0], false)]
#[case::one_twice(&[1.0, 2.0], &[1.0, 1.0], false)]
#[case::nan(&[1.0, f32::NAN], &[1.0, f32::NAN], false)]
fn sets(#[case] a: &[f32], #[case] b: &[f32], #[case] expect: bool) {
    assert_eq!(same_set(row(a), row(b)), expect);
}

#[test]
fn z_is_gap_over_sigma() {
    assert_eq!(z(0.5, 0.25), 2.0);
    assert_eq!(z(0.5, 0.0), f64::INFINITY);
    assert_eq!(z(0.0, 0.0), 0.0);
    assert!(z(0.0, f64::NAN).is_nan());
}
