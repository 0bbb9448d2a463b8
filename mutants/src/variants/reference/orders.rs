//! The same steps in f32, summed in another order or by another formula.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};
use reference::steps::{Heads, Matrix, Norm};
use reference::{Correct, Steps};
use spec::config::QkNorm;

/// Terms that [`ProductsInBlocks`] takes at a time.
const BLOCK: usize = 17;
/// Exponentials of scores up to here, and sums of as many as there are, stay far from what f32 cannot hold.
const SMALL: f32 = 40.0;

/// `x / sqrt(mean(x^2) + eps) * w`, terms summed one after another.
pub struct NormDivided;

impl Steps for NormDivided {
    fn rms_norm(&self, _which: Norm, mut rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
        norm(&mut rows, weight, eps);
    }

    fn qk_norm(&self, heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>) {
        let QkNorm::PerHeadBeforeRope = heads.config.qk_norm;
        norm(&mut rows, heads.weight, heads.config.rms_norm_eps as f32);
    }
}

/// Each piece of each row, as wide as the weight.
fn norm(rows: &mut ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
    for mut row in rows.rows_mut() {
        for piece in row.as_slice_mut().expect("rows are contiguous").chunks_exact_mut(weight.len()) {
            let mean = piece.iter().map(|x| x * x).sum::<f32>() / weight.len() as f32;
            let root = (mean + eps).sqrt();
            piece.iter_mut().zip(weight).for_each(|(x, w)| *x = *x / root * w);
        }
    }
}

/// From the last term on.
pub struct ProductsReversed;

impl Steps for ProductsReversed {
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        out: ArrayViewMut2<'_, f32>,
    ) {
        Correct.product(which, x.slice(s![.., ..;-1]), w.slice(s![.., ..;-1]), out);
    }
}

/// A sum of its own for every [`BLOCK`] terms, then their sum.
pub struct ProductsInBlocks;

impl Steps for ProductsInBlocks {
    fn product(
        &self,
        which: Matrix,
        x: ArrayView2<'_, f32>,
        w: ArrayView2<'_, f32>,
        mut out: ArrayViewMut2<'_, f32>,
    ) {
        out.fill(0.0);
        let mut part = Array2::zeros(out.dim());
        let (x, w) = (x.axis_chunks_iter(Axis(1), BLOCK), w.axis_chunks_iter(Axis(1), BLOCK));
        for (x, w) in x.zip(w) {
            Correct.product(which, x, w, part.view_mut());
            out += &part;
        }
    }
}

/// Scores as they are, where all are small; else their distance from the largest.
pub struct SoftmaxUnshifted;

impl Steps for SoftmaxUnshifted {
    fn softmax(&self, scores: &mut [f32]) {
        if !scores.iter().all(|score| score.abs() <= SMALL) {
            return Correct.softmax(scores);
        }
        scores.iter_mut().for_each(|score| *score = score.exp());
        let sum: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
    }
}

/// Exponentials in f32, their sum in f64.
pub struct SoftmaxSumInF64;

impl Steps for SoftmaxSumInF64 {
    fn softmax(&self, scores: &mut [f32]) {
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = (*score - max).exp());
        let sum: f64 = scores.iter().copied().map(f64::from).sum();
        scores.iter_mut().for_each(|score| *score = (f64::from(*score) / sum) as f32);
    }
}

/// The last of the k first.
pub struct LastFirst;

impl Steps for LastFirst {
    fn combine(&self, outputs: &[&[f32]], weights: &[f32], sum: &mut [f32]) {
        let outputs: Vec<&[f32]> = outputs.iter().rev().copied().collect();
        let weights: Vec<f32> = weights.iter().rev().copied().collect();
        Correct.combine(&outputs, &weights, sum);
    }
}
