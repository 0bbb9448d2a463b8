//! Bugs of the norms (K6, K7, K9).

use super::rope::turns;
use ndarray::ArrayViewMut2;
use reference::steps::{Heads, Norm};
use reference::{Correct, Steps};

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
