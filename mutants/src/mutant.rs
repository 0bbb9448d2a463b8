//! What one row of the catalogue says. Absent on purpose: the rows ([`mod@crate::catalogue`],
//! [`mod@crate::variants`]).

use crate::edit::Edit;
use crate::need::Need;
use crate::{port, reference};
use spec::{ExpertId, LayerId, ModelConfig};

/// One planted bug, or one correct rewrite.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Unique; letters, digits and `_`.
    pub id: &'static str,
    /// Whether it is wrong.
    pub kind: Kind,
    /// Where it acts.
    pub stage: Stage,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// The rows of the published catalogue that it is of: `A01`; none for those of other sources.
    pub rows: &'static [&'static str],
    /// Who met it: reports as `repository#number`, or a word for where else it comes from.
    pub seen_in: &'static [&'static str],
    /// What a checkpoint, text and schedule must offer for it to do anything.
    pub needs: &'static [Need],
    /// How the port gets it, if it can.
    pub port: Option<PortPlant>,
}

/// Whether a row is a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Wrong: some check must fire.
    Bug,
    /// A correct rewrite, other in its last bits at most: no check may fire.
    Rewrite,
}

/// The part of the model that a row sits in.
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

/// How a row gets into the port.
#[derive(Debug, Clone, Copy)]
pub enum PortPlant {
    /// Other steps, for [`::port::Port::with_steps`].
    Steps {
        /// The steps that are other.
        of: &'static [port::Step],
        /// Makes them; each port needs steps of its own, since some hold state.
        make: fn() -> Box<dyn ::port::Steps>,
    },
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

impl Stage {
    /// Every stage, in the order of a forward pass.
    pub const ALL: [Stage; 11] = [
        Stage::Load,
        Stage::Embedding,
        Stage::Norm,
        Stage::Rope,
        Stage::Mask,
        Stage::Cache,
        Stage::Attention,
        Stage::Router,
        Stage::Experts,
        Stage::Head,
        Stage::Checker,
    ];

    /// The name used in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Load => "load",
            Stage::Embedding => "embedding",
            Stage::Norm => "norm",
            Stage::Rope => "rope",
            Stage::Mask => "mask",
            Stage::Cache => "cache",
            Stage::Attention => "attention",
            Stage::Router => "router",
            Stage::Experts => "experts",
            Stage::Head => "head",
            Stage::Checker => "checker",
        }
    }
}

impl Mutant {
    /// A bug that is not planted anywhere yet.
    pub(crate) const fn new(id: &'static str, stage: Stage, what: &'static str) -> Self {
        Self { id, kind: Kind::Bug, stage, what, rows: &[], seen_in: &[], needs: &[], port: None }
    }

    /// A correct rewrite that is not planted anywhere yet.
    pub(crate) const fn rewrite(id: &'static str, stage: Stage, what: &'static str) -> Self {
        Self { kind: Kind::Rewrite, ..Self::new(id, stage, what) }
    }

    pub(crate) const fn rows(mut self, rows: &'static [&'static str]) -> Self {
        self.rows = rows;
        self
    }

    pub(crate) const fn seen_in(mut self, seen_in: &'static [&'static str]) -> Self {
        self.seen_in = seen_in;
        self
    }

    pub(crate) const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    pub(crate) const fn port(
        mut self,
        of: &'static [port::Step],
        make: fn() -> Box<dyn ::port::Steps>,
    ) -> Self {
        self.port = Some(PortPlant::Steps { of, make });
        self
    }

    pub(crate) const fn checkpoint(mut self, edits: fn(&Facts<'_>) -> Vec<Edit>) -> Self {
        self.port = Some(PortPlant::Checkpoint(edits));
        self
    }

    /// The reference's steps with it, if it can have it.
    pub fn reference(&self) -> Option<&'static reference::Plant> {
        reference::plant(self.id)
    }
}
