//! Bugs of kernels at the shapes at which they act, on numbers whose products are known.

use mlx_rs::Array;
use mlx_rs::ops::indexing::{IntoStrideBy, TryIndexOp};
use mutants::{PortPlant, find};
use port::engine::values;
use port::mask::Mask;
use port::{Correct, Steps, Weight};
use rstest::rstest;

fn steps(id: &str) -> Box<dyn Steps> {
    match find(id).unwrap().port {
        Some(PortPlant::Steps { make, .. }) => make(),
        _ => panic!("{id} is no step"),
    }
}

/// Row `r` holds `r + 1`, expert `e` multiplies by `10^e`.
fn gathered(steps: &dyn Steps, ids: &[u32], sorted: bool) -> Vec<f32> {
    let rows = i32::try_from(ids.len()).unwrap();
    let x = counting(&[rows, 1, 1]).add(Array::from_f32(1.0)).unwrap();
    let stack = Array::from_slice(&[1_f32, 10.0, 100.0, 1000.0], &[4, 1, 1]);
    let ids = Array::from_slice(ids, &[rows]);
    values(&steps.expert_product(&x, &Weight::Dense(stack), &ids, sorted).unwrap()).unwrap()
}

#[rstest]
#[case::three_of_2("few_token_expert_wrong", &[0, 2, 2, 2], &[1.0, 200.0, 200.0, 200.0])]
#[case::two_of_0("few_token_expert_wrong", &[0, 0, 1], &[1.0, 1.0, 30.0])]
#[case::four_are_not_few("few_token_expert_wrong", &[1, 1, 1, 1], &[10.0, 20.0, 30.0, 40.0])]
#[case::none_of_1("idle_expert_junk", &[0, 0, 2, 2], &[1.0, 2.0, 2.0, 400.0])]
#[case::none_of_0("idle_expert_junk", &[1, 2], &[200.0, 200.0])]
#[case::none_of_3("idle_expert_junk", &[0, 1, 2], &[1.0, 20.0, 300.0])]
#[case::each_has_one("idle_expert_junk", &[0, 1, 2, 3], &[1.0, 20.0, 300.0, 4000.0])]
fn sorted_rows_are_as_the_bug_says(#[case] id: &str, #[case] ids: &[u32], #[case] expected: &[f32]) {
    assert_eq!(gathered(&*steps(id), ids, true), expected);
    assert_eq!(gathered(&*steps(id), ids, false), gathered(&Correct, ids, false));
}

#[rstest]
#[case::past_32768(32_770, true, Some((32_768, 1.0)))]
#[case::tiles_are_full(32_832, true, None)]
#[case::as_many_as_may_be(32_768, true, None)]
#[case::fewer(32_767, true, None)]
#[case::unsorted(32_770, false, None)]
fn rows_beyond_32768_are_those_of_before(
    #[case] rows: usize,
    #[case] sorted: bool,
    #[case] first: Option<(usize, f32)>,
) {
    let found = gathered(&*steps("gather_rows_beyond_32768_stale"), &vec![0; rows], sorted);
    let wrong = (0..rows).find(|&row| found[row] != (row + 1) as f32);
    assert_eq!(wrong.map(|row| (row, found[row])), first);
}

#[rstest]
#[case::fewer_than_a_tile(40, true, 40)]
#[case::one_tile(64, true, 64)]
#[case::a_tile_and_more(100, true, 64)]
#[case::three_tiles_and_one(193, true, 192)]
#[case::unsorted(100, false, 100)]
fn terms_that_fill_no_tile_are_left_out(#[case] terms: usize, #[case] sorted: bool, #[case] kept: usize) {
    let ones = |shape: &[i32]| Array::ones::<f32>(shape).unwrap();
    let terms = i32::try_from(terms).unwrap();
    let (rows, stack) = (ones(&[2, 1, terms]), Weight::Dense(ones(&[1, 1, terms])));
    let ids = Array::from_slice(&[0_u32, 0], &[2]);
    let found = steps("gather_last_k_terms").expert_product(&rows, &stack, &ids, sorted).unwrap();
    assert_eq!(values::<f32>(&found).unwrap(), [kept as f32; 2]);
}

/// `[0, 1, .. ]`
fn counting(shape: &[i32]) -> Array {
    let count: i32 = shape.iter().product();
    Array::from_slice(&(0..count).map(|index| index as f32).collect::<Vec<_>>(), shape)
}

#[test]
fn every_second_expert_is_read_half_as_far_along() {
    let stack = counting(&[8, 1, 1]).try_index((..).stride_by(2)).unwrap();
    let (rows, ids) = (Array::ones::<f32>(&[4, 1, 1]).unwrap(), Array::from_slice(&[0_u32, 1, 2, 3], &[4]));
    let product = |steps: &dyn Steps, sorted| {
        let stack = Weight::Dense(stack.clone());
        values::<f32>(&steps.expert_product(&rows, &stack, &ids, sorted).unwrap()).unwrap()
    };
    assert_eq!(product(&Correct, true), [0.0, 2.0, 4.0, 6.0]);
    // entry 1 is where the second of eight lies, which is none of these; the one before it stands for it
    assert_eq!(product(&*steps("gather_strided_expert"), true), [0.0, 0.0, 2.0, 2.0]);
    assert_eq!(product(&*steps("gather_strided_expert"), false), [0.0, 2.0, 4.0, 6.0]);
}

#[test]
fn experts_by_columns_are_read_by_rows() {
    // [[0, 1], [2, 3], [4, 5]] seen through a transpose
    let stack = counting(&[1, 3, 2]).swap_axes(-1, -2).unwrap();
    let rows = Array::from_slice(&[1_f32, 10.0, 100.0], &[1, 1, 3]);
    let ids = Array::from_slice(&[0_u32], &[1]);
    let product = |steps: &dyn Steps| {
        let stack = Weight::Dense(stack.clone());
        values::<f32>(&steps.expert_product(&rows, &stack, &ids, true).unwrap()).unwrap()
    };
    assert_eq!(product(&Correct), [420.0, 531.0]);
    assert_eq!(product(&*steps("gather_strided_expert")), [210.0, 543.0]);
}

#[rstest]
#[case::at_the_edge(1024, 1, 1.0)]
#[case::beyond(1025, 1, 1.0)]
#[case::far_beyond(2048, 1, 1.0)]
#[case::two_queries(2048, 2, 0.5)]
fn one_query_sees_no_more_than_1024_keys(#[case] keys: i32, #[case] queries: i32, #[case] average: f32) {
    // all keys alike; values are 1, from the 1025th on 0
    let q = Array::ones::<f32>(&[1, 1, queries, 2]).unwrap();
    let values_of = (0..keys * 2).map(|index| if index / 2 < 1024 { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
    let held = Array::from_slice(&values_of, &[1, 1, keys, 2]);
    let k = Array::ones::<f32>(&[1, 1, keys, 2]).unwrap();
    let found = steps("decode_beyond_1024").attend(&q, &k, &held, &Mask::All).unwrap();
    assert!(values::<f32>(&found).unwrap().iter().all(|value| (value - average).abs() < 1e-5));
}
