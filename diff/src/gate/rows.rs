//! The reference's rows of some cases, on disk, and what else the port's rows are held against.
//!
//! Written by one pass of the reference ([`super::pass`]), read by every measurement of the port: layer
//! inputs for re-injection, branches, router logits, choices, weights, logits. Between two reads nothing is
//! held.

use crate::compare::reference_pass::input_of;
use crate::metrics::router;
use crate::spool::Spool;
use ndarray::{Array2, ArrayView1};
use spec::{Case, Choices, LayerId, ModelConfig, Result, Routing, Run, Schedule, Side, Site};
use std::collections::BTreeMap;

/// A case, a layer or none, a site.
pub(crate) type RowKey = (usize, Option<LayerId>, Site);

/// Per layer: what the port's layers are fed and held against. A layer's input is the output of the one
/// before; a free run executes its own choice, the shadow, which comes before any expert runs.
pub(crate) const LAYER_SITES: [Site; 6] = [
    Site::AttnBranch,
    Site::MoeBranch,
    Site::RouterLogits,
    Site::ShadowChoice,
    Site::TopkWeights,
    Site::LayerOut,
];

/// The checkpoint's one-dimensional tensors by name: norm weights and selection biases, as the reference
/// holds them.
pub(crate) type Vectors = BTreeMap<String, Vec<f32>>;

/// The reference's rows of some cases.
pub(crate) struct Rows<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) cases: &'a [Case],
    pub(crate) vectors: &'a Vectors,
    pub(crate) spool: Spool<RowKey>,
    /// What the reference executed, by case.
    pub(crate) choices: Vec<Choices>,
}

/// Room for all of them.
pub(crate) fn extents(config: &ModelConfig, cases: &[Case]) -> Vec<(RowKey, usize, usize)> {
    let mut keys = Vec::new();
    for (case, tokens) in cases.iter().map(Case::len).enumerate() {
        let mut put = |layer, site: Site| keys.push(((case, layer, site), tokens, site.width(config)));
        put(None, Site::Embedding);
        put(None, Site::Logits);
        for layer in config.layer_ids() {
            LAYER_SITES.into_iter().for_each(|site| put(Some(layer), site));
        }
    }
    keys
}

impl Rows<'_> {
    /// What the reference's layer was given, `[T, H]` of every case (K6).
    pub(crate) fn inputs(&self, layer: LayerId) -> Result<Vec<Array2<f32>>> {
        let (of, site) = input_of(layer);
        (0..self.cases.len()).map(|case| self.spool.all(&(case, of, site))).collect()
    }

    /// Runs of every case, forced onto the reference's choices.
    pub(crate) fn forced(&self, side: &dyn Side, chunk: usize) -> Vec<Run<'_>> {
        self.runs(side, Schedule::chunks_of(chunk), |case| Routing::Forced(&self.choices[case]))
    }

    /// Runs of every case, at the precision of the side.
    pub(crate) fn runs<'s>(
        &'s self,
        side: &dyn Side,
        schedule: Schedule,
        routing: impl Fn(usize) -> Routing<'s>,
    ) -> Vec<Run<'s>> {
        let precision = side.describe().precision;
        let run = |case: usize| Run { case: &self.cases[case], schedule, routing: routing(case), precision };
        (0..self.cases.len()).map(run).collect()
    }

    /// Positions of all cases.
    pub(crate) fn positions(&self) -> usize {
        self.cases.iter().map(Case::len).sum()
    }

    /// A layer's selection bias, `[E]` (K15).
    pub(crate) fn bias(&self, layer: LayerId) -> &[f32] {
        &self.vectors[&format!("model.layers.{layer}.moe.router.expert_bias")]
    }

    /// The gap of one token from its router logits (K15).
    pub(crate) fn gap(&self, layer: LayerId, logits: ArrayView1<'_, f32>) -> f64 {
        let scores = selection_scores(logits, self.bias(layer));
        router::gap(ArrayView1::from(&scores), self.config.experts_per_token)
    }

    /// From where on a full window is behind a query: `W - 1`; 0 where no layer has one.
    pub(crate) fn past_window(&self) -> usize {
        self.config.sliding_window.map_or(0, |window| window - 1)
    }

    /// An expert of the last layer that the fewest tokens chose.
    pub(crate) fn idle(&self) -> crate::bench::Idle {
        let layer = LayerId(self.config.num_layers() - 1);
        let mut counts = vec![0_usize; self.config.num_experts];
        for choices in &self.choices {
            for token in 0..choices.tokens() {
                choices.at(token, layer).iter().for_each(|id| counts[id.index()] += 1);
            }
        }
        let (expert, _) = counts.iter().enumerate().min_by_key(|(_, count)| **count).expect("some expert");
        (layer, spec::ExpertId(u16::try_from(expert).expect("config bounds the expert count")))
    }
}

/// `f32(logit + bias)` (K15): one addition, rounded to f32, which no correct side can do otherwise.
pub(crate) fn selection_scores(logits: ArrayView1<'_, f32>, bias: &[f32]) -> Vec<f32> {
    logits.iter().zip(bias).map(|(logit, bias)| logit + bias).collect()
}
