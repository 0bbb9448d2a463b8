//! Forced ids: they are what runs, and nothing else changes.
mod support;

use rstest::rstest;
use spec::{Choices, Precision, Routing, Schedule, Side, Site};
use support::{Rows, forward, kjv, kjv_text, layers, run};

const TOKENS: usize = 200;

#[rstest]
fn the_ports_own_choices_forced_reproduce_its_free_run_bit_for_bit(
    #[values(Precision::F32, Precision::Bf16)] precision: Precision,
) {
    let (port, text) = (kjv(precision), kjv_text(TOKENS));
    let schedule = Schedule::chunks_of(70).decoding_from(190);
    let (free, free_rows) = forward(&port, run(&text, schedule, Routing::Free, precision));
    let routing = Routing::Forced(&free.choices);
    let (forced, forced_rows) = forward(&port, run(&text, schedule, routing, precision));

    // 26 sites in each of ten layers and three outside
    assert_eq!(free_rows.rows.len(), 26 * 10 + 3);
    assert_eq!(free_rows.differing(&forced_rows), []);
    assert_eq!(free.choices, forced.choices);
    assert_eq!((free.forced_rows, forced.forced_rows), (0, TOKENS * 10));
    assert_eq!((&free.shadow, &forced.shadow), (&free.choices, &free.choices));
    let calls = [vec![0; 70], vec![1; 70], vec![2; 50], (3..13).collect()].concat();
    assert_eq!(free.call, calls);
}

#[test]
fn forced_ids_run_in_their_own_order_with_the_ports_own_weights_beside_an_unmoved_shadow() {
    let (port, text) = (kjv(Precision::F32), kjv_text(TOKENS));
    let schedule = Schedule::chunks_of(64);
    let (free, _) = forward(&port, run(&text, schedule, Routing::Free, Precision::F32));
    // rotated by one slot, and the last expert replaced by one that was not chosen
    let mut other = Choices::unset(TOKENS, 10, 4);
    for token in 0..TOKENS {
        for layer in port.config().layer_ids() {
            let mut row = free.choices.at(token, layer).to_vec();
            row[3] = (0..32).map(spec::ExpertId).find(|id| !row.contains(id)).unwrap();
            row.rotate_left(1);
            other.set(token, layer, &row);
        }
    }
    let (forced, rows) = forward(&port, run(&text, schedule, Routing::Forced(&other), Precision::F32));
    assert_eq!(forced.choices, other);
    assert_ne!(forced.shadow, other);

    for layer in layers(port.config()) {
        let logits = rows.matrix(Some(layer), Site::RouterLogits, 32);
        let scores = rows.matrix(Some(layer), Site::SelectionScores, 32);
        let weights = rows.matrix(Some(layer), Site::TopkWeights, 4);
        for token in 0..TOKENS {
            let row = other.at(token, spec::LayerId(layer));
            for (slot, id) in row.iter().enumerate() {
                let expected = 1.0 / (1.0 + (-f64::from(logits[[token, id.index()]])).exp());
                let error = (f64::from(weights[[token, slot]]) - expected).abs() / expected;
                assert!(error <= 1e-6, "token {token}, layer {layer}, slot {slot}: {error:e}");
            }
            let mut order: Vec<usize> = (0..32).collect();
            order.sort_by(|&a, &b| scores[[token, b]].total_cmp(&scores[[token, a]]).then(a.cmp(&b)));
            let shadow: Vec<usize> =
                forced.shadow.at(token, spec::LayerId(layer)).iter().map(|id| id.index()).collect();
            assert_eq!(shadow, order[..4], "token {token}, layer {layer}");
        }
    }
}

#[test]
fn what_is_recorded_changes_no_bit() {
    let (port, text) = (kjv(Precision::Bf16), kjv_text(100));
    let one = run(&text, Schedule::chunks_of(64), Routing::Free, Precision::Bf16);
    let (executed, all) = forward(&port, one);
    let mut logits = Rows::of(&[Site::Logits]);
    assert_eq!(port.forward(&[one], &mut logits).unwrap(), std::slice::from_ref(&executed));
    assert_eq!(logits.rows.len(), 1);
    assert_eq!(logits.outer(Site::Logits), all.outer(Site::Logits));
    assert_eq!(port.forward(&[one], &mut spec::side::Nothing).unwrap(), [executed]);
}
