//! Bugs of the mask and of which layer is of which kind (K11, K12).

use ndarray::ArrayViewMut2;
use reference::steps::Heads;
use reference::{Correct, Steps};
use spec::{LayerId, ModelConfig};
use std::ops::Range;

/// Windows of another width, from what the config and the layer's own window say.
pub struct Window(pub fn(&ModelConfig, Option<usize>) -> Option<usize>);

impl Steps for Window {
    fn visible(&self, config: &ModelConfig, layer: LayerId, query: usize) -> Range<usize> {
        let window = (self.0)(config, config.window(layer));
        let first = window.map_or(0, |window| (query + 1).saturating_sub(window));
        first..query + 1
    }
}

/// Each layer sees and rotates as the one after it, the last as the first.
pub struct LayerTypesShifted;

impl Steps for LayerTypesShifted {
    fn qk_rope(&self, heads: &Heads<'_>, rows: ArrayViewMut2<'_, f32>) {
        Correct.qk_rope(&Heads { layer: after(heads.config, heads.layer), ..*heads }, rows);
    }

    fn visible(&self, config: &ModelConfig, layer: LayerId, query: usize) -> Range<usize> {
        Correct.visible(config, after(config, layer), query)
    }
}

fn after(config: &ModelConfig, layer: LayerId) -> LayerId {
    LayerId((layer.0 + 1) % config.num_layers())
}
