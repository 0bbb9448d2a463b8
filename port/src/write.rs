//! A new checkpoint folder: shards by MLX's own writer, an index, a config.
//!
//! Inputs: names and arrays, the folder that it is made of. Outputs: `model.safetensors`, or shards of a few
//! gigabytes, with their index; config.json with a block added; the other files of the old folder. Absent on
//! purpose: what is written ([`crate::convert`]).

use crate::engine::{Doing, Op};
use mlx_rs::{Array, transforms};
use serde_json::{Map, Value, json};
use spec::output::NewFolder;
use spec::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Bytes at which a shard is closed.
const SHARD: usize = 5 << 30;

const NEXT: &str = "check that the disk has room for the build";

/// A folder that is being written; it appears whole, or not at all.
pub(crate) struct Writer {
    folder: NewFolder,
    open: Vec<(String, Array)>,
    open_bytes: usize,
    /// Names of the tensors of each closed shard, which is written under its number.
    closed: Vec<Vec<String>>,
    bytes: usize,
}

impl Writer {
    /// Errors: [`Error::Argument`] if `out` exists, [`Error::Io`].
    pub fn create(out: &Path) -> Result<Self> {
        let folder = NewFolder::create(out)?;
        Ok(Self { folder, open: Vec::new(), open_bytes: 0, closed: Vec::new(), bytes: 0 })
    }

    /// Adds a tensor. Errors: MLX's.
    pub fn add(&mut self, name: &str, array: &Array) -> Result<()> {
        transforms::eval([array]).doing(format!("compute {name}"))?;
        self.open.push((name.into(), array.clone()));
        self.open_bytes += array.nbytes();
        if self.open_bytes >= SHARD { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<()> {
        let path = self.folder.path().join(shard(self.closed.len(), 0));
        let strings = HashMap::from([("format".to_owned(), "mlx".to_owned())]);
        let arrays = self.open.iter().map(|(name, array)| (name, array));
        let saved: Op<()> = Array::save_safetensors(arrays, &strings, &path)
            .map_err(|error| mlx_rs::error::Exception::custom(error.to_string()));
        saved.doing(format!("write {}", path.display()))?;
        self.closed.push(self.open.drain(..).map(|(name, _)| name).collect());
        self.bytes += std::mem::take(&mut self.open_bytes);
        Ok(())
    }

    /// Closes the last shard, names all, and writes index and config beside them. Errors: [`Error::Io`],
    /// MLX's.
    pub fn finish(mut self, dir: &Path, block: Map<String, Value>) -> Result<()> {
        if !self.open.is_empty() {
            self.close()?;
        }
        let mut weight_map = BTreeMap::new();
        for (number, names) in self.closed.iter().enumerate() {
            let (from, to) = (shard(number, 0), shard(number, self.closed.len()));
            let path = self.folder.path().join(&from);
            std::fs::rename(&path, self.folder.path().join(&to)).map_err(Error::io("rename", &path, NEXT))?;
            weight_map.extend(names.iter().map(|name| (name.clone(), to.clone())));
        }
        let index = json!({"metadata": {"total_size": self.bytes}, "weight_map": weight_map});
        self.json("model.safetensors.index.json", &index)?;
        self.copy_others(dir)?;
        let path = dir.join("config.json");
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path, NEXT))?;
        let mut config: Map<String, Value> =
            serde_json::from_str(&text).expect("a config that was read before");
        for key in ["quantization", "quantization_config"] {
            config.insert(key.into(), Value::from(block.clone()));
        }
        self.json("config.json", &Value::from(config))?;
        self.folder.finish()
    }

    fn json(&self, name: &str, value: &Value) -> Result<()> {
        let path = self.folder.path().join(name);
        let text = serde_json::to_string_pretty(value).expect("plain JSON can be written") + "\n";
        std::fs::write(&path, text).map_err(Error::io("write", &path, NEXT))
    }

    /// Tokenizer, generation config, notes: every other file.
    fn copy_others(&self, dir: &Path) -> Result<()> {
        let entries = std::fs::read_dir(dir).map_err(Error::io("list", dir, NEXT))?;
        for entry in entries {
            let entry = entry.map_err(Error::io("list", dir, NEXT))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let ours =
                name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".index.json");
            if !ours && entry.path().is_file() {
                let to = self.folder.path().join(entry.file_name());
                std::fs::copy(entry.path(), &to).map_err(Error::io("write", &to, NEXT))?;
            }
        }
        Ok(())
    }
}

/// A shard's name among `of`; 0: not known yet.
fn shard(number: usize, of: usize) -> String {
    match of {
        1 => "model.safetensors".into(),
        _ => format!("model-{:05}-of-{of:05}.safetensors", number + 1),
    }
}
