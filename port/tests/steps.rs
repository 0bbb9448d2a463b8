//! Planted steps: one is replaced, and exactly what depends on it changes.
mod support;

use mlx_rs::{Array, ops};
use port::cache::{Cache, RotatingCache};
use port::engine::Op;
use port::mask::{Mask, mask};
use port::{Correct, Steps};
use spec::{Precision, Routing, Schedule, Side, Site};
use support::{Rows, forward, golden, kjv, kjv_text, relative_l2, run};

const TOKENS: usize = 120;

/// A window of 32 where the model has 33, in masks and caches alike.
struct WindowOneShort;

impl Steps for WindowOneShort {
    fn cache(&self, window: Option<usize>) -> Box<dyn Cache> {
        match window {
            Some(window) => Box::new(RotatingCache::new(window - 1)),
            None => Correct.cache(None),
        }
    }

    fn mask(&self, window: Option<usize>, queries: usize, keys: usize) -> Op<Mask> {
        mask(window.map(|window| window - 1), queries, keys)
    }
}

/// Selects on the sigmoid plus the bias.
struct SelectsOnSigmoid;

impl Steps for SelectsOnSigmoid {
    fn select(&self, logits: &Array, bias: &Array, k: usize) -> Op {
        port::router::top_k(&ops::sigmoid(logits)?.add(bias)?, k)
    }
}

/// `1 + w` in every norm.
struct OnePlusWeight;

impl Steps for OnePlusWeight {
    fn norm(&self, x: &Array, weight: &Array, eps: f32) -> Op {
        Correct.norm(x, &weight.add(Array::from_f32(1.0))?.as_dtype(weight.dtype())?, eps)
    }
}

/// The token of the first row that differs.
fn first_difference(a: &[f32], b: &[f32], width: usize) -> Option<usize> {
    assert_eq!(a.len(), b.len());
    (0..a.len()).find(|&i| a[i].to_bits() != b[i].to_bits()).map(|i| i / width)
}

#[test]
fn a_window_one_short_is_first_wrong_at_the_token_that_fills_the_window() {
    let text = kjv_text(TOKENS);
    for prefill_chunk in [1, 50] {
        let one = run(&text, Schedule::chunks_of(prefill_chunk), Routing::Free, Precision::F32);
        let (_, right) = forward(&kjv(Precision::F32), one);
        let (_, wrong) = forward(&kjv(Precision::F32).with_steps(Box::new(WindowOneShort)), one);
        let site = |rows: &Rows| rows.at(0, Site::AttnOut).to_vec();
        let first = first_difference(&site(&right), &site(&wrong), 128);
        assert_eq!(first, Some(32), "chunks of {prefill_chunk}");
    }
}

#[test]
fn a_wrong_selection_is_seen_in_the_shadow_alone_when_ids_are_forced() {
    let text = kjv_text(TOKENS);
    let (right, wrong) = (kjv(Precision::F32), kjv(Precision::F32).with_steps(Box::new(SelectsOnSigmoid)));
    let schedule = Schedule::chunks_of(50);
    let (free, _) = forward(&right, run(&text, schedule, Routing::Free, Precision::F32));
    let forced = run(&text, schedule, Routing::Forced(&free.choices), Precision::F32);
    let ((_, right), (executed, wrong)) = (forward(&right, forced), forward(&wrong, forced));
    let mut differing: Vec<Site> = right.differing(&wrong).into_iter().map(|(_, site)| site).collect();
    differing.dedup();
    assert_eq!(differing.first(), Some(&Site::ShadowChoice));
    assert!(differing.iter().all(|&site| site == Site::ShadowChoice), "{differing:?}");
    assert_eq!(executed.choices, free.choices);
    assert_ne!(executed.shadow, free.choices);
}

#[test]
fn the_golden_outputs_see_a_wrong_norm() {
    let text = kjv_text(256);
    let port = kjv(Precision::F32).with_steps(Box::new(OnePlusWeight));
    let mut rows = Rows::of(&[Site::AttnBranch]);
    let whole = run(&text, Schedule::chunks_of(256), Routing::Free, Precision::F32);
    port.forward(&[whole], &mut rows).unwrap();
    assert!(relative_l2(rows.at(0, Site::AttnBranch), &golden("attn_branch.0")) > 1e-2);
}
