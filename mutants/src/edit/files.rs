//! The files of a checkpoint, as tensors that know where their values lie.
//!
//! Inputs: a folder with `model.safetensors` or the shards of an index. Outputs: a [`Tensor`] for each name,
//! and files written from such tensors. Absent on purpose: what an edit means.

use super::change::Change;
use port::header;
use safetensors::tensor::{Dtype, View};
use serde_json::{Map, Value};
use spec::{Error, Result};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const SINGLE: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";

const NEXT: &str = "name a folder that holds one whole checkpoint";

/// Where values lie.
#[derive(Debug, Clone)]
pub enum Values {
    /// In an open file, from this byte on.
    Stored(Rc<File>, u64),
    /// What a change makes of others.
    Changed(Box<Values>, Change),
    /// Nowhere: all bits are 0.
    Zeros,
}

impl Values {
    /// As many bytes as the tensor has.
    fn read(&self, bytes: usize) -> io::Result<Vec<u8>> {
        match self {
            Values::Stored(file, start) => {
                let mut stored = vec![0; bytes];
                file.read_exact_at(&mut stored, *start).map(|()| stored)
            }
            Values::Changed(values, change) => Ok(change.of(&values.read(bytes)?)),
            Values::Zeros => Ok(vec![0; bytes]),
        }
    }
}

/// One tensor of an edited checkpoint.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// The name of the file that it is written to.
    pub home: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub values: Values,
}

impl Tensor {
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// The strings in a file's header.
pub type Strings = Option<HashMap<String, String>>;

/// Every tensor of the folder by name, and every file's strings by its name.
pub fn read(dir: &Path) -> Result<(BTreeMap<String, Tensor>, BTreeMap<String, Strings>)> {
    let homes = match dir.join(INDEX) {
        index if index.is_file() => homes(&read_json(&index)?, &index)?,
        _ => BTreeSet::from([SINGLE.to_owned()]),
    };
    let (mut tensors, mut files) = (BTreeMap::new(), BTreeMap::new());
    for home in homes {
        let path = dir.join(&home);
        let listed = header::check(&path)?;
        let file = Rc::new(File::open(&path).map_err(Error::io("open", &path, NEXT))?);
        let length = file.metadata().map_err(Error::io("read", &path, NEXT))?.len();
        let data = length - listed.data_len() as u64;
        for (name, info) in listed.tensors() {
            let values = Values::Stored(Rc::clone(&file), data + info.data_offsets.0 as u64);
            let tensor = Tensor { home: home.clone(), dtype: info.dtype, shape: info.shape.clone(), values };
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(Error::Tensor {
                    path,
                    name,
                    expected: "it in one file only".into(),
                    found: "it in two".into(),
                    next: NEXT.into(),
                });
            }
        }
        files.insert(home, listed.metadata().clone());
    }
    Ok((tensors, files))
}

/// The files that an index names.
fn homes(index: &Map<String, Value>, path: &Path) -> Result<BTreeSet<String>> {
    let map = index.get("weight_map").and_then(Value::as_object);
    let homes = map.and_then(|map| map.values().map(|home| home.as_str().map(str::to_owned)).collect());
    homes.ok_or_else(|| Error::Checkpoint {
        path: path.into(),
        expected: "`weight_map`, from names of tensors to names of files".into(),
        found: "none that is".into(),
        next: NEXT.into(),
    })
}

/// A JSON object with its keys in their order.
pub fn read_json(path: &Path) -> Result<Map<String, Value>> {
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path, NEXT))?;
    serde_json::from_str(&text).map_err(|e| Error::Checkpoint {
        path: path.into(),
        expected: "a JSON object".into(),
        found: e.to_string(),
        next: NEXT.into(),
    })
}

/// Writes one file, reading each tensor's values when it is its turn.
pub fn write(path: &Path, tensors: Vec<(&String, &Tensor)>, strings: Strings) -> Result<()> {
    let failed = RefCell::new(None);
    let pending = |tensor| Pending { tensor, failed: &failed };
    let views = tensors.into_iter().map(|(name, tensor)| (name, pending(tensor)));
    let written = safetensors::serialize_to_file(views, strings, path);
    let next = "check that the folder can be written to and has room, and that the original stays as it is";
    match (failed.take(), written) {
        (Some(e), _) => Err(Error::io("read the original of", path, next)(e)),
        (None, Err(e)) => Err(Error::io("write", path, next)(io::Error::other(e))),
        (None, Ok(())) => Ok(()),
    }
}

/// A tensor whose values are read when they are written. A failure to read is kept, since there is no way to
/// return it.
struct Pending<'a> {
    tensor: &'a Tensor,
    failed: &'a RefCell<Option<io::Error>>,
}

impl View for Pending<'_> {
    fn dtype(&self) -> Dtype {
        self.tensor.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let length = self.data_len();
        let noted = |e| {
            self.failed.borrow_mut().get_or_insert(e);
            vec![0; length]
        };
        self.tensor.values.read(length).unwrap_or_else(noted).into()
    }

    fn data_len(&self) -> usize {
        self.tensor.bytes()
    }
}

/// Links to every entry of `dir` whose name is not in `except`, in `target`.
pub fn link(dir: &Path, except: &BTreeSet<String>, target: &Path) -> Result<()> {
    let dir: PathBuf = dir.canonicalize().map_err(Error::io("open", dir, NEXT))?;
    let list = || -> io::Result<Vec<_>> { std::fs::read_dir(&dir)?.collect() };
    for entry in list().map_err(Error::io("list", &dir, NEXT))? {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| except.contains(name)) {
            continue;
        }
        let link = target.join(&name);
        let next = "name an existing, empty folder that can be written to";
        std::os::unix::fs::symlink(dir.join(&name), &link).map_err(Error::io(
            "make the link",
            &link,
            next,
        ))?;
    }
    Ok(())
}
