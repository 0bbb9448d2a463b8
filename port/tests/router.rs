//! Router logits, selection, weights and the head, value by value.
mod support;

use half::bf16;
use mlx_rs::Array;
use port::engine::{dim, values};
use port::{Correct, Port, Steps};
use rstest::rstest;
use spec::{Precision, Routing, Schedule, Side, Site};
use support::{forward, kjv, kjv_text, run};

#[rstest]
#[case::all_equal(&[2.0; 9], &[0, 1, 2, 3])]
#[case::a_tie_at_the_boundary(&[1.0, 5.0, 3.0, 0.0, 3.0, 7.0, 3.0], &[5, 1, 2, 4])]
#[case::negative(&[-1.0, -3.0, -2.0, -2.0, -0.5, -2.0], &[4, 0, 2, 3])]
#[case::ascending(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[5, 4, 3, 2])]
fn exact_ties_take_the_lower_id(#[case] logits: &[f32], #[case] expected: &[u32]) {
    let zero = Array::from_slice(&vec![0.0f32; logits.len()], &[dim(logits.len())]);
    let logits = Array::from_slice(logits, &[1, 1, dim(logits.len())]);
    let ids = Correct.select(&logits, &zero, 4).unwrap();
    assert_eq!(values::<u32>(&ids).unwrap(), expected);
}

#[test]
fn selection_is_by_descending_logit_plus_bias_then_ascending_id() {
    let (tokens, experts) = (2000, 384);
    // few distinct values, so that most rows tie at the boundary
    let coarse = |x: f32| (x * 20.0).round() / 4.0;
    let mut random = support::Random(2);
    let logits: Vec<f32> = random.numbers(tokens * experts).into_iter().map(coarse).collect();
    let bias: Vec<f32> = random.numbers(experts).into_iter().map(coarse).collect();
    let ids = Correct.select(
        &Array::from_slice(&logits, &[1, dim(tokens), dim(experts)]),
        &Array::from_slice(&bias, &[dim(experts)]),
        6,
    );
    let ids = values::<u32>(&ids.unwrap()).unwrap();
    for (token, ids) in ids.chunks_exact(6).enumerate() {
        let score = |id: usize| logits[token * experts + id] + bias[id];
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        assert!(ids.iter().map(|&id| id as usize).eq(order[..6].iter().copied()), "token {token}");
    }
}

#[test]
fn renormalised_weights_are_sigmoids_divided_by_their_sum() {
    let dir = tempfile::tempdir().unwrap();
    support::write(dir.path(), &support::tiny());
    let port = Port::load(dir.path(), Precision::F32).unwrap();
    assert!(port.config().renormalise_topk);
    let text = spec::Case::new("t", (0..9).map(spec::TokenId).collect()).unwrap();
    let (executed, rows) = forward(&port, run(&text, Schedule::chunks_of(4), Routing::Free, Precision::F32));
    for layer in 0..2 {
        let logits = rows.matrix(Some(layer), Site::RouterLogits, 12);
        let weights = rows.matrix(Some(layer), Site::TopkWeights, 3);
        for token in 0..9 {
            let row = executed.choices.at(token, spec::LayerId(layer));
            let sigmoid = |id: &spec::ExpertId| 1.0 / (1.0 + (-f64::from(logits[[token, id.index()]])).exp());
            let sum: f64 = row.iter().map(sigmoid).sum();
            for (slot, id) in row.iter().enumerate() {
                assert!((f64::from(weights[[token, slot]]) - sigmoid(id) / sum).abs() <= 1e-6);
            }
        }
    }
}

/// The share of values that bf16 holds exactly; one f32 in 65,536 does by chance.
fn bf16_share(values: &[f32]) -> f64 {
    let exact = values.iter().filter(|&&x| bf16::from_f32(x).to_f32() == x).count();
    exact as f64 / values.len() as f64
}

#[test]
fn router_logits_weights_and_logits_of_a_bf16_run_are_not_rounded_to_bf16() {
    let (port, text) = (kjv(Precision::Bf16), kjv_text(256));
    let (_, rows) = forward(&port, run(&text, Schedule::chunks_of(256), Routing::Free, Precision::Bf16));
    assert_eq!(bf16_share(rows.at(4, Site::MoeNorm)), 1.0);
    assert_eq!(bf16_share(rows.at(4, Site::LayerOut)), 1.0);
    for layer in 0..10 {
        assert!(bf16_share(rows.at(layer, Site::RouterLogits)) <= 1e-3, "layer {layer}");
        assert!(bf16_share(rows.at(layer, Site::TopkWeights)) <= 1e-2, "layer {layer}");
    }
    assert!(bf16_share(rows.outer(Site::Logits)) <= 1e-3);
}
