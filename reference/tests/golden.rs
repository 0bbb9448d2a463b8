//! The trained checkpoint against outputs of transformers in f32: every layer, expert and weight, and the
//! bits per byte of the held-out text.

mod support;

use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use rstest::rstest;
use spec::{At, LayerId, Precision, Recorder, Result, Side, Site};
use std::collections::BTreeMap;
use support::{Golden, Keep, free, held_out, open, relative_l2, trained};

/// Relative L2 distance of two f32 computations in different orders of summation.
const LIMIT: f64 = 2e-6;

fn golden_run() -> (Golden, Keep) {
    let reference = open(&trained());
    let case = held_out("golden", 0, 256);
    let mut keep = Keep::all();
    reference.forward(&[free(&case, Precision::F32)], &mut keep).unwrap();
    (Golden::read(), keep)
}

fn close(ours: &Array2<f32>, golden: &Array2<f64>, what: &str) {
    let distance = relative_l2(ours, golden);
    assert!(distance <= LIMIT, "{what}: relative L2 distance {distance:.2e}");
}

#[test]
fn tokens_and_embedding_are_the_golden_ones() {
    let (golden, keep) = golden_run();
    let tokens = golden.get("tokens");
    let ours = held_out("golden", 0, 256).tokens;
    assert!(tokens.iter().zip(&ours).all(|(golden, ours)| *golden == f64::from(ours.0)));
    assert_eq!(keep.get(0, None, Site::Embedding).mapv(f64::from), golden.get("embedding"));
}

#[test]
fn every_layer_is_close_to_golden() {
    let (golden, keep) = golden_run();
    let sites = [
        ("attn_branch", Site::AttnBranch),
        ("moe_branch", Site::MoeBranch),
        ("layer_out", Site::LayerOut),
        ("router_logits", Site::RouterLogits),
    ];
    for layer in 0..10 {
        for (name, site) in sites {
            let name = format!("{name}.{layer}");
            close(&keep.get(0, Some(layer), site), &golden.get(&name), &name);
        }
    }
    close(&keep.get(0, None, Site::Logits), &golden.get("logits"), "logits");
}

#[test]
fn every_expert_set_and_weight_is_golden() {
    let (golden, keep) = golden_run();
    // golden order of equal or close experts is its own, so weights are paired by expert
    let pairs = |ids: ArrayView1<'_, f64>, weights: ArrayView1<'_, f64>| -> BTreeMap<u16, f64> {
        ids.iter().map(|&id| id as u16).zip(weights.iter().copied()).collect()
    };
    for layer in 0..10 {
        let ids = golden.get(&format!("choice.{layer}"));
        let weights = golden.get(&format!("topk_weights.{layer}"));
        let our_ids = keep.get(0, Some(layer), Site::Choice).mapv(f64::from);
        let our_weights = keep.get(0, Some(layer), Site::TopkWeights).mapv(f64::from);
        for token in 0..256 {
            let golden = pairs(ids.row(token), weights.row(token));
            let ours = pairs(our_ids.row(token), our_weights.row(token));
            let at = format!("layer {layer}, token {token}");
            assert_eq!(golden.len(), 4);
            assert!(golden.keys().eq(ours.keys()), "{at}: {golden:?} and {ours:?}");
            for (id, weight) in &golden {
                let distance = (ours[id] - weight).abs();
                assert!(distance <= 2e-5 * weight, "{at}, expert {id}: {weight} and {}", ours[id]);
            }
        }
    }
}

/// Nats per token and confident positions of one run, from logits as they come.
#[derive(Default)]
struct Likelihood {
    tokens: Vec<usize>,
    nats: f64,
    predicted: usize,
    confident: usize,
}

impl Recorder for Likelihood {
    fn wants(&self, _run: usize, _layer: Option<LayerId>, site: Site) -> bool {
        site == Site::Logits
    }

    fn record(&mut self, at: &At, rows: ArrayView2<'_, f32>) -> Result<()> {
        for (position, row) in at.rows.clone().zip(rows.axis_iter(Axis(0))) {
            let mut logits: Vec<f64> = row.iter().map(|&logit| f64::from(logit)).collect();
            if let Some(&next) = self.tokens.get(position + 1) {
                let max = logits.iter().copied().fold(f64::MIN, f64::max);
                let log_sum = max + logits.iter().map(|logit| (logit - max).exp()).sum::<f64>().ln();
                self.nats += log_sum - logits[next];
                self.predicted += 1;
            }
            // of every position, also the last, which predicts nothing that is known
            logits.sort_by(|a, b| b.total_cmp(a));
            self.confident += usize::from(logits[0] - logits[1] >= 2.0);
        }
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct Recorded {
    start: usize,
    tokens: usize,
    bits_per_byte: f64,
    confident: usize,
}

#[rstest]
fn bits_per_byte_and_confidence_are_golden(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] sequence: usize) {
    #[derive(serde::Deserialize)]
    struct File {
        sequences: Vec<Recorded>,
    }
    let path = support::fixtures().join("golden/kolibri-tiny-kjv.nll.json");
    let file: File = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(file.sequences.len(), 9);
    let recorded = &file.sequences[sequence];
    let case = held_out("sequence", recorded.start, recorded.tokens);
    let tokens = case.tokens.iter().map(|id| id.index()).collect();
    let mut likelihood = Likelihood { tokens, ..Likelihood::default() };
    open(&trained()).forward(&[free(&case, Precision::F32)], &mut likelihood).unwrap();
    assert_eq!(likelihood.predicted, recorded.tokens - 1);
    let bits_per_byte = likelihood.nats / likelihood.predicted as f64 / 2_f64.ln();
    let distance = (bits_per_byte - recorded.bits_per_byte).abs();
    assert!(distance <= 1e-5, "{bits_per_byte} and {}", recorded.bits_per_byte);
    assert_eq!(likelihood.confident, recorded.confident);
}
