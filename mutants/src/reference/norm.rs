//! Bugs of the norms (K6, K7, K9).

use super::rope::turns;
use ndarray::ArrayViewMut2;
use reference::steps::{Heads, Norm};
use reference::{Correct, Steps};
use spec::ModelConfig;

/// `1 + w` for `w`, in every norm.
pub struct OnePlusWeight;

impl Steps for OnePlusWeight {
    fn rms_norm(&self, which: Norm, rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
        Correct.rms_norm(which, rows, &one_plus(weight), eps);
    }

    fn qk_norm(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        Correct.qk_norm(&Heads { weight: &one_plus(heads.weight), ..*heads }, rows);
    }
}

fn one_plus(weight: &[f32]) -> Vec<f32> {
    weight.iter().map(|w| 1.0 + w).collect()
}

/// The norm on the attention branch and the one before the MoE have each other's weight.
pub struct SandwichSwapped;

impl Steps for SandwichSwapped {
    fn norm_weight(&self, which: Norm) -> Norm {
        match which {
            Norm::AttnOutput => Norm::MoeInput,
            Norm::MoeInput => Norm::AttnOutput,
            other => other,
        }
    }
}

/// The per-head norm after the rotation, in layers that rotate.
pub struct HeadNormAfterRope;

impl Steps for HeadNormAfterRope {
    fn qk_norm(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        if !turns(heads) {
            Correct.qk_norm(heads, rows);
        }
    }

    fn qk_rope(&self, heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>) {
        if turns(heads) {
            Correct.qk_rope(heads, rows.view_mut());
            Correct.qk_norm(heads, rows);
        }
    }
}

/// Another epsilon, in every norm.
pub struct Epsilon(pub fn(f32) -> f32);

impl Steps for Epsilon {
    fn rms_norm(&self, which: Norm, rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
        Correct.rms_norm(which, rows, weight, (self.0)(eps));
    }

    fn qk_norm(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        let eps = (self.0)(heads.config.rms_norm_eps as f32);
        let config = ModelConfig { rms_norm_eps: eps.into(), ..heads.config.clone() };
        Correct.qk_norm(&Heads { config: &config, ..*heads }, rows);
    }
}

/// Each row is divided by its largest magnitude before it is normed, which the epsilon is not, in every norm.
pub struct EpsilonAfterRescale;

impl Steps for EpsilonAfterRescale {
    fn rms_norm(&self, which: Norm, mut rows: ArrayViewMut2<'_, f32>, weight: &[f32], eps: f32) {
        rescale(&mut rows, weight.len());
        Correct.rms_norm(which, rows, weight, eps);
    }

    fn qk_norm(&self, heads: &Heads<'_>, mut rows: ArrayViewMut2<'_, f32>) {
        rescale(&mut rows, heads.weight.len());
        Correct.qk_norm(heads, rows);
    }
}

/// Divides each piece of each row by its largest magnitude; zeros stay.
fn rescale(rows: &mut ArrayViewMut2<'_, f32>, width: usize) {
    for mut row in rows.rows_mut() {
        for piece in row.as_slice_mut().expect("rows are contiguous").chunks_exact_mut(width) {
            let largest = piece.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
            if largest > 0.0 {
                piece.iter_mut().for_each(|x| *x /= largest);
            }
        }
    }
}

/// The norm of queries and of keys over all heads of a row together.
pub struct HeadNormOverAllHeads;

impl Steps for HeadNormOverAllHeads {
    fn qk_norm(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        let weight = heads.weight.repeat(rows.ncols() / heads.weight.len());
        Correct.qk_norm(&Heads { weight: &weight, ..*heads }, rows);
    }
}

/// Queries and keys as they are.
pub struct HeadNormMissing;

impl Steps for HeadNormMissing {
    fn qk_norm(&self, _heads: &Heads<'_>, _rows: ArrayViewMut2<'_, f32>) {}
}
