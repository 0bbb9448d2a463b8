//! Ids that must not be mixed up: token, layer, expert. Positions are plain `usize`, counted from 0.

use std::fmt;

/// A row of the embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct TokenId(pub u32);

/// A decoder layer, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct LayerId(pub usize);

/// A logical routed expert of one layer, counted from 0; the shared expert has no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ExpertId(pub u16);

impl TokenId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ExpertId {
    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ExpertId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
