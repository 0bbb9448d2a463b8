//! Bugs of single steps on a few numbers, against formulas worked here.
mod support;

use mlx_rs::Array;
use mutants::find;
use port::attention::Rope;
use port::mask::Mask;
use port::weights::ExpertWeights;
use port::{Correct, Steps};
use rstest::rstest;
use spec::{LayerId, ModelConfig};
use support::{WINDOW, config, port_steps};

fn steps(id: &str) -> Box<dyn Steps> {
    port_steps(find(id).unwrap()).unwrap()
}

fn array(values: &[f32], shape: &[i32]) -> Array {
    Array::from_slice(values, shape)
}

/// Numbers in -1..1, `[1, heads, tokens, 16]`.
fn heads(heads: i32, tokens: i32) -> Array {
    let value = |i: i32| ((i * 131 + 7) % 257) as f32 / 128.0 - 1.0;
    array(&(0..heads * tokens * 16).map(value).collect::<Vec<_>>(), &[1, heads, tokens, 16])
}

fn values(array: &Array) -> Vec<f32> {
    port::engine::values(array).unwrap()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[track_caller]
fn check(found: &Array, expected: &[f64]) {
    let found = values(found);
    assert_eq!(found.len(), expected.len());
    let close = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() <= 2e-6 * b.abs().max(1e-3);
    assert!(found.iter().zip(expected).all(close), "{found:?}\n{expected:?}");
}

#[test]
fn the_row_after_the_last_is_the_first() {
    let table = array(&[0.0, 1.0, 2.0, 3.0, 4.0], &[5, 1]);
    let ids = Array::from_slice(&[0_u32, 3, 4], &[1, 3]);
    check(&steps("embedding_row_shifted").embed(&table.into(), &ids).unwrap(), &[1.0, 4.0, 0.0]);
}

#[rstest]
#[case("norm_eps_x10", 1e-6, 1e-5)]
#[case("norm_eps_floor_1e4", 1e-6, 1e-4)]
#[case::above_the_floor("norm_eps_floor_1e4", 1e-3, 1e-3)]
#[case::times_the_square_of_the_largest("norm_eps_after_rescale", 1e-2, 1e-2 * 0.04 * 0.04)]
fn a_norm_has_the_epsilon_that_it_says(#[case] id: &str, #[case] eps: f32, #[case] counts: f64) {
    let (x, w) = ([0.01, -0.02, 0.03, -0.04], [1.0, 2.0, 3.0, -1.0]);
    let found = steps(id).norm(&array(&x, &[1, 1, 4]), &array(&w, &[4]), eps).unwrap();
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 4.0;
    let normed = |(x, w): (&f32, &f32)| f64::from(*w) * f64::from(*x) / (mean + counts).sqrt();
    check(&found, &x.iter().zip(&w).map(normed).collect::<Vec<_>>());
}

#[test]
fn a_rescaled_row_of_zeros_is_one_of_zeros() {
    let zeros = array(&[0.0; 4], &[1, 1, 4]);
    let found = steps("norm_eps_after_rescale").norm(&zeros, &array(&[1.0; 4], &[4]), 1e-6).unwrap();
    assert_eq!(values(&found), [0.0; 4]);
}

#[rstest]
#[case::one_mean_for_both_heads("qk_norm_over_all_heads", 1.0)]
#[case::none("qk_norm_missing", 0.0)]
fn heads_are_normed_as_it_says(#[case] id: &str, #[case] normed: f64) {
    // one token, two heads of two values; their mean square is (9 + 16 + 1 + 4) / 4
    let (x, w) = ([3.0, 4.0, 1.0, 2.0], [10.0, 0.5, 10.0, 0.5]);
    let (flat, w2) = (array(&x, &[1, 1, 2, 2]), array(&w[..2], &[2]));
    let (found, placed) = steps(id).norm_then_rotate(&flat, &w2, 0.5, None).unwrap();
    let by = |w: f32| if normed == 1.0 { f64::from(w) / 8_f64.sqrt() } else { 1.0 };
    let expected: Vec<f64> = x.iter().zip(&w).map(|(x, w)| f64::from(*x) * by(*w)).collect();
    check(&found, &expected);
    check(&placed, &expected);
}

#[rstest]
#[case("qk_norm_over_all_heads")]
#[case("qk_norm_missing")]
fn heads_turn_after_such_a_norm(#[case] id: &str) {
    let (x, weight) = (heads(3, 5).swap_axes(1, 2).unwrap(), array(&[0.7; 16], &[16]));
    let periods = Correct.rope_periods(&config());
    let rope = Rope { periods: &periods, offset: 4 };
    let (normed, placed) = steps(id).norm_then_rotate(&x, &weight, 1e-6, Some(rope)).unwrap();
    let turned = Correct.rotate(&normed.swap_axes(1, 2).unwrap(), rope).unwrap();
    assert_eq!(values(&placed), values(&turned));
}

#[rstest]
#[case("rope_offset_doubled", 0, 0)]
#[case("rope_offset_doubled", 7, 14)]
#[case("rope_restart_per_chunk", 7, 0)]
fn a_call_goes_on_at(#[case] id: &str, #[case] cached: usize, #[case] position: usize) {
    assert_eq!(steps(id).rope_offset(cached), position);
}

#[rstest]
#[case::queries(8, 15)]
#[case::keys(2, 10)]
fn queries_alone_turn_from_the_end_of_the_call(#[case] count: i32, #[case] by: usize) {
    let (wrong, x) = (steps("rope_query_advanced"), heads(count, 5));
    let periods = wrong.rope_periods(&config());
    let turned =
        |steps: &dyn Steps, offset| values(&steps.rotate(&x, Rope { periods: &periods, offset }).unwrap());
    assert_eq!(turned(&*wrong, 10), turned(&Correct, by));
}

#[test]
fn the_retained_offset_stops_one_before_the_window() {
    let steps = steps("rope_offset_retained");
    let (mut sliding, mut full) = (steps.cache(Some(7)), steps.cache(None));
    for (tokens, kept, all) in [(4, 4, 4), (2, 6, 6), (1, 6, 7), (5, 6, 12)] {
        let x = heads(2, tokens);
        let (keys, _) = sliding.update(&x, &x).unwrap();
        full.update(&x, &x).unwrap();
        assert_eq!((sliding.offset(), full.offset()), (kept, all));
        // the keys themselves are right: W - 1 of before at most, and the call's own
        let seen = if tokens == 1 { all.min(7) } else { (all - tokens as usize).min(6) + tokens as usize };
        assert_eq!(keys.dim(2) as usize, seen);
    }
}

/// How many keys a call shows its queries, after calls of these lengths.
#[rstest]
// 6 of before and 3; left with 7; in decode a window of its own keys
#[case("cache_trimmed_for_one_token", &[9, 3, 8, 1], [9, 7, 8, 7])]
#[case("decode_window_long", &[9, 3, 1, 1], [9, 9, 8, 8])]
// the ring is cut to 7, then written from slot 0 on
#[case("ring_slots_as_positions", &[9, 1, 1, 1], [9, 1, 2, 3])]
#[case::before_the_ring_is_full("ring_slots_as_positions", &[6, 1, 1, 1], [6, 7, 1, 2])]
fn a_call_sees_this_many_keys(#[case] id: &str, #[case] calls: &[i32], #[case] expected: [i32; 4]) {
    let mut cache = steps(id).cache(Some(7));
    let seen: Vec<i32> = calls
        .iter()
        .map(|&tokens| {
            let x = heads(2, tokens);
            let (keys, values) = cache.update(&x, &x).unwrap();
            assert_eq!(keys.shape(), values.shape());
            keys.dim(2)
        })
        .collect();
    assert_eq!(seen, expected);
}

#[rstest]
#[case("window_one_short", [Some(WINDOW - 1), None])]
#[case("window_one_long", [Some(WINDOW + 1), None])]
#[case("sliding_sees_everything", [None, None])]
#[case("full_layers_windowed", [Some(WINDOW), Some(WINDOW)])]
fn a_layers_window_is(#[case] id: &str, #[case] expected: [Option<usize>; 2]) {
    let (sliding, full) = (LayerId(0), LayerId(4));
    assert_eq!([sliding, full].map(|layer| steps(id).window(&config(), layer)), expected);
}

/// Values of a head are all alike, so that attention gives them back whatever the scores.
#[test]
fn tiled_heads_take_turns() {
    let (q, keys) = (heads(6, 3), heads(2, 3));
    let marked: Vec<f32> = (0..2 * 3 * 16).map(|i| if i < 48 { 1.0 } else { 2.0 }).collect();
    let marked = array(&marked, &[1, 2, 3, 16]);
    let found = steps("kv_heads_tiled").attend(&q, &keys, &marked, &Mask::Causal).unwrap();
    let by_head: Vec<f64> = values(&found).chunks(48).map(|head| f64::from(head[0])).collect();
    check(
        &array(&by_head.iter().map(|&x| x as f32).collect::<Vec<_>>(), &[6]),
        &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0],
    );
}

#[rstest]
#[case::decode(1, true)]
#[case::prefill(2, false)]
fn one_token_takes_keys_for_values(#[case] tokens: i32, #[case] exchanged: bool) {
    let (q, ones) = (heads(8, tokens), array(&[1.0; 2 * 2 * 16], &[1, 2, 2, 16]));
    let twos = array(&[2.0; 2 * 2 * 16], &[1, 2, 2, 16]);
    let found = steps("kv_exchanged_in_decode").attend(&q, &ones, &twos, &Mask::All).unwrap();
    let expected = if exchanged { 1.0 } else { 2.0 };
    check(&found, &vec![expected; 8 * tokens as usize * 16]);
}

const LOGITS: [f32; 4] = [0.5, -1.0, 2.0, 0.25];
const IDS: [u32; 2] = [2, 1];

fn weights(id: &str, config: &ModelConfig) -> Array {
    let (logits, bias) = (array(&LOGITS, &[1, 1, 4]), array(&[0.0, 3.0, -1.0, 0.5], &[4]));
    steps(id).topk_weights(&logits, &bias, &Array::from_slice(&IDS, &[1, 1, 2]), config).unwrap()
}

#[rstest]
#[case::sigmoids_of_logit_and_bias("biased_weights", [sigmoid(1.0), sigmoid(2.0)])]
#[case("raw_logit_weights", [2.0, -1.0])]
#[case("one_expert_fewer", [sigmoid(2.0), 0.0])]
#[case("score_on_expert_input", [sigmoid(2.0), sigmoid(-1.0)])]
#[case("route_scale_missing", [sigmoid(2.0) / 2.5, sigmoid(-1.0) / 2.5])]
#[case("route_scale_squared", [sigmoid(2.0) * 2.5, sigmoid(-1.0) * 2.5])]
fn weights_at_a_scale_of_2_5_are(#[case] id: &str, #[case] expected: [f64; 2]) {
    let config = ModelConfig { route_scale: 2.5, ..config() };
    check(&weights(id, &config), &expected.map(|weight| 2.5 * weight));
}

#[rstest]
#[case(false)]
#[case(true)]
fn softmax_weights_are_shares_of_all_experts(#[case] renormalise_topk: bool) {
    let config = ModelConfig { renormalise_topk, ..config() };
    let powers = LOGITS.map(|logit| f64::from(logit).exp());
    let sum = if renormalise_topk { powers[1] + powers[2] } else { powers.iter().sum() };
    check(&weights("softmax_weights", &config), &[powers[2] / sum, powers[1] / sum]);
}

#[test]
fn the_first_choice_is_made_twice() {
    let (logits, bias) = (array(&LOGITS, &[1, 1, 4]), array(&[0.0; 4], &[4]));
    let ids = steps("duplicate_expert").select(&logits, &bias, 3).unwrap();
    assert_eq!(port::engine::values::<u32>(&ids).unwrap(), [2, 0, 2]);
}

/// The identity, so that logits are the matrix.
fn identity(width: usize) -> Array {
    let one = |i: usize| if i.is_multiple_of(width + 1) { 1.0 } else { 0.0 };
    array(&(0..width * width).map(one).collect::<Vec<_>>(), &[1, width as i32, width as i32])
}

#[test]
fn a_router_of_4_bits_has_16_equal_steps_in_each_group() {
    // two groups of 32: a ramp from -1 to 1, whose steps are 2/15, and a constant
    let ramp = |i: usize| if i < 32 { i as f32 / 15.5 - 1.0 } else { 0.375 };
    let gate: Vec<f32> = (0..64).map(ramp).collect();
    let found = steps("router_weights_4bit").router_logits(&identity(64), &array(&gate, &[1, 64])).unwrap();
    let code = |value: f32| ((f64::from(value) + 1.0) * 7.5).round();
    let expected = |(i, &value): (usize, &f32)| if i < 32 { code(value) / 7.5 - 1.0 } else { 0.375 };
    check(&found, &gate.iter().enumerate().map(expected).collect::<Vec<_>>());
}

#[test]
fn the_renormed_input_has_a_mean_square_of_1() {
    let x = [3.0, -4.0, 1.0, 2.0];
    let found = steps("router_reads_renormed")
        .router_logits(&array(&x, &[1, 1, 4]), &identity(4).reshape(&[4, 4]).unwrap())
        .unwrap();
    check(&found, &x.map(|x| f64::from(x) / (7.5 + 1e-6_f64).sqrt()));
}

/// One expert for each diagonal of its gate matrix; up is twice that the other way round, down does nothing.
fn experts(gates: &[[f32; 2]]) -> ExpertWeights {
    let count = gates.len() as i32;
    let stack = |matrix: &dyn Fn(&[f32; 2]) -> [f32; 4]| {
        array(&gates.iter().flat_map(matrix).collect::<Vec<_>>(), &[count, 2, 2])
    };
    ExpertWeights {
        gate: stack(&|[a, b]| [*a, 0.0, 0.0, *b]).into(),
        up: stack(&|[a, b]| [2.0 * b, 0.0, 0.0, 2.0 * a]).into(),
        down: stack(&|_| [1.0, 0.0, 0.0, 1.0]).into(),
    }
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

#[test]
fn fused_rows_read_in_turns_pair_each_half_with_itself() {
    let (weights, x) = (experts(&[[1.0, 3.0]]), array(&[0.5, -0.25], &[1, 1, 2]));
    let found =
        steps("gate_up_interleaved").routed(&weights, &x, &Array::from_slice(&[0_u32], &[1, 1, 1])).unwrap();
    // fused rows: gate 1 x0, 3 x1; up 6 x0, 2 x1. In turns: gate takes the first of each half, up the second
    let rows = [0.5, -0.75, 3.0, -0.5];
    check(&found.outputs, &[silu(rows[0]) * rows[1], silu(rows[2]) * rows[3]]);
}

#[rstest]
#[case("score_on_expert_input", [1.0, 1.0])]
#[case("score_on_both_sides", [sigmoid(2.0), sigmoid(-1.0)])]
fn an_expert_takes_its_weighted_input(#[case] id: &str, #[case] after: [f64; 2]) {
    let wrong = steps(id);
    let gates = [[9.0, 9.0], [1.0, 3.0], [-1.0, 0.5], [9.0, 9.0]];
    let (x, ids) = ([0.5, -0.25], Array::from_slice(&IDS, &[1, 1, 2]));
    let logits = array(&LOGITS, &[1, 1, 4]);
    let weights = wrong.topk_weights(&logits, &logits, &ids, &config()).unwrap();
    let routed = wrong.routed(&experts(&gates), &array(&x, &[1, 1, 2]), &ids).unwrap();
    assert_eq!(port::engine::values::<u32>(&routed.ids).unwrap(), IDS);
    let output = |id: usize, column: usize| {
        let x = f64::from(x[column]) * sigmoid(f64::from(LOGITS[id]));
        let (gate, up) = (f64::from(gates[id][column]), f64::from(gates[id][1 - column]));
        silu(gate * x) * 2.0 * up * x
    };
    check(&routed.outputs, &[output(2, 0), output(2, 1), output(1, 0), output(1, 1)]);
    let sum = |column| after[0] * output(2, column) + after[1] * output(1, column);
    check(&wrong.combine(&routed.outputs, &weights).unwrap(), &[sum(0), sum(1)]);
}

#[test]
fn gelu_is_x_times_the_normal_distribution_function() {
    // x * Phi(x), Phi from a table
    let expected = [-0.158_655_253_931_457_05, 0.345_731_230_637_006_56, 0.0, 1.954_499_736_103_641_6];
    let (gate, up) = (array(&[-1.0, 0.5, 0.0, 2.0], &[1, 1, 4]), array(&[1.0, 2.0, 3.0, -1.0], &[1, 1, 4]));
    let found = steps("gelu_for_silu").activate(&gate, &up).unwrap();
    check(&found, &[expected[0], 2.0 * expected[1], 0.0, -expected[3]]);
}

#[test]
fn the_missing_shared_expert_adds_nothing() {
    let (routed, shared) = (array(&[1.0, -2.0], &[1, 1, 2]), array(&[5.0, 7.0], &[1, 1, 2]));
    check(&steps("shared_missing").moe_sum(&routed, &shared).unwrap(), &[1.0, -2.0]);
}
