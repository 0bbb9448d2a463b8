//! Edited copies of a checkpoint: what is wrong with a file, rather than with a step.
//!
//! Inputs: a checkpoint folder and a list of [`Edit`]s. Outputs: a folder in which files that no edit touches
//! are links to the original's, and the others are written anew, one tensor in memory at a time. Absent on
//! purpose: any judgement of the result; a loader has to refuse what is refused.

mod files;
mod plan;

use plan::Plan;
use serde_json::Value;
use spec::{LayerId, Result};
use std::path::Path;

/// One change of a checkpoint. Tensors go by their names in the checkpoint (K3).
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// Takes a tensor out.
    Remove(String),
    /// Puts a BF16 tensor of zeros in, into the first file.
    Add {
        /// A name that is free.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Says `[b, a]` of a matrix `[a, b]`; the values stay as they lie.
    SwapDims(String),
    /// Makes all values of a tensor zero.
    Zero(String),
    /// Gives each of two tensors of one shape and dtype the values of the other.
    Exchange(String, String),
    /// [`Edit::Exchange`] for all tensors of two layers.
    ExchangeLayers(LayerId, LayerId),
    /// Sets a key of `config.json`, whether it was there or not.
    SetConfig {
        /// The key, at the top level.
        key: String,
        /// Its value.
        value: Value,
    },
}

/// Makes the edits, in order, on a copy of `checkpoint` in `target`, an empty folder. Values of `checkpoint`
/// are read while `target` is written, and links lead there afterwards, so it has to stay as it is.
///
/// Errors: [`spec::Error::Checkpoint`] for files that are not a checkpoint, [`spec::Error::Tensor`] for an
/// edit of a tensor that is not there, is there already or does not fit, [`spec::Error::Argument`] for a
/// layer that is not there, [`spec::Error::Config`], [`spec::Error::Io`].
pub fn apply(checkpoint: &Path, edits: &[Edit], target: &Path) -> Result<()> {
    let mut plan = Plan::read(checkpoint)?;
    edits.iter().try_for_each(|edit| plan.take(edit))?;
    plan.write(target)
}
