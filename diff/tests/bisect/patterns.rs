//! What rows have in common, each worked out by hand.

use diff::bisect::{Facts, Pattern, classify, grows, origins, ranges, rank_correlation};
use rstest::rstest;
use spec::{Schedule, Site};
use std::collections::BTreeSet;

/// Of 20 rows in chunks of 6, one token per call from 16 on, a window of 9:
/// calls 0..6, 6..12, 12..16, 16, 17, 18, 19.
fn facts() -> Facts {
    let schedule = Schedule { decode_from: Some(16), ..Schedule::chunks_of(6) };
    Facts { calls: schedule.calls(20), decode_from: Some(16), window: Some(9), experts: None }
}

fn out(rows: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut out = vec![false; 20];
    rows.into_iter().for_each(|row| out[row] = true);
    out
}

#[rstest]
#[case::every_row(out(0..20), Pattern::All)]
#[case::decode(out(16..20), Pattern::Decode { from: 16 })]
#[case::decode_from_its_second_call(out(17..20), Pattern::DecodeAfterFirst { from: 17 })]
#[case::first_rows_of_calls(out([6, 12, 16, 17, 18, 19]), Pattern::FirstOfCalls { from: 6 })]
#[case::first_rows_from_the_third_call(out([12, 16, 17, 18, 19]), Pattern::FirstOfCalls { from: 12 })]
#[case::from_the_second_call(out(6..20), Pattern::LaterCalls { from: 6 })]
#[case::nearly_all_of_them(out((6..20).filter(|row| *row != 9)), Pattern::LaterCalls { from: 6 })]
#[case::where_the_window_is_full(out(8..20), Pattern::PastWindow { from: 8, window: 9 })]
#[case::where_it_has_lost_a_key(out(9..20), Pattern::PastWindow { from: 9, window: 9 })]
#[case::from_another_position(out(1..20), Pattern::From { from: 1 })]
#[case::the_last_row(out([19]), Pattern::From { from: 19 })]
#[case::all_but_one(
    out((0..20).filter(|row| *row != 5)),
    Pattern::Some { count: 19, of: 20, first: 0 }
)]
#[case::a_few(out([3, 7, 11]), Pattern::Some { count: 3, of: 20, first: 3 })]
fn rows_are_told_by_the_most_specific_pattern(#[case] out: Vec<bool>, #[case] expected: Pattern) {
    assert_eq!(classify(&out, &facts()), expected);
}

/// Two calls of four rows; which experts each row executed. Expert 7 has three rows of the first call, 5 two
/// rows in all, one in each call, and every other expert one.
fn of_experts() -> Facts {
    let experts = [[7, 1], [7, 2], [7, 5], [3, 4], [1, 2], [5, 3], [4, 6], [8, 9]];
    Facts {
        calls: vec![0..4, 4..8],
        decode_from: None,
        window: None,
        experts: Some(experts.map(Vec::from).to_vec()),
    }
}

#[rstest]
#[case::one_expert(&[2, 5], Pattern::Expert { expert: 5, first: 2 })]
#[case::three_tokens(&[0, 1, 2], Pattern::ExpertTokens { tokens: 3, first: 0 })]
#[case::a_lone_row_has_some_expert_in_any_case(&[7], Pattern::From { from: 7 })]
#[case::some_rows_of_an_expert(&[0, 2], Pattern::Some { count: 2, of: 8, first: 0 })]
fn rows_of_an_expert_are_told_by_it(#[case] rows: &[usize], #[case] expected: Pattern) {
    let out: Vec<bool> = (0..8).map(|row| rows.contains(&row)).collect();
    assert_eq!(classify(&out, &of_experts()), expected);
}

#[rstest]
#[case(Some(false), Pattern::AfterWrap { from: 9, window: 9 })]
#[case(Some(true), Pattern::PastWindow { from: 9, window: 9 })]
#[case(None, Pattern::PastWindow { from: 9, window: 9 })]
fn past_the_window_in_several_calls_only_is_the_caches(
    #[case] in_one_call: Option<bool>,
    #[case] expected: Pattern,
) {
    assert_eq!(Pattern::PastWindow { from: 9, window: 9 }.refined(in_one_call), expected);
    assert_eq!(Pattern::All.refined(in_one_call), Pattern::All);
}

#[rstest]
#[case::a_rising_list(&[1.0, 2.0, 4.0, 9.0], 1.0)]
#[case::a_falling_list(&[4.0, 3.0, 2.0], -1.0)]
#[case::equal_numbers(&[2.0, 2.0, 2.0], 0.0)]
// ranks 0, 2, 1: covariance 1/2 of the variance
#[case::two_exchanged(&[1.0, 3.0, 2.0], 0.5)]
// ranks 0.5, 0.5, 2 with order 0, 1, 2: 1.5 / sqrt(2 * 1.5)
#[case::ties_share_a_rank(&[1.0, 1.0, 2.0], 0.866_025_403_784_438_6)]
#[case::a_nan_says_nothing(&[1.0, f64::NAN, 3.0], 0.0)]
fn ranks_correlate_with_the_order(#[case] values: &[f64], #[case] expected: f64) {
    let found = rank_correlation(values);
    assert!((found - expected).abs() <= 1e-12, "{found}");
}

#[test]
fn errors_of_few_rows_are_not_said_to_grow() {
    let rising: Vec<f64> = (0..8).map(f64::from).collect();
    let rows: Vec<usize> = (0..8).collect();
    assert!(grows(&rows, &rising));
    assert!(!grows(&rows[..7], &rising[..7]));
    let falling: Vec<f64> = rising.iter().rev().copied().collect();
    assert!(!grows(&rows, &falling));
}

#[rstest]
#[case::a_chain_has_its_first(&[Site::QNorm, Site::QRope, Site::AttnOut], &[Site::QNorm])]
#[case::two_that_meet(&[Site::QRope, Site::KRope, Site::AttnOut], &[Site::QRope, Site::KRope])]
#[case::a_gap_in_the_chain(&[Site::AttnNorm, Site::MoeNorm], &[Site::AttnNorm])]
#[case::selection_comes_from_logits(&[Site::RouterLogits, Site::ShadowChoice], &[Site::RouterLogits])]
#[case::experts_and_shared(
    &[Site::ExpertOut, Site::SharedAct, Site::Shared, Site::Routed],
    &[Site::ExpertOut, Site::SharedAct]
)]
#[case::the_head(&[Site::FinalNorm, Site::Logits], &[Site::FinalNorm])]
fn the_origin_has_nothing_wrong_before_it(#[case] out: &[Site], #[case] expected: &[Site]) {
    assert_eq!(origins(&out.iter().copied().collect::<BTreeSet<_>>()), expected);
}

#[rstest]
#[case(&[0, 1, 2, 5], "0-2, 5")]
#[case(&[4], "4")]
#[case(&[0, 2, 4, 6, 8, 10, 12], "0, 2, 4, 6, 8, 10, …")]
fn numbers_are_shown_as_ranges(#[case] numbers: &[usize], #[case] shown: &str) {
    assert_eq!(ranges(numbers), shown);
}
