//! Steps in f64, each rounded to f32 once: how far the reference's own rounding goes.
//!
//! Absent on purpose: the two products within attention, which are no step, and sums of two, which f32 rounds
//! once already.

use crate::reference::Step;
use crate::reference::product::products_and;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Zip};
use reference::steps::{Heads, Matrix, Norm};
use reference::{Correct, Steps};
use spec::config::{QkNorm, RouterScore};
use spec::{ExpertId, ModelConfig};

/// The steps that [`InF64`] has.
pub const OF: &[Step] = products_and![
    Step::RmsNorm,
    Step::QkNorm,
    Step::QkRope,
    Step::Softmax,
    Step::TopkWeights,
    Step::Activate,
    Step::Combine
];

/// What each step is given, and what it gives, is f32; all between is f64. An angle is the f32 product that
/// K10 makes it, cosine and sine are not rounded.
pub struct InF64;

impl Steps for InF64 {
    fn rms_norm(&self, _which: Norm, mut rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
        for mut row in rows.rows_mut() {
            norm(row.as_slice_mut().expect("rows are contiguous"), weight, eps);
        }
    }

    fn product(
        &self,
        _which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        let mut sums = Array2::zeros(out.dim());
        general_mat_mul(1.0, &x.mapv(f64::from), &w.mapv(f64::from).t(), 0.0, &mut sums);
        Zip::from(out).and(&sums).for_each(|out, &sum| *out = sum as f32);
    }

    fn qk_norm(&self, heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>) {
        let QkNorm::PerHeadBeforeRope = heads.config.qk_norm;
        let eps = heads.config.rms_norm_eps as f32;
        for mut row in rows.rows_mut() {
            let row = row.as_slice_mut().expect("rows are contiguous");
            row.chunks_exact_mut(heads.weight.len()).for_each(|head| norm(head, heads.weight, eps));
        }
    }

    fn qk_rope(&self, heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>) {
        if !heads.config.rotates(heads.layer) {
            return;
        }
        let inv_freq = Correct.inv_freq(heads.config);
        for (position, mut row) in (heads.first..).zip(rows.rows_mut()) {
            let turns: Vec<(f64, f64)> =
                inv_freq.iter().map(|freq| f64::from(position as f32 * freq).sin_cos()).collect();
            let row = row.as_slice_mut().expect("rows are contiguous");
            for head in row.chunks_exact_mut(2 * turns.len()) {
                let (low, high) = head.split_at_mut(turns.len());
                for ((low, high), (sin, cos)) in low.iter_mut().zip(high).zip(&turns) {
                    let (a, b) = (f64::from(*low), f64::from(*high));
                    *low = (a * cos - b * sin) as f32;
                    *high = (b * cos + a * sin) as f32;
                }
            }
        }
    }

    fn softmax(&self, scores: &mut [f32]) {
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let power = |score: f32| (f64::from(score) - f64::from(max)).exp();
        let sum: f64 = scores.iter().copied().map(power).sum();
        scores.iter_mut().for_each(|score| *score = (power(*score) / sum) as f32);
    }

    fn topk_weights(
        &self,
        config: &ModelConfig,
        logits: &[f32],
        _scores: &[f32],
        ids: &[ExpertId],
    ) -> Vec<f32> {
        let RouterScore::Sigmoid = config.router_score;
        let weights: Vec<f64> = ids.iter().map(|id| sigmoid(logits[id.index()])).collect();
        let sum = if config.renormalise_topk { weights.iter().sum() } else { 1.0 };
        let scale = f64::from(config.route_scale);
        weights.into_iter().map(|weight| (weight / sum * scale) as f32).collect()
    }

    fn activate(&self, gate: ArrayViewMut2<'_, f32>, up: ArrayView2<'_, f32>) {
        Zip::from(gate)
            .and(up)
            .for_each(|gate, &up| *gate = (f64::from(*gate) * sigmoid(*gate) * f64::from(up)) as f32);
    }

    fn combine(&self, outputs: &[&[f32]], weights: &[f32], sum: &mut [f32]) {
        assert_eq!(outputs.len(), weights.len(), "one weight per expert");
        for (column, sum) in sum.iter_mut().enumerate() {
            let term = |(output, &weight): (&&[f32], &f32)| f64::from(weight) * f64::from(output[column]);
            *sum = outputs.iter().zip(weights).map(term).sum::<f64>() as f32;
        }
    }
}

/// RMSNorm of one row or head.
fn norm(row: &mut [f32], weight: &[f32], eps: f32) {
    assert_eq!(row.len(), weight.len(), "one weight per value");
    let mean = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / row.len() as f64;
    let root = (mean + f64::from(eps)).sqrt();
    for (x, &w) in row.iter_mut().zip(weight) {
        *x = (f64::from(w) * f64::from(*x) / root) as f32;
    }
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}
