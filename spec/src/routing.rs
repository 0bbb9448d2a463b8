//! Expert choices: which experts each token went to, in the order in which they were executed.
//!
//! Absent on purpose: weights. Forcing replaces ids only; each side computes weights from its own logits.

use crate::{Error, ExpertId, LayerId, ModelConfig, Result};

/// The `k` experts of every (token, layer) of one case, `[T, L, k]`, each row in executed order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choices {
    layers: usize,
    k: usize,
    ids: Vec<ExpertId>,
}

impl Choices {
    /// Room for `tokens` rows of `layers` layers; every row starts as expert 0, `k` times, which
    /// [`Choices::check`] refuses, so a row that was never set is noticed.
    pub fn unset(tokens: usize, layers: usize, k: usize) -> Self {
        Self { layers, k, ids: vec![ExpertId(0); tokens * layers * k] }
    }

    /// Number of tokens, `T`.
    pub fn tokens(&self) -> usize {
        self.ids.len() / (self.layers * self.k)
    }

    /// Number of layers, `L`.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Experts per (token, layer).
    pub fn k(&self) -> usize {
        self.k
    }

    /// The experts of one (token, layer), in executed order.
    pub fn at(&self, token: usize, layer: LayerId) -> &[ExpertId] {
        let start = self.start(token, layer);
        &self.ids[start..start + self.k]
    }

    /// Sets the experts of one (token, layer), in executed order. Panics on a row of another length.
    pub fn set(&mut self, token: usize, layer: LayerId, row: &[ExpertId]) {
        let start = self.start(token, layer);
        self.ids[start..start + self.k].copy_from_slice(row);
    }

    /// All ids, `[T, L, k]` in C order.
    pub fn as_slice(&self) -> &[ExpertId] {
        &self.ids
    }

    /// Refuses choices that are not a route for `tokens` tokens of `config`: wrong shape, an id out of range,
    /// a repeated id. Errors: [`Error::Routing`], naming token and layer.
    pub fn check(&self, case: &str, tokens: usize, config: &ModelConfig) -> Result<()> {
        let shape = [self.tokens(), self.layers, self.k];
        let wanted = [tokens, config.num_layers(), config.experts_per_token];
        let fail = |expected: String, found: String| {
            let next = "record the choices again with `assay run` on this checkpoint and text".into();
            Err(Error::Routing { case: case.into(), expected, found, next })
        };
        if shape != wanted {
            return fail(format!("choices of shape {wanted:?} (tokens, layers, k)"), format!("{shape:?}"));
        }
        for token in 0..tokens {
            for layer in (0..self.layers).map(LayerId) {
                let row = self.at(token, layer);
                let place = || format!("at token {token}, layer {layer}");
                if let Some(id) = row.iter().find(|id| id.index() >= config.num_experts) {
                    let expected = format!("expert ids below {}", config.num_experts);
                    return fail(expected, format!("{id} {}", place()));
                }
                if let Some(id) = (1..row.len()).find(|&i| row[..i].contains(&row[i])).map(|i| row[i]) {
                    return fail(format!("{} different experts", self.k), format!("{id} twice {}", place()));
                }
            }
        }
        Ok(())
    }

    fn start(&self, token: usize, layer: LayerId) -> usize {
        assert!(layer.0 < self.layers, "layer {layer} of {}", self.layers);
        (token * self.layers + layer.0) * self.k
    }
}

/// Where a run's expert ids come from.
#[derive(Debug, Clone, Copy)]
pub enum Routing<'a> {
    /// The side's own router chooses.
    Free,
    /// These ids are executed, in this order; the side's own choice is recorded as its shadow.
    Forced(&'a Choices),
}
