//! Sorted gather against one product per row in f64.
mod support;

use mlx_rs::{Array, Dtype};
use port::engine::{dim, values};
use port::weights::ExpertWeights;
use port::{Correct, Steps};
use rstest::rstest;
use support::{Random, relative_l2};

const EXPERTS: usize = 7;
const K: usize = 3;
const HIDDEN: usize = 10;
const WIDTH: usize = 6;

/// Ids whose expert 6 gets no token and expert 5 exactly two, in orders that are not sorted.
fn ids(tokens: usize) -> Vec<u32> {
    let row = |token: usize| {
        let first = token % 5;
        let last = if token == 1 || token == tokens - 1 { 5 } else { (first + 2) % 5 };
        [(first + 1) % 5, last, first].map(|id| id as u32)
    };
    (0..tokens).flat_map(row).collect()
}

fn stack(random: &mut Random, rows: usize, columns: usize) -> (Array, Vec<f32>) {
    let numbers = random.numbers(EXPERTS * rows * columns);
    (Array::from_slice(&numbers, &[dim(EXPERTS), dim(rows), dim(columns)]), numbers)
}

/// `weights[expert] @ x` in f64.
fn product(weights: &[f32], expert: usize, rows: usize, x: &[f64]) -> Vec<f64> {
    let matrix = &weights[expert * rows * x.len()..][..rows * x.len()];
    let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
    matrix.chunks_exact(x.len()).map(dot).collect()
}

#[rstest]
#[case::f32_135_rows(Dtype::Float32, 45, 1e-6)]
#[case::f32_one_token(Dtype::Float32, 1, 1e-6)]
#[case::f32_33000_rows(Dtype::Float32, 11_000, 1e-6)]
// five roundings to bf16 (2^-9 each) along the way
#[case::bf16_135_rows(Dtype::Bfloat16, 45, 1e-2)]
fn sorted_gather_gives_each_row_its_own_experts_product(
    #[case] dtype: Dtype,
    #[case] tokens: usize,
    #[case] relative_l2_max: f64,
) {
    let mut random = Random(8);
    let (gate, gate_numbers) = stack(&mut random, WIDTH, HIDDEN);
    let (up, up_numbers) = stack(&mut random, WIDTH, HIDDEN);
    let (down, down_numbers) = stack(&mut random, HIDDEN, WIDTH);
    let weights = ExpertWeights { gate: gate.into(), up: up.into(), down: down.into() };
    let x = random.numbers(tokens * HIDDEN);
    let ids = ids(tokens);
    if tokens > 1 {
        let count = |expert| ids.iter().filter(|&&id| id == expert).count();
        assert_eq!((count(6), count(5)), (0, 2));
        assert_ne!(ids.len() % 64, 0);
    }

    let array = Array::from_slice(&x, &[1, dim(tokens), dim(HIDDEN)]).as_dtype(dtype).unwrap();
    let ids_array = Array::from_slice(&ids, &[1, dim(tokens), dim(K)]);
    let routed = Correct.routed(&weights, &array, &ids_array).unwrap();
    assert_eq!(routed.outputs.dtype(), dtype);
    assert_eq!(routed.outputs.shape(), [1, dim(tokens), dim(K), dim(HIDDEN)]);
    assert_eq!(values::<u32>(&routed.ids).unwrap(), ids);

    let outputs = values::<f32>(&routed.outputs.as_dtype(Dtype::Float32).unwrap()).unwrap();
    for (row, output) in outputs.chunks_exact(HIDDEN).enumerate() {
        let x = support::wide(&x[row / K * HIDDEN..][..HIDDEN]);
        let expert = ids[row] as usize;
        let gate = product(&gate_numbers, expert, WIDTH, &x);
        let up = product(&up_numbers, expert, WIDTH, &x);
        let active: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        let expected = product(&down_numbers, expert, HIDDEN, &active);
        let error = relative_l2(output, &expected);
        // a row may nearly cancel: ten times the bound for one row alone
        assert!(error <= 10.0 * relative_l2_max, "row {row}, expert {expert}: {error:e}");
    }
}

#[test]
fn the_weighted_sum_follows_the_slots() {
    let outputs = Array::from_slice(&[1.0f32, 10.0, 2.0, 20.0, 4.0, 40.0], &[1, 1, 3, 2]);
    let weights = Array::from_slice(&[0.5f32, 0.25, 0.125], &[1, 1, 3]);
    let sum = Correct.combine(&outputs, &weights).unwrap();
    assert_eq!(values::<f32>(&sum).unwrap(), [1.5, 15.0]);
}
