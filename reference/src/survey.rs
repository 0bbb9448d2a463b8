//! The census of a checkpoint: what is there, and everything that is wrong with it (K3, K4).
//!
//! Inputs: a folder. Outputs: a [`Survey`]. [`survey`] lists problems where opening a checkpoint refuses
//! the first one. Absent on purpose: the values of the tensors; [`scan`](fn@crate::scan) reads those.

use crate::checkpoint::Files;
use crate::resolve::{Resolved, resolve};
use serde::Serialize;
use spec::census::{self, Role};
use spec::{Error, LayerKind, ModelConfig, Result, config_file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// The shards that could be read, by name.
    pub files: Vec<FileSummary>,
    /// Per dtype, by name, as the files hold them: packed codes, scales and biases each under their own.
    pub dtypes: Vec<DtypeCount>,
    /// Number of tensors found in the files.
    pub tensors: usize,
    /// Number of values found: of a packed or FP8 matrix its values, not its words, and neither its scales
    /// nor its biases; of a tensor that has a problem, its elements in the file.
    pub parameters: u64,
    /// Values that one token uses, however they are stored, of the tensors that should be there: one row of
    /// the embedding, k of the E routed experts, everything else whole.
    pub active_parameters: u64,
    /// Kind of each layer.
    pub layers: Vec<LayerKind>,
    /// Everything that is wrong; empty for a checkpoint that opens.
    pub problems: Vec<Problem>,
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// File name within the folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Number of tensors in it.
    pub tensors: usize,
}

/// Tensors of one dtype.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DtypeCount {
    /// As the files spell it: `BF16`, `F32`.
    pub dtype: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// One thing that is wrong with a checkpoint; as an [`Error`] it is what opening would say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Which sort.
    pub kind: ProblemKind,
    /// The file, or the folder where no file has the tensor.
    pub path: PathBuf,
    /// The tensor; `None` for a problem of a whole file.
    pub tensor: Option<String>,
    /// What a sound checkpoint would have.
    pub expected: String,
    /// What this one has.
    pub found: String,
    /// What to do about it.
    pub next: String,
}

/// Sorts of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A file that is missing, malformed or one too many.
    File,
    /// The index and the shards disagree.
    Index,
    /// A tensor in two shards.
    Duplicate,
    /// An expected tensor that no file has.
    Missing,
    /// A tensor of another shape.
    Shape,
    /// A tensor of a dtype that cannot stand where it does.
    Dtype,
    /// Packed codes that the config does not describe, or describes in a way that cannot be.
    Packing,
    /// A tensor that the model does not have.
    Extra,
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let Problem { path, tensor, expected, found, next, .. } = problem;
        match tensor {
            Some(name) => Error::Tensor { path, name, expected, found, next },
            None => Error::Checkpoint { path, expected, found, next },
        }
    }
}

/// Takes the census of `dir`. Errors: [`Error::Io`], [`Error::Config`]; all else is in [`Survey::problems`].
pub fn survey(dir: &Path) -> Result<Survey> {
    let config = config_file::read(dir)?;
    let files = Files::read(dir)?;
    let Resolved { stored, problems } = resolve(&config, &files);
    let mut dtypes: BTreeMap<String, DtypeCount> = BTreeMap::new();
    for entry in files.entries.values() {
        let dtype = entry.dtype.to_string();
        let count = dtypes.entry(dtype.clone()).or_insert(DtypeCount { dtype, tensors: 0, bytes: 0 });
        count.tensors += 1;
        count.bytes += entry.bytes.len() as u64;
    }
    let summary = |shard: &crate::checkpoint::Shard| FileSummary {
        name: shard.name.clone(),
        bytes: shard.map.len() as u64,
        tensors: shard.tensors,
    };
    let understood: BTreeSet<&str> =
        stored.values().flat_map(|stored| stored.parts()).map(|part| part.tensor.as_str()).collect();
    let other = files.entries.iter().filter(|(name, _)| !understood.contains(name.as_str()));
    let elements = stored.values().map(|stored| stored.elements() as u64);
    Ok(Survey {
        files: files.shards.iter().map(summary).collect(),
        dtypes: dtypes.into_values().collect(),
        tensors: files.entries.len(),
        parameters: elements.chain(other.map(|(_, entry)| entry.elements())).sum(),
        active_parameters: active_parameters(&config),
        layers: config.layers,
        problems,
    })
}

fn active_parameters(config: &ModelConfig) -> u64 {
    // a config may give any sizes: sums stop at the largest number instead of overflowing
    let (mut active, mut routed) = (0_u64, 0_u64);
    for tensor in census::expected(config) {
        let elements = tensor.shape.iter().fold(1_u64, |n, &size| n.saturating_mul(size as u64));
        match tensor.role {
            Role::Embedding => active = active.saturating_add(config.hidden_size as u64),
            Role::Expert => routed = routed.saturating_add(elements),
            _ => active = active.saturating_add(elements),
        }
    }
    // every expert has the same shape, so the share of k in E is whole
    active.saturating_add(routed / config.num_experts as u64 * config.experts_per_token as u64)
}
