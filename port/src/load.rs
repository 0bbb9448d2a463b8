//! Tensors of a checkpoint, read by MLX's own safetensors loader, each taken exactly once (K3).
//!
//! Inputs: a folder with one `model.safetensors`, or with the shards of `model.safetensors.index.json`, which
//! may name `model.safetensors` as one of them.
//! Outputs: lazy MLX arrays of the file's own dtype and the checked shape. Absent on purpose: which tensors a
//! model has ([`crate::weights`] names them) and any change of a value.

use crate::engine::{Doing, dim, length, values};
use crate::unique::Listed;
use crate::{fp8, header};
use mlx_rs::{Array, Dtype, ops, transforms};
use spec::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// One tensor with the file it came from.
#[derive(Debug)]
pub struct Tensor {
    name: String,
    path: PathBuf,
    array: Array,
}

/// The tensors of a checkpoint that have not been taken yet, and those taken but not yet checked.
#[derive(Debug)]
pub struct Tensors {
    dir: PathBuf,
    left: BTreeMap<String, Tensor>,
    taken: Vec<Tensor>,
}

impl Tensors {
    /// Opens every file of the checkpoint; values are read when they are first needed. Errors:
    /// [`Error::Argument`] for a path that is not UTF-8, [`Error::Checkpoint`] for a missing, truncated or
    /// malformed file, [`Error::Tensor`] for an unsupported dtype, for a tensor in two shards, and where
    /// index and shards disagree.
    pub fn open(dir: &Path) -> Result<Self> {
        if dir.to_str().is_none() {
            return Err(Error::Argument {
                what: format!("the folder {}", dir.display()),
                expected: "a path that is UTF-8 (MLX takes no other)".into(),
                found: format!("{dir:?}"),
                next: "rename the folder, or give another path to it".into(),
            });
        }
        let (single, index) = (dir.join(SINGLE), dir.join(INDEX));
        let mut tensors = Self { dir: dir.into(), left: BTreeMap::new(), taken: Vec::new() };
        match (single.is_file(), index.is_file()) {
            (true, false) => tensors.add(&single)?,
            (_, true) => tensors.add_shards(&index)?,
            (false, false) => return Err(tensors.refuse_files("neither".into())),
        }
        Ok(tensors)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let listed = header::check(path)?;
        let mut arrays = Array::load_safetensors(path).map_err(|e| Error::Checkpoint {
            path: path.into(),
            expected: "a file that MLX can load".into(),
            found: e.to_string(),
            next: "download the file again".into(),
        })?;
        for name in listed.offset_keys() {
            let array = arrays.remove(&name).ok_or_else(|| Error::Engine {
                engine: "MLX",
                doing: format!("load {}", path.display()),
                message: format!("tensor `{name}` of the header was not loaded"),
            })?;
            let tensor = Tensor { name: name.clone(), path: path.into(), array };
            if let Some(first) = self.left.insert(name.clone(), tensor) {
                let found = format!("the same tensor in {}", first.path.display());
                return Err(refuse(path, &name, "it in one file only", found));
            }
        }
        Ok(())
    }

    fn add_shards(&mut self, index: &Path) -> Result<()> {
        let homes = read_index(index)?;
        if self.dir.join(SINGLE).is_file() && homes.values().all(|shard| shard != SINGLE) {
            return Err(self.refuse_files(format!("both, and {INDEX} does not name {SINGLE}")));
        }
        for shard in homes.values().collect::<BTreeSet<_>>() {
            let path = self.dir.join(shard);
            if !path.is_file() {
                return Err(Error::Checkpoint {
                    path,
                    expected: format!("a shard, as {INDEX} says"),
                    found: "no such file".into(),
                    next: "download the missing shard".into(),
                });
            }
            self.add(&path)?;
        }
        for (name, tensor) in &self.left {
            let home = homes.get(name).map(|shard| self.dir.join(shard));
            if home.as_ref() != Some(&tensor.path) {
                let found = home.map_or("it is not listed".into(), |home| home.display().to_string());
                return Err(refuse(&tensor.path, name, &format!("this file named for it in {INDEX}"), found));
            }
        }
        match homes.iter().find(|(name, _)| !self.left.contains_key(*name)) {
            None => Ok(()),
            Some((name, shard)) => Err(refuse(
                &self.dir.join(shard),
                name,
                &format!("it here, as {INDEX} says"),
                "no such tensor",
            )),
        }
    }

    fn refuse_files(&self, found: String) -> Error {
        Error::Checkpoint {
            path: self.dir.clone(),
            expected: format!("either {SINGLE} or {INDEX}"),
            found,
            next: "name a folder that holds one whole checkpoint and nothing stale".into(),
        }
    }

    /// Takes one tensor of numbers of exactly this shape, in the file's dtype, not yet evaluated. Errors:
    /// [`Error::Tensor`] if it is missing, mis-shaped, or holds codes or words in place of numbers.
    pub fn take(&mut self, name: &str, shape: &[usize]) -> Result<Array> {
        match self.left.get(name) {
            Some(tensor) if matches!(tensor.array.dtype(), Dtype::Uint8 | Dtype::Uint32) => {
                let found = if tensor.array.dtype() == Dtype::Uint8 { "F8_E4M3" } else { "U32" };
                Err(refuse(&tensor.path, name, "BF16, F16 or F32", found))
            }
            _ => self.take_shaped(name, shape),
        }
    }

    fn take_shaped(&mut self, name: &str, shape: &[usize]) -> Result<Array> {
        let Some(tensor) = self.left.remove(name) else {
            return Err(refuse(&self.dir, name, &format!("a tensor of shape {shape:?}"), "no such tensor"));
        };
        let wanted: Vec<i32> = shape.iter().map(|&n| dim(n)).collect();
        if tensor.array.shape() != wanted {
            let found = format!("shape {:?}", tensor.array.shape());
            return Err(refuse(&tensor.path, name, &format!("shape {shape:?}"), found));
        }
        let array = tensor.array.clone();
        self.taken.push(tensor);
        Ok(array)
    }

    /// As [`Tensors::take`], of this dtype. Errors: also [`Error::Tensor`] on another one.
    pub fn take_as(&mut self, name: &str, shape: &[usize], dtype: Dtype) -> Result<Array> {
        match self.left.get(name) {
            Some(tensor) if tensor.array.dtype() != dtype => {
                let found = format!("{:?}", tensor.array.dtype());
                Err(refuse(&tensor.path, name, &format!("{dtype:?}"), found))
            }
            _ => self.take_shaped(name, shape),
        }
    }

    /// Whether there is such a tensor that nobody took yet.
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// Whether there is such a tensor, of this dtype. FP8 codes are u8 here, and nothing else is.
    pub fn is(&self, name: &str, dtype: Dtype) -> bool {
        self.left.get(name).is_some_and(|tensor| tensor.array.dtype() == dtype)
    }

    /// The names of all tensors that nobody took yet, in order.
    pub fn names(&self) -> Vec<String> {
        self.left.keys().cloned().collect()
    }

    /// The shape of a tensor that nobody took yet. Panics if there is none.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        let array = &self.left[name].array;
        (0..dim(array.ndim())).map(|axis| length(array, axis)).collect()
    }

    /// The checkpoint's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Refuses a checkpoint with tensors that nobody took. Errors: [`Error::Tensor`] naming the first.
    pub fn refuse_leftovers(&self) -> Result<()> {
        match self.left.values().next() {
            None => Ok(()),
            Some(tensor) => {
                let found = format!("this one, and {} more", self.left.len() - 1);
                let expected = "no tensor beyond those of docs/kolibri-1.md (K3)";
                Err(refuse(&tensor.path, &tensor.name, expected, found))
            }
        }
    }

    /// Forgets the tensors taken since the last call, and says their bytes.
    pub fn just_taken_bytes(&mut self) -> u64 {
        self.just_taken().iter().map(|tensor| tensor.array.nbytes() as u64).sum()
    }

    /// The tensors taken since the last call, for [`check_finite`].
    pub fn just_taken(&mut self) -> Vec<Tensor> {
        std::mem::take(&mut self.taken)
    }
}

/// Evaluates tensors and refuses the first value that is NaN or infinite. Errors: [`Error::Tensor`] naming
/// the tensor and the value's index in row-major order.
pub fn check_finite(tensors: &[Tensor]) -> Result<()> {
    let finite = |t: &Tensor| match t.array.dtype() {
        Dtype::Uint8 => ops::all(&fp8::is_number(&t.array)?, None),
        _ => ops::all(&t.array.is_finite()?, None),
    };
    let flags: Vec<Array> = tensors.iter().map(finite).collect::<Result<_, _>>().doing("check weights")?;
    transforms::eval(&flags).doing("read weights")?;
    let Some(bad) = flags.iter().position(|flag| !flag.item_exact::<bool>()) else {
        return Ok(());
    };
    let Tensor { name, path, array } = &tensors[bad];
    if array.dtype() == Dtype::Uint8 {
        let numbers = fp8::is_number(array).and_then(|a| values::<bool>(&a)).doing("read weights")?;
        let index = numbers.iter().position(|number| !number).expect("MLX found a code of NaN");
        return Err(refuse(path, name, "finite values", format!("the FP8 code of NaN at index {index}")));
    }
    let wide = array.as_dtype(Dtype::Float32).and_then(|a| values::<f32>(&a)).doing("read weights")?;
    let index = wide.iter().position(|x| !x.is_finite()).expect("MLX found one that is not finite");
    let found = format!("{} at index {index}", wide[index]);
    Err(refuse(path, name, "finite values", found))
}

/// Tensor name to shard, from the index's `weight_map`.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    let next = "download the index again";
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path, next))?;
    let refuse = |found: String| Error::Checkpoint {
        path: path.into(),
        expected: "a JSON object whose `weight_map` gives each tensor's file in this folder".into(),
        found,
        next: next.into(),
    };
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: Listed<String>,
    }
    let Index { weight_map: Listed(homes) } =
        serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    match homes.values().find(|shard| Path::new(shard).file_name() != Some(shard.as_ref())) {
        None => Ok(homes),
        Some(shard) => Err(refuse(format!("`{shard}`, which is no plain file name"))),
    }
}

/// A tensor that is not what it should be.
pub(crate) fn refuse(path: &Path, name: &str, expected: &str, found: impl Into<String>) -> Error {
    Error::Tensor {
        path: path.into(),
        name: name.into(),
        expected: expected.into(),
        found: found.into(),
        next: "use a whole checkpoint of one release, with the config.json that came with it".into(),
    }
}
