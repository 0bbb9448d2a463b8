//! Caches and masks together: which positions each query sees, against the window as K12 writes it.
mod support;

use mlx_rs::Array;
use port::cache::{Cache, KvCache, RotatingCache};
use port::engine::{dim, values};
use port::mask::{Mask, mask};
use rstest::rstest;

const HEADS: usize = 2;
const WIDTH: usize = 3;

/// `[1, 2, T, 3]`, each number telling position, head and column: `sign * (position * 10 + head * 3 +
/// column + 1)`.
fn numbered(positions: std::ops::Range<usize>, sign: f32) -> Array {
    let number = |head: usize, position: usize, column: usize| {
        sign * (position * 10 + head * WIDTH + column + 1) as f32
    };
    let mut all = Vec::new();
    for head in 0..HEADS {
        for position in positions.clone() {
            all.extend((0..WIDTH).map(|column| number(head, position, column)));
        }
    }
    Array::from_slice(&all, &[1, dim(HEADS), dim(positions.len()), dim(WIDTH)])
}

/// The positions in a cache's answer, in slot order; every head and column must tell the same.
fn positions(array: &Array, sign: f32) -> Vec<usize> {
    let slots = array.dim(2) as usize;
    assert_eq!(array.shape(), [1, dim(HEADS), dim(slots), dim(WIDTH)]);
    let all = values::<f32>(array).unwrap();
    let position = |slot: usize| (sign * all[slot * WIDTH]) as usize / 10;
    for (i, value) in all.iter().enumerate() {
        let (head, slot, column) = (i / WIDTH / slots, i / WIDTH % slots, i % WIDTH);
        let expected = sign * (position(slot) * 10 + head * WIDTH + column + 1) as f32;
        assert_eq!(*value, expected, "head {head}, slot {slot}, column {column}");
    }
    (0..slots).map(position).collect()
}

/// The positions that each query of a call sees, ascending.
fn visible(window: Option<usize>, queries: usize, keys: &[usize]) -> Vec<Vec<usize>> {
    let mask = mask(window, queries, keys.len()).unwrap();
    let table = match &mask {
        Mask::Visible(table) => values::<bool>(table).unwrap(),
        _ => Vec::new(),
    };
    let sees = |query: usize, slot: usize| match &mask {
        Mask::All => true,
        // as MLX aligns it: the last query with the last key
        Mask::Causal => slot + queries <= query + keys.len(),
        Mask::Visible(_) => table[query * keys.len() + slot],
    };
    let seen = |query: usize| {
        let mut seen: Vec<usize> =
            (0..keys.len()).filter(|&slot| sees(query, slot)).map(|s| keys[s]).collect();
        seen.sort_unstable();
        seen
    };
    (0..queries).map(seen).collect()
}

/// Feeds calls of these lengths and checks every query of every call.
fn check(mut cache: Box<dyn Cache>, window: Option<usize>, calls: &[usize]) {
    let mut start = 0;
    for (number, &queries) in calls.iter().enumerate() {
        assert_eq!(cache.offset(), start);
        let new = start..start + queries;
        let (keys, values) = cache.update(&numbered(new.clone(), 1.0), &numbered(new.clone(), -1.0)).unwrap();
        let held = positions(&keys, 1.0);
        assert_eq!(held, positions(&values, -1.0), "call {number} of {calls:?}");
        if let Some(window) = window {
            assert!(held.len() < window + queries, "call {number} of {calls:?} holds {} keys", held.len());
        }
        for (query, seen) in new.zip(visible(window, queries, &held)) {
            let first = window.map_or(0, |window| (query + 1).saturating_sub(window));
            assert_eq!(
                seen,
                (first..=query).collect::<Vec<_>>(),
                "query {query}, call {number} of {calls:?}"
            );
        }
        start += queries;
    }
}

fn patterns() -> Vec<Vec<usize>> {
    let mut patterns = vec![
        vec![1; 40],
        vec![100],
        vec![40, 1, 1, 1, 1, 1, 1, 1, 1],
        vec![3, 1, 1, 40, 1, 2, 1, 1, 7, 1],
        [vec![1; 20], vec![2], vec![1; 20], vec![30], vec![1; 20], vec![5, 6]].concat(),
        [vec![7; 6], vec![1; 9]].concat(),
        vec![2; 30],
        [vec![32, 33, 34, 35], vec![1; 70], vec![33, 1, 32, 1, 34, 1]].concat(),
    ];
    // mixed lengths from a seed
    let mut random = support::Random(11);
    for _ in 0..12 {
        let length = |x: f32| if x < 0.0 { 1 } else { 1 + (x * x * 50.0) as usize };
        patterns.push(random.numbers(25).into_iter().map(length).collect());
    }
    patterns
}

#[rstest]
fn a_rotating_cache_shows_each_query_its_window(#[values(1, 2, 3, 5, 8, 33, 64)] window: usize) {
    for calls in patterns() {
        check(Box::new(RotatingCache::new(window)), Some(window), &calls);
    }
}

#[test]
fn window_of_513_includes_the_query() {
    let calls = [vec![600], vec![1; 530], vec![512, 1, 513, 1, 514, 1]].concat();
    check(Box::new(RotatingCache::new(513)), Some(513), &calls);
    // filled by decode alone, across a step of its buffer
    check(Box::new(RotatingCache::new(513)), Some(513), &[1; 1100]);
}

#[test]
fn a_full_cache_shows_each_query_everything_before_it() {
    for calls in patterns() {
        check(Box::new(KvCache::default()), None, &calls);
    }
    // across the steps by which it grows
    check(Box::new(KvCache::default()), None, &[255, 1, 1, 254, 1, 1, 600, 1]);
}

#[test]
fn decode_in_a_full_ring_keeps_one_buffer_of_one_window() {
    let mut cache = RotatingCache::new(5);
    for position in 0..50 {
        let (keys, _) = cache
            .update(&numbered(position..position + 1, 1.0), &numbered(position..position + 1, 1.0))
            .unwrap();
        keys.eval().unwrap();
        assert!(cache.arrays().iter().all(|array| array.dim(2) == 5));
    }
}

#[test]
fn attention_with_a_warm_cache_is_causal_from_the_last_key_backwards() {
    // two queries over five keys; values are one-hot, so that the output tells who was seen
    let ones = Array::from_slice(&[1.0f32; 10], &[1, 1, 2, 5]);
    let keys = Array::from_slice(&[0.0f32; 25], &[1, 1, 5, 5]);
    let hot: Vec<f32> = (0..25).map(|i| f32::from(u8::from(i % 6 == 0))).collect();
    let values_ = Array::from_slice(&hot, &[1, 1, 5, 5]);
    let out = port::Steps::attend(&port::Correct, &ones, &keys, &values_, &Mask::Causal).unwrap();
    let out = values::<f32>(&out).unwrap();
    let expected = [0.25, 0.25, 0.25, 0.25, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2];
    assert!(out.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-6), "{out:?}");
}
