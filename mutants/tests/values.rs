//! What bugs of single steps make of the numbers, by formulas worked here.
mod support;

use half::{bf16, f16};
use mlx_rs::Array;
use mutants::find;
use ndarray::{Array2, Zip};
use port::attention::Rope;
use port::mask::Mask;
use port::{Correct, Steps};
use rstest::rstest;
use spec::{LayerId, Precision, Site};
use std::sync::LazyLock;
use support::{Feed, Rows, config, port, port_steps, relative_l2};

const LAYER: usize = 4;

fn steps(id: &str) -> Box<dyn Steps> {
    port_steps(find(id).unwrap()).unwrap()
}

/// Layer 4 and the head of a port without a bug, and what it was fed.
static RIGHT: LazyLock<(Feed, Rows)> = LazyLock::new(|| {
    let right = port(Precision::F32);
    let feed = Feed::of(&right, Precision::F32, &[LAYER]);
    let rows = feed.rows(&right);
    (feed, rows)
});

/// Layer 4 and the head without the bug and with it.
fn pair(id: &str) -> (&'static Rows, Rows) {
    let (feed, right) = &*RIGHT;
    (right, feed.rows(&port(Precision::F32).with_steps(steps(id))))
}

fn at(rows: &Rows, site: Site) -> &Array2<f32> {
    &rows[&(site.is_per_layer().then_some(LayerId(LAYER)), site)]
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

fn check_close(found: &Array2<f32>, expected: &Array2<f64>) {
    let distance = relative_l2(found, &expected.mapv(|x| x as f32));
    assert!(distance <= 1e-6, "{distance:e}");
}

#[rstest]
#[case("mup_embed_scale", Site::Embedding, 96_f64.sqrt())]
#[case("route_scale_2826", Site::TopkWeights, 2.826)]
#[case("shared_half", Site::Shared, 0.5)]
#[case("shared_scaled_twice", Site::Shared, 2.0)]
#[case("head_scaled_1_1", Site::Logits, 1.1)]
fn a_factor_is_as_large_as_it_says(#[case] id: &str, #[case] site: Site, #[case] factor: f64) {
    let (right, wrong) = pair(id);
    check_close(at(&wrong, site), &at(right, site).mapv(|x| f64::from(x) * factor));
}

#[rstest]
#[case("bf16_router_logits", Site::RouterLogits, |x| bf16::from_f32(x).to_f32())]
#[case("f16_router_logits", Site::RouterLogits, |x| f16::from_f32(x).to_f32())]
#[case("bf16_head_logits", Site::Logits, |x| bf16::from_f32(x).to_f32())]
#[case("bf16_routing_weights", Site::TopkWeights, |x| bf16::from_f32(x).to_f32())]
fn a_rounding_is_to_the_nearest(#[case] id: &str, #[case] site: Site, #[case] round: fn(f32) -> f32) {
    let (right, wrong) = pair(id);
    assert_eq!(at(&wrong, site), at(right, site).mapv(round));
}

#[test]
fn renormalised_weights_have_the_sum_1() {
    let (_, wrong) = pair("renorm_topk");
    for row in at(&wrong, Site::TopkWeights).rows() {
        assert!((row.sum() - 1.0).abs() <= 1e-6);
    }
}

#[test]
fn biased_weights_are_the_sigmoids_of_the_selection_scores() {
    let (right, wrong) = pair("biased_weights");
    let (choice, scores) = (at(right, Site::Choice), at(right, Site::SelectionScores));
    let weight = |(token, slot)| sigmoid(scores[[token, choice[[token, slot]] as usize]]);
    check_close(at(&wrong, Site::TopkWeights), &Array2::from_shape_fn(choice.dim(), weight));
}

#[rstest]
#[case("unbiased_select", |logit, _| f64::from(logit))]
#[case("sigmoid_bias_select", |logit, bias| sigmoid(logit) + f64::from(bias))]
fn selection_goes_by_what_it_says(#[case] id: &str, #[case] score: fn(f32, f32) -> f64) {
    let (_, wrong) = pair(id);
    let (logits, scores) = (at(&wrong, Site::RouterLogits), at(&wrong, Site::SelectionScores));
    for (token, chosen) in at(&wrong, Site::ShadowChoice).rows().into_iter().enumerate() {
        let score = |expert: usize| {
            let logit = logits[[token, expert]];
            score(logit, scores[[token, expert]] - logit)
        };
        let chosen: Vec<usize> = chosen.iter().map(|&id| id as usize).collect();
        let least = chosen.iter().map(|&id| score(id)).fold(f64::INFINITY, f64::min);
        let others = (0..logits.ncols()).filter(|id| !chosen.contains(id));
        let best = others.map(score).fold(f64::NEG_INFINITY, f64::max);
        assert!(least >= best - 1e-6, "token {token}: {least} and {best}");
    }
}

#[test]
fn the_swapped_activation_is_on_the_up_projection() {
    let (right, wrong) = pair("swiglu_swapped");
    let mut expected = Array2::zeros(at(right, Site::SharedUp).dim());
    Zip::from(&mut expected)
        .and(at(right, Site::SharedGate))
        .and(at(right, Site::SharedUp))
        .for_each(|expected, &gate, &up| *expected = f64::from(up) * sigmoid(up) * f64::from(gate));
    check_close(at(&wrong, Site::SharedAct), &expected);
}

/// Numbers in -1..1, `[1, heads, tokens, 16]`.
fn heads(heads: i32, tokens: i32) -> Array {
    let count = heads * tokens * 16;
    let values: Vec<f32> = (0..count).map(|i| ((i * 131 + 7) % 257) as f32 / 128.0 - 1.0).collect();
    Array::from_slice(&values, &[1, heads, tokens, 16])
}

fn values(array: &Array) -> Array2<f32> {
    let values = port::engine::values::<f32>(array).unwrap();
    Array2::from_shape_vec((1, values.len()), values).unwrap()
}

fn turned(steps: &dyn Steps, x: &Array, offset: usize) -> Array2<f32> {
    let periods = steps.rope_periods(&config());
    values(&steps.rotate(x, Rope { periods: &periods, offset }).unwrap())
}

#[rstest]
#[case(0, 0)]
#[case(255, 255)]
#[case(256, 256)]
#[case::tie_to_even(257, 256)]
#[case(258, 258)]
#[case::tie_to_even(259, 260)]
#[case::steps_of_four(1021, 1020)]
fn positions_beyond_256_are_rounded_to_bf16(#[case] position: usize, #[case] rounded: usize) {
    let (wrong, x) = (steps("rope_bf16_positions"), heads(3, 1));
    let distance = |other| relative_l2(&turned(&*wrong, &x, position), &turned(&Correct, &x, other));
    assert!(distance(rounded) <= 1e-6);
    assert_eq!(distance(position) > 1e-2, position != rounded);
}

#[test]
fn positions_of_one_call_are_rounded_one_by_one() {
    let (wrong, x) = (steps("rope_bf16_positions"), heads(1, 4));
    let rows = |all: Array2<f32>| all.into_shape_with_order((4, 16)).unwrap();
    let (found, right) = (rows(turned(&*wrong, &x, 254)), rows(turned(&Correct, &x, 254)));
    for (row, exact) in [true, true, true, false].into_iter().enumerate() {
        let same = found.row(row).iter().zip(right.row(row)).all(|(a, b)| (a - b).abs() <= 1e-6);
        assert_eq!(same, exact, "position {}", 254 + row);
    }
}

#[test]
fn frequencies_are_rounded_to_bf16() {
    // theta 10000, D 16: frequencies 10^(-j/2)
    let periods = values(&steps("rope_bf16_frequencies").rope_periods(&config()));
    for (j, &period) in periods.iter().enumerate() {
        let expected = bf16::from_f64(10_f64.powf(-(j as f64) / 2.0)).to_f64();
        assert!((1.0 / f64::from(period) / expected - 1.0).abs() <= 2e-7, "pair {j}");
    }
}

#[test]
fn the_frozen_position_is_that_of_the_first_decode_call_of_each_sequence() {
    let wrong = steps("decode_offset_frozen");
    let (chunk, token) = (heads(1, 5), heads(1, 1));
    // (call, its position, the position it is turned by): two sequences, the second without a prefill
    let calls = [(&chunk, 0, 0), (&chunk, 5, 5), (&token, 10, 10), (&token, 11, 10), (&token, 12, 10)];
    let second = [(&token, 0, 0), (&token, 1, 0), (&token, 2, 0), (&chunk, 0, 0), (&token, 5, 5)];
    for (x, position, by) in calls.into_iter().chain(second) {
        assert_eq!(turned(&*wrong, x, position), turned(&Correct, x, by), "position {position}");
    }
}

#[rstest]
#[case("attention_scale_one", 1.0)]
#[case::hidden_size_96_over_8_heads("attention_scale_hidden", 12_f32.powf(-0.5))]
fn scores_are_scaled_as_it_says(#[case] id: &str, #[case] scale: f32) {
    let wrong = steps(id);
    wrong.rope_periods(&config());
    let (q, keys, values_) = (heads(8, 5), heads(2, 5), heads(2, 5));
    let found = values(&wrong.attend(&q, &keys, &values_, &Mask::Causal).unwrap());
    // the right scale is 16^-0.5
    let scaled = q.multiply(Array::from_f32(scale * 4.0)).unwrap();
    let expected = values(&Correct.attend(&scaled, &keys, &values_, &Mask::Causal).unwrap());
    assert!(relative_l2(&found, &expected) <= 1e-6);
    assert!(
        relative_l2(&found, &values(&Correct.attend(&q, &keys, &values_, &Mask::Causal).unwrap())) > 1e-3
    );
}

/// What each query sees: the mask's rows as strings of 1 and 0.
fn seen(mask: Mask) -> Vec<String> {
    let Mask::Visible(array) = mask else { return vec![format!("{mask:?}")] };
    let columns = array.dim(1) as usize;
    let all = port::engine::values::<bool>(&array).unwrap();
    let line = |row: &[bool]| row.iter().map(|&seen| if seen { '1' } else { '0' }).collect();
    all.chunks(columns).map(line).collect()
}

#[rstest]
#[case::full("mask_top_left", None, 3, 5, "10000 11000 11100")]
#[case::window("mask_top_left", Some(2), 3, 5, "10000 11000 01100")]
#[case::empty_cache("mask_top_left", Some(2), 3, 3, "100 110 011")]
#[case::empty_cache_of_a_full_layer("mask_top_left", None, 3, 3, "Causal")]
#[case::one_token("mask_top_left", Some(2), 1, 5, "All")]
#[case::sinks_and_window("two_sink_tokens", Some(2), 3, 7, "1101100 1100110 1100011")]
#[case::sinks_are_not_ahead("two_sink_tokens", Some(2), 4, 4, "1000 1100 1110 1111")]
#[case::sinks_in_a_full_layer("two_sink_tokens", None, 3, 5, "Causal")]
fn a_mask_is(
    #[case] id: &str,
    #[case] window: Option<usize>,
    #[case] queries: usize,
    #[case] keys: usize,
    #[case] expected: &str,
) {
    let found = seen(steps(id).mask(window, queries, keys).unwrap());
    assert_eq!(found.join(" "), expected);
}
