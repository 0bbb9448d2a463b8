//! Edited copies of a checkpoint: what is wrong with a file, rather than with a step.
//!
//! Inputs: a checkpoint folder and a list of [`Edit`]s. Outputs: a folder in which files that no edit touches
//! are links to the original's, and the others are written anew, one tensor in memory at a time. Absent on
//! purpose: any judgement of the result; a loader has to refuse what is refused.

mod builds;
mod change;
mod files;
mod plan;

pub use change::Narrow;

use plan::Plan;
use serde_json::Value;
use spec::{LayerId, Result};
use std::path::Path;

/// One change of a checkpoint. Tensors go by their names in the checkpoint (K3); what is done to the values
/// of a packed matrix is done to its scales and biases too, and of a stack of experts one can be named.
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
    /// Transposes a square matrix: shape and dtype are what they were.
    Transpose(String),
    /// Lays the rows of a matrix, as they are in `groups` groups of neighbours, the first of each group
    /// first, then the second of each, and so on: what makes of rows in `[D, N]` those in `[N, D]`.
    Interleave {
        /// The matrix.
        name: String,
        /// How many groups; divides its rows.
        groups: usize,
    },
    /// Rounds all values of a BF16 or F32 tensor to a narrower type; they are stored as before.
    Round {
        /// The tensor.
        name: String,
        /// The narrower type.
        to: Narrow,
    },
    /// Makes all values of a tensor zero.
    Zero(String),
    /// Makes the last hundredth of the data of the last file zero.
    ZeroTail,
    /// Lays the codes of a packed matrix, of 2, 4 or 8 bits, in the opposite order in each word.
    ReverseCodes {
        /// The words.
        name: String,
        /// Bits of a code.
        bits: u32,
    },
    /// Gives all values of a BF16, F16 or F32 tensor the opposite sign.
    Negate(String),
    /// Gives each value of a row the one at half its place: what a group twice as wide reads.
    HalvePlaces(String),
    /// Lays the values of a matrix as its transpose has them; its shape stays.
    TransposeGrid(String),
    /// Gives one tensor the values of another of its shape and dtype.
    Copy {
        /// The one that has the values, and keeps them.
        from: String,
        /// The one that gets them.
        to: String,
    },
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
