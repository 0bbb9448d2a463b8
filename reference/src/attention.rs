//! Attention (K8, K12, K13): a block of queries of one head against the keys that any of them sees.
//!
//! Inputs: queries, keys and values as attention takes them. Output: `[T, Nq*D]`.
//! Deliberately absent: a mask or score matrix over `[T, T]`. A sliding layer takes time in proportion to
//! `T * (W + 63)`; a full layer holds one block of scores, at most `[64, T]`, per thread.
//!
//! Blocks start at multiples of 64 in the sequence and their keys at the first key that the block sees, so
//! a query's sum does not depend on how much text follows. A key that a query does not see takes part with
//! weight 0, which changes nothing unless its value is infinite or NaN: then all of the block's rows become
//! NaN.

use crate::product;
use crate::steps::Steps;
use crate::workers::Workers;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use spec::{LayerId, ModelConfig};
use std::ops::Range;

/// Queries that are taken together.
const QUERIES: usize = 64;

/// Queries `[T, Nq*D]`, keys and values `[T, Nkv*D]` of one layer of one sequence.
pub(crate) struct Attention<'a> {
    pub config: &'a ModelConfig,
    pub layer: LayerId,
    pub steps: &'a dyn Steps,
    pub q: &'a Array2<f32>,
    pub k: &'a Array2<f32>,
    pub v: &'a Array2<f32>,
}

impl Attention<'_> {
    /// Every head of every query: `[T, Nq*D]`.
    pub fn run(&self, workers: &Workers) -> Array2<f32> {
        let mut out = Array2::zeros(self.q.dim());
        let mut tasks = Vec::new();
        for (block, rows) in product::split(out.view_mut(), Axis(0), QUERIES).into_iter().enumerate() {
            let heads = product::split(rows, Axis(1), self.config.head_dim);
            tasks.extend(heads.into_iter().enumerate().map(|(head, out)| (block * QUERIES, head, out)));
        }
        workers.run(|| tasks.into_par_iter().for_each(|(first, head, out)| self.block(first, head, out)));
        out
    }

    /// One head of the queries from `first` on: `out [n, D]`.
    fn block(&self, first: usize, head: usize, mut out: ArrayViewMut2<'_, f32>) {
        let d = self.config.head_dim;
        let queries = first..first + out.nrows();
        let keys = self.visible(queries.start).start..self.visible(queries.end - 1).end;
        let kv = self.steps.kv_head(self.config, head);
        let q = self.q.slice(s![queries.clone(), head * d..(head + 1) * d]);
        let k = self.k.slice(s![keys.clone(), kv * d..(kv + 1) * d]);
        let v = self.v.slice(s![keys.clone(), kv * d..(kv + 1) * d]);
        let mut scores = Array2::zeros((queries.len(), keys.len()));
        product::into(q, k, scores.view_mut());
        let scale = self.steps.attention_scale(self.config);
        for (query, mut row) in queries.zip(scores.rows_mut()) {
            let seen = self.visible(query);
            let row = row.as_slice_mut().expect("a row of a fresh matrix is contiguous");
            let (before, rest) = row.split_at_mut(seen.start - keys.start);
            let (seen, after) = rest.split_at_mut(seen.len());
            seen.iter_mut().for_each(|score| *score *= scale);
            self.steps.softmax(seen);
            before.fill(0.0);
            after.fill(0.0);
        }
        general_mat_mul(1.0, &scores, &v, 0.0, &mut out);
    }

    /// The keys that a query sees, within the sequence; never none.
    fn visible(&self, query: usize) -> Range<usize> {
        let range = self.steps.visible(self.config, self.layer, query);
        range.start..range.end.min(self.k.nrows())
    }
}

/// The keys that query `i` sees: `i - W < j <= i` under a window of W, else `j <= i` (K12).
pub(crate) fn visible(window: Option<usize>, query: usize) -> Range<usize> {
    let start = window.map_or(0, |window| (query + 1).saturating_sub(window));
    start..query + 1
}

/// Softmax in place, in f32 (K13).
pub(crate) fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - max).exp());
    let sum = product::sum(scores, |score| score);
    scores.iter_mut().for_each(|score| *score /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::Correct;
    use rstest::rstest;
    use spec::config_file;
    use std::path::Path;

    /// Two layers, sliding and full; 4 query heads on 2 key-value heads of 6.
    fn config(window: usize) -> ModelConfig {
        let text = format!(
            r#"{{"model_type": "kolibri1", "hidden_act": "silu", "hidden_size": 8, "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"], "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 9, "rms_norm_eps": 1e-6,
            "sliding_window": {window}, "rope_theta": 1e4, "num_experts": 2, "num_experts_per_tok": 1,
            "moe_intermediate_size": 4, "shared_expert_intermediate_size": 4}}"#
        );
        config_file::parse(Path::new("config.json"), &text).unwrap()
    }

    fn values(rows: usize, columns: usize, step: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, columns), |(i, j)| {
            ((i * 131 + j * step + i * j * 17) % 257) as f32 / 64.0 - 2.0
        })
    }

    /// The definition, in f64 and over all pairs: K8, K12, K13.
    fn naive(window: Option<usize>, q: &Array2<f32>, k: &Array2<f32>, v: &Array2<f32>) -> Array2<f64> {
        let (tokens, d) = (q.nrows(), 6);
        let mut out = Array2::zeros((tokens, 24));
        for head in 0..4 {
            let kv = head / 2;
            for i in 0..tokens {
                let sees = |j: usize| j <= i && window.is_none_or(|w| j as isize > i as isize - w as isize);
                let score = |j: usize| {
                    let pairs = (0..d).map(|c| (q[[i, head * d + c]], k[[j, kv * d + c]]));
                    pairs.map(|(a, b)| f64::from(a) * f64::from(b)).sum::<f64>() / 6_f64.sqrt()
                };
                let weights: Vec<f64> =
                    (0..tokens).map(|j| if sees(j) { score(j).exp() } else { 0.0 }).collect();
                let sum: f64 = weights.iter().sum();
                for c in 0..d {
                    let weighted = (0..tokens).map(|j| weights[j] / sum * f64::from(v[[j, kv * d + c]]));
                    out[[i, head * d + c]] = weighted.sum();
                }
            }
        }
        out
    }

    #[rstest]
    fn attention_is_close_to_the_definition_in_f64(
        #[values(1, 2, 7, 33, 64, 65, 500)] window: usize,
        #[values(1, 5, 64, 65, 150)] tokens: usize,
        #[values(0, 1)] layer: usize,
    ) {
        let config = config(window);
        let (q, k, v) = (values(tokens, 24, 29), values(tokens, 12, 41), values(tokens, 12, 53));
        let layer = LayerId(layer);
        let attention = Attention { config: &config, layer, steps: &Correct, q: &q, k: &k, v: &v };
        let ours = attention.run(&Workers::new(Some(2)).unwrap());
        let exact = naive(config.window(layer), &q, &k, &v);
        for ((position, column), exact) in exact.indexed_iter() {
            let distance = (f64::from(ours[[position, column]]) - exact).abs();
            assert!(distance <= 2e-6, "position {position}, column {column}: {distance:e}");
        }
    }

    #[rstest]
    #[case::first_query_sees_itself(Some(513), 0, 0..1)]
    #[case::before_the_window_is_full(Some(513), 511, 0..512)]
    #[case::window_of_513_includes_the_query(Some(513), 512, 0..513)]
    #[case::then_the_first_key_is_out(Some(513), 513, 1..514)]
    #[case::window_of_one_sees_itself_only(Some(1), 9, 9..10)]
    #[case::full_sees_all_before(None, 9, 0..10)]
    fn a_query_sees(#[case] window: Option<usize>, #[case] query: usize, #[case] keys: Range<usize>) {
        assert_eq!(visible(window, query), keys);
    }

    #[test]
    fn softmax_of_large_scores_does_not_overflow() {
        let mut scores = [1000.0, 1000.0 - 3_f32.ln(), f32::NEG_INFINITY];
        softmax(&mut scores);
        assert!((scores[0] - 0.75).abs() <= 2e-5 && (scores[1] - 0.25).abs() <= 2e-5, "{scores:?}");
        assert_eq!(scores[2], 0.0);
    }
}
