//! One decoder layer (K6): attention and MoE, each between two norms, each added to the residual.
//!
//! Inputs: the residual `[1, T, H]`, what came before, forced ids or none. Outputs: the residual after the
//! layer and the ids that ran. Absent on purpose: evaluation; the caller evaluates a whole layer at once.

use crate::attention::{Attention, Past, Rope, Turn};
use crate::batch_cache::BatchCache;
use crate::cache::Cache;
use crate::engine::Op;
use crate::record::Taps;
use crate::router::{Forced, route};
use crate::steps::Steps;
use crate::weights::LayerWeights;
use mlx_rs::Array;
use spec::{LayerId, ModelConfig, Site};

/// One layer of the model.
pub struct Layer<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Which layer.
    pub id: LayerId,
    /// Its weights.
    pub weights: &'a LayerWeights,
    /// The steps.
    pub steps: &'a dyn Steps,
    /// [`crate::rope::periods`]
    pub periods: &'a Array,
}

/// What a layer made of T tokens; not yet evaluated.
#[derive(Debug)]
pub struct LayerOut {
    /// The residual, `[1, T, H]`
    pub h: Array,
    /// The experts that ran, in executed order, read back from the gather, `[1, T, k]` u32.
    pub ids: Array,
    /// The port's own choice, `[1, T, k]` u32.
    pub own: Array,
}

impl Layer<'_> {
    /// An empty cache for this layer.
    pub fn cache(&self) -> Box<dyn Cache> {
        self.steps.cache(self.steps.window(self.config, self.id))
    }

    /// `h`: `[1, T, H]`. Every site of the layer is tapped.
    pub fn run(
        &self,
        h: &Array,
        past: &mut Past<'_>,
        forced: Option<&Forced>,
        taps: &mut Taps<'_>,
    ) -> Op<LayerOut> {
        let (steps, w, eps) = (self.steps, self.weights, self.config.rms_norm_eps as f32);
        let x = steps.norm(h, &w.attn_norm, eps)?;
        taps.put(Site::AttnNorm, &x)?;
        let branch = self.attention(past).run(steps, &x, past, taps)?;
        let branch = steps.norm(&branch, &w.attn_branch_norm, eps)?;
        taps.put(Site::AttnBranch, &branch)?;
        let h = steps.residual(h, &branch)?;
        taps.put(Site::AttnResidual, &h)?;

        let x = steps.norm(&h, &w.moe_norm, eps)?;
        taps.put(Site::MoeNorm, &x)?;
        let (branch, ids, own) = self.moe(&x, forced, taps)?;
        let branch = steps.norm(&branch, &w.moe_branch_norm, eps)?;
        taps.put(Site::MoeBranch, &branch)?;
        let h = steps.residual(&h, &branch)?;
        taps.put(Site::LayerOut, &h)?;
        Ok(LayerOut { h, ids, own })
    }

    /// An empty cache for this layer's rows of a batch.
    pub fn batch_cache(&self, rows: usize) -> BatchCache {
        BatchCache::new(self.steps.window(self.config, self.id), rows)
    }

    fn attention(&self, past: &Past<'_>) -> Attention<'_> {
        let (steps, periods) = (self.steps, self.periods);
        let turn = match past {
            _ if !steps.rotates(self.config, self.id) => Turn::Not,
            Past::One(cache) => Turn::One(Rope { periods, offset: steps.rope_offset(cache.offset()) }),
            Past::Batch(_, call) => Turn::Rows { periods, offsets: call.offsets(steps) },
        };
        Attention {
            config: self.config,
            weights: &self.weights.attention,
            turn,
            window: self.steps.window(self.config, self.id),
        }
    }

    /// K14 to K17. `x`: `[1, T, H]`. Output: the MoE's sum `[1, T, H]`, executed and own ids `[1, T, k]`.
    fn moe(&self, x: &Array, forced: Option<&Forced>, taps: &mut Taps<'_>) -> Op<(Array, Array, Array)> {
        let (steps, w) = (self.steps, self.weights);
        let route = route(steps, &w.router, self.config, x, forced)?;
        taps.put(Site::RouterLogits, &route.logits)?;
        taps.put(Site::SelectionScores, &route.scores)?;
        let routed = steps.routed(&w.experts, x, &route.ids)?;
        taps.put(Site::Choice, &routed.ids)?;
        taps.put(Site::ShadowChoice, &route.own)?;
        taps.put(Site::TopkWeights, &route.weights)?;
        taps.put(Site::ExpertOut, &routed.outputs)?;
        let sum = steps.combine(&routed.outputs, &route.weights)?;
        taps.put(Site::Routed, &sum)?;
        let shared = steps.shared(&w.shared, x)?;
        taps.put(Site::SharedGate, &shared.gate)?;
        taps.put(Site::SharedUp, &shared.up)?;
        taps.put(Site::SharedAct, &shared.active)?;
        taps.put(Site::Shared, &shared.output)?;
        Ok((steps.moe_sum(&sum, &shared.output)?, routed.ids, route.own))
    }
}
