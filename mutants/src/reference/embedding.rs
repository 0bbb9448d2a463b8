//! Bugs of the embedding (K5).

use ndarray::ArrayViewMut2;
use reference::Steps;
use spec::ModelConfig;

/// Rows times `sqrt(H)`.
pub struct Scaled;

impl Steps for Scaled {
    fn embed(&self, config: &ModelConfig, mut rows: ArrayViewMut2<'_, f32>) {
        rows *= (config.hidden_size as f32).sqrt();
    }
}
