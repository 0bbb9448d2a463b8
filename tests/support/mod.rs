//! Runs the built `assay`, and makes checkpoints that are broken in one place.
#![allow(dead_code, reason = "each test file uses its own part")]

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The committed trained checkpoint.
pub const TRAINED: &str = "fixtures/kolibri-tiny-kjv";
/// Its held-out text.
pub const TEXT: &str = "fixtures/texts/kjv-heldout.txt";

/// Runs `assay` with the workspace's root as its folder.
pub fn assay<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    // the width of somebody's terminal must not wrap the help in another place
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("COLUMNS").args(arguments);
    command.output().expect("the program starts")
}

/// Standard output of a run that must succeed.
pub fn stdout<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> String {
    let output = assay(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "exit {:?}\n{error}", output.status.code());
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The JSON that a run printed.
pub fn json<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> serde_json::Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON on stdout")
}

/// A run that must be refused: exit 2, one line that completes "failed to …", nothing on stdout.
/// Returns that line.
pub fn refusal<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> String {
    let output = assay(arguments);
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(error.starts_with("assay: failed to "), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    error
}

/// A tensor as stored: dtype, shape, bytes.
pub type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// A copy of the trained checkpoint that can be broken.
pub struct Checkpoint {
    dir: tempfile::TempDir,
    /// Every tensor by name.
    pub tensors: BTreeMap<String, Stored>,
}

impl Checkpoint {
    /// A sound copy; nothing is written yet but config.json.
    pub fn trained() -> Self {
        Self::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(TRAINED))
    }

    /// The same of another one, which is one file.
    pub fn of(source: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::copy(source.join("config.json"), dir.path().join("config.json")).expect("a config");
        let bytes = std::fs::read(source.join("model.safetensors")).expect("weights");
        let file = SafeTensors::deserialize(&bytes).expect("a sound file");
        let stored = |view: TensorView<'_>| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        let tensors = file.tensors().into_iter().map(|(name, view)| (name, stored(view))).collect();
        Self { dir, tensors }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// One tensor, to be changed.
    pub fn tensor(&mut self, name: &str) -> &mut Stored {
        self.tensors.get_mut(name).unwrap_or_else(|| panic!("no tensor `{name}`"))
    }

    /// Sets keys of config.json.
    pub fn configure(&self, edits: &[(&str, serde_json::Value)]) {
        let path = self.path().join("config.json");
        let text = std::fs::read_to_string(&path).expect("a config");
        let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for (key, value) in edits {
            config[*key] = value.clone();
        }
        std::fs::write(path, config.to_string()).expect("a config is written");
    }

    /// Writes all tensors into one file.
    pub fn write(&self) -> PathBuf {
        self.write_shard("model.safetensors", |_| true);
        self.path().to_path_buf()
    }

    /// Writes two shards and an index that is right about them: layers 0 to 4, and the rest.
    pub fn write_sharded(&self) -> PathBuf {
        self.write_shard(SHARDS[0], in_first);
        self.write_shard(SHARDS[1], |name| !in_first(name));
        self.write_index(|name| SHARDS[usize::from(!in_first(name))].into());
        self.path().to_path_buf()
    }

    /// Writes the tensors that `keep` keeps into one file.
    pub fn write_shard(&self, file: &str, keep: impl Fn(&str) -> bool) {
        let kept = self.tensors.iter().filter(|(name, _)| keep(name));
        let views = kept.map(|(name, (dtype, shape, bytes))| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).expect("bytes that fit the shape"))
        });
        safetensors::serialize_to_file(views, None, &self.path().join(file)).expect("a shard is written");
    }

    /// Writes an index that puts each tensor into the shard that `shard` names.
    pub fn write_index(&self, shard: impl Fn(&str) -> String) {
        let map: BTreeMap<&String, String> = self.tensors.keys().map(|name| (name, shard(name))).collect();
        let total: usize = self.tensors.values().map(|(_, _, bytes)| bytes.len()).sum();
        let index = serde_json::json!({"metadata": {"total_size": total}, "weight_map": map});
        let path = self.path().join("model.safetensors.index.json");
        std::fs::write(path, index.to_string()).expect("an index is written");
    }
}

/// Names of the shards of [`Checkpoint::write_sharded`].
pub const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// Whether a tensor belongs into the first shard.
pub fn in_first(name: &str) -> bool {
    (0..5).any(|layer| name.starts_with(&format!("model.layers.{layer}.")))
}
