//! Edited copies of the trained checkpoint.

use super::{checkpoint, config};
use mutants::edit::{Edit, apply};
use mutants::{Facts, PortPlant, find};
use port::Port;
use reference::Reference;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use spec::{ExpertId, LayerId, Precision, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
pub const INDEX: &str = "model.safetensors.index.json";

/// Dtype, shape and bytes of every tensor.
pub type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

pub fn read(dir: &Path) -> Tensors {
    let shards = if dir.join(SHARDS[0]).is_file() { &SHARDS[..] } else { &["model.safetensors"] };
    let mut all = Tensors::new();
    for shard in shards {
        let bytes = std::fs::read(dir.join(shard)).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
            all.insert(name, (view.dtype(), view.shape().into(), view.data().into()));
        }
    }
    all
}

/// Layers 0 to 4 are in the first shard, all else in the second.
pub fn shard_of(name: &str) -> &'static str {
    SHARDS[usize::from(!(0..5).any(|layer| name.starts_with(&format!("model.layers.{layer}."))))]
}

/// The checkpoint in one file, or a copy of it in two.
pub fn original(sharded: bool) -> (PathBuf, Option<TempDir>) {
    if !sharded {
        return (checkpoint(), None);
    }
    let copy = tempfile::tempdir().unwrap();
    let all = read(&checkpoint());
    for shard in SHARDS {
        let mine = all.iter().filter(|(name, _)| shard_of(name) == shard);
        let view = |(dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).unwrap();
        let mine = mine.map(|(name, (dtype, shape, bytes))| (name, view((*dtype, shape.clone(), bytes))));
        safetensors::serialize_to_file(mine, None, &copy.path().join(shard)).unwrap();
    }
    let homes: BTreeMap<_, _> = all.keys().map(|name| (name, shard_of(name))).collect();
    let bytes: usize = all.values().map(|(_, _, bytes)| bytes.len()).sum();
    let index = json!({"metadata": {"total_size": bytes}, "weight_map": homes});
    std::fs::write(copy.path().join(INDEX), index.to_string()).unwrap();
    std::fs::copy(checkpoint().join("config.json"), copy.path().join("config.json")).unwrap();
    (copy.path().into(), Some(copy))
}

/// An edited copy beside its original.
pub struct Edited {
    pub from: PathBuf,
    pub to: TempDir,
    _copy: Option<TempDir>,
}

impl Edited {
    pub fn new(sharded: bool, edits: &[Edit]) -> Self {
        let ((from, _copy), to) = (original(sharded), tempfile::tempdir().unwrap());
        apply(&from, edits, to.path()).unwrap();
        Self { from, to, _copy }
    }

    /// Names of the files that are not links; the links lead to the original's files.
    pub fn written(&self) -> BTreeSet<String> {
        let mut written = BTreeSet::new();
        for entry in std::fs::read_dir(&self.from).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            match std::fs::read_link(self.to.path().join(&name)) {
                Ok(link) => assert_eq!(link, self.from.canonicalize().unwrap().join(&name)),
                Err(_) => assert!(written.insert(name)),
            }
        }
        let count = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
        assert_eq!(count(self.to.path()), count(&self.from));
        written
    }

    pub fn port(&self) -> Result<Port> {
        Port::load(self.to.path(), Precision::F32)
    }

    pub fn reference(&self) -> Result<Reference> {
        Reference::open(self.to.path(), reference::Options::default())
    }

    pub fn index(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.to.path().join(INDEX)).unwrap()).unwrap()
    }
}

/// A copy with a bug of the catalogue in it.
pub fn planted(id: &str, idle: (LayerId, ExpertId), sharded: bool) -> Edited {
    let config = config();
    match find(id).unwrap().port {
        Some(PortPlant::Checkpoint(edits)) => Edited::new(sharded, &edits(&Facts { config: &config, idle })),
        other => panic!("{id} is {other:?}"),
    }
}
