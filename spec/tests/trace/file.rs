//! Trace files made by hand, with the safetensors crate and without the code under test.

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use spec::trace::Trace;
use spec::{Error, hash};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// The tensors and strings of a file, to be changed before it is written.
#[derive(Clone)]
pub struct Parts {
    pub tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
    pub strings: HashMap<String, String>,
}

/// Ids of three tokens in two layers, k = 2 of 6 experts.
pub const IDS: [i16; 12] = [4, 1, 0, 5, 2, 3, 5, 0, 1, 4, 3, 2];

impl Parts {
    /// The least that a sound file holds: layers 1 and 3 of 4 have experts, tokens 7, 8, 9.
    pub fn least() -> Self {
        let mut parts = Self { tensors: BTreeMap::new(), strings: HashMap::new() };
        for (key, value) in [
            ("schema", "moe-trace/1"),
            ("decision", "moe_topk"),
            ("id_space", "logical"),
            ("num_experts", "6"),
            ("k", "2"),
            ("num_hidden_layers", "4"),
        ] {
            parts.strings.insert(key.into(), value.into());
        }
        parts.i32s("layers", &[2], &[1, 3]);
        parts.i32s("tokens", &[3], &[7, 8, 9]);
        parts.ids(&IDS);
        parts
    }

    pub fn put(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.insert(name.into(), (dtype, shape.into(), bytes));
    }

    pub fn i32s(&mut self, name: &str, shape: &[usize], values: &[i32]) {
        self.put(name, Dtype::I32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }

    pub fn i16s(&mut self, name: &str, shape: &[usize], values: &[i16]) {
        self.put(name, Dtype::I16, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }

    pub fn f32s(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        self.put(name, Dtype::F32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }

    /// Twelve ids and their hash.
    pub fn ids(&mut self, ids: &[i16]) {
        self.i16s("ids", &[3, 2, 2], ids);
        self.hash_ids();
    }

    pub fn hash_ids(&mut self) {
        self.strings.insert("ids_sha256".into(), hash::of_bytes(&self.tensors["ids"].2));
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut views = Vec::new();
        for (name, (dtype, shape, bytes)) in &self.tensors {
            views.push((name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        }
        safetensors::serialize(views, Some(self.strings.clone())).unwrap()
    }

    /// Writes the file and reads it with the code under test.
    pub fn read(&self) -> Result<Trace, Error> {
        read_bytes(&self.bytes())
    }

    /// What is said when the file is refused. Panics if it is not.
    pub fn refusal(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

/// Reads a file of these bytes.
pub fn read_bytes(bytes: &[u8]) -> Result<Trace, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("hand.trace.safetensors");
    std::fs::write(&path, bytes).unwrap();
    Trace::read(&path)
}
