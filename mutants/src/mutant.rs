//! What one row of the catalogue says. Absent on purpose: the rows ([`mod@crate::catalogue`]).

use crate::edit::Edit;
use spec::{ExpertId, LayerId, ModelConfig};

/// One planted bug.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Unique; letters, digits and `_`.
    pub id: &'static str,
    /// Where it acts.
    pub stage: Stage,
    /// What is wrong, in one sentence.
    pub what: &'static str,
    /// Who met it: reports as `repository#number`, or a word for where else it comes from.
    pub seen_in: &'static [&'static str],
    /// How the port gets it, if it can.
    pub port: Option<PortPlant>,
    /// The reference's steps with it, if it can have it.
    pub reference: Option<fn() -> Box<dyn reference::Steps>>,
}

/// The part of the model that a bug sits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Reading the checkpoint (K3).
    Load,
    /// K5.
    Embedding,
    /// K6, K7, K9.
    Norm,
    /// K10.
    Rope,
    /// K11, K12.
    Mask,
    /// Keys and values of earlier calls.
    Cache,
    /// K13.
    Attention,
    /// K14 to K16.
    Router,
    /// K17.
    Experts,
    /// K18.
    Head,
    /// Not of the model: what judges it.
    Checker,
}

/// How a bug gets into the port.
#[derive(Debug, Clone, Copy)]
pub enum PortPlant {
    /// Other steps, for [`port::Port::with_steps`]; each port needs steps of its own, since some hold state.
    Steps(fn() -> Box<dyn port::Steps>),
    /// Another checkpoint, made by [`crate::edit::apply`] for the port alone.
    Checkpoint(fn(&Facts<'_>) -> Vec<Edit>),
}

/// What the edits of a checkpoint depend on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// An expert that the fewest tokens chose, at best none.
    pub idle: (LayerId, ExpertId),
}

impl Mutant {
    /// A row that is not planted anywhere yet.
    pub(crate) const fn new(id: &'static str, stage: Stage, what: &'static str) -> Self {
        Self { id, stage, what, seen_in: &[], port: None, reference: None }
    }

    pub(crate) const fn seen_in(mut self, seen_in: &'static [&'static str]) -> Self {
        self.seen_in = seen_in;
        self
    }

    pub(crate) const fn port(mut self, steps: fn() -> Box<dyn port::Steps>) -> Self {
        self.port = Some(PortPlant::Steps(steps));
        self
    }

    pub(crate) const fn checkpoint(mut self, edits: fn(&Facts<'_>) -> Vec<Edit>) -> Self {
        self.port = Some(PortPlant::Checkpoint(edits));
        self
    }

    pub(crate) const fn reference(mut self, steps: fn() -> Box<dyn reference::Steps>) -> Self {
        self.reference = Some(steps);
        self
    }
}
