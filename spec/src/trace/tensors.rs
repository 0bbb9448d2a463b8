//! A safetensors file, written in place and read a piece at a time.
//!
//! Job: let a recorder put rows where they belong as they are made, and a comparison take back only the rows
//! it is looking at, so that neither holds a whole file. The header is written in one fixed order: equal
//! content gives equal bytes.
//! Absent on purpose: what the tensors mean, and weights; the loaders of the two sides share nothing with
//! this.

use crate::{Error, Result};
use ndarray::Array2;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use safetensors::Dtype;

/// Bytes of the number that says how long the header is.
const LENGTH_BYTES: usize = 8;
/// Longest header that readers of the format accept, in bytes.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// What to do about a file that is not whole.
const NEXT: &str = "record it again with `assay run`, or copy it again from where it was recorded";

/// Name, dtype and shape of one tensor of a file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The tensor's name.
    pub name: String,
    /// Type of one value.
    pub dtype: Dtype,
    /// Row-major shape.
    pub shape: Vec<usize>,
}

impl Slot {
    /// A tensor of that name, dtype and shape.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: &[usize]) -> Self {
        Self { name: name.into(), dtype, shape: shape.into() }
    }

    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// A safetensors file of known tensors whose values come in any order; finished by [`Writer::finish`].
///
/// It is made under its final name: the caller writes into a folder or under a name that is temporary.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    slots: Vec<Slot>,
    data_start: usize,
}

impl Writer {
    /// Makes the file with room for `slots` and for metadata as long as `metadata`; [`Writer::finish`] gives
    /// the metadata that stays. Errors: [`Error::Io`], also when the file exists.
    pub fn create(path: &Path, slots: Vec<Slot>, metadata: &BTreeMap<String, String>) -> Result<Self> {
        let next = "check that the folder exists, can be written to and has room";
        let slots = aligned(slots);
        let data_start = LENGTH_BYTES + header(&slots, metadata).len();
        let file = File::create_new(path).map_err(Error::io("create", path, next))?;
        let total = data_start + slots.iter().map(Slot::bytes).sum::<usize>();
        file.set_len(total as u64).map_err(Error::io("make room in", path, next))?;
        Ok(Self { path: path.into(), file, slots, data_start })
    }

    /// Puts `values` into tensor `name`, from its element `first` on. Errors: [`Error::Io`].
    ///
    /// Panics on a tensor that the file does not have, of another dtype, or too short for the values.
    pub fn write_f32(&self, name: &str, first: usize, values: &[f32]) -> Result<()> {
        let at = self.slots.iter().position(|slot| slot.name == name).expect("a tensor of this file");
        let slot = &self.slots[at];
        assert!(slot.dtype == Dtype::F32 && (first + values.len()) * 4 <= slot.bytes(), "{name}: {first}");
        let before: usize = self.slots[..at].iter().map(Slot::bytes).sum();
        let offset = (self.data_start + before + first * 4) as u64;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let next = "check that the disk has room";
        self.file.write_all_at(&bytes, offset).map_err(Error::io("write", &self.path, next))
    }

    /// Writes the header: after this the file can be read. Errors: [`Error::Io`].
    ///
    /// Panics if `metadata` needs more room than [`Writer::create`] was told.
    pub fn finish(self, metadata: &BTreeMap<String, String>) -> Result<()> {
        let mut head = header(&self.slots, metadata);
        let room = self.data_start - LENGTH_BYTES;
        assert!(head.len() <= room, "a header of {} bytes in room for {room}", head.len());
        head.resize(room, b' ');
        let next = "check that the disk has room";
        let start = [&(room as u64).to_le_bytes()[..], &head].concat();
        self.file.write_all_at(&start, 0).map_err(Error::io("write", &self.path, next))
    }
}

/// The bytes of a whole file whose tensors are in memory, in the order of [`aligned`].
pub(super) fn whole(tensors: Vec<(Slot, Vec<u8>)>, metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let (slots, mut contents): (Vec<Slot>, BTreeMap<String, Vec<u8>>) =
        tensors.into_iter().map(|(slot, bytes)| (slot.clone(), (slot.name, bytes))).unzip();
    let slots = aligned(slots);
    let head = header(&slots, metadata);
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend(head);
    for slot in slots {
        let bytes = contents.remove(&slot.name).expect("one content per tensor");
        assert_eq!(bytes.len(), slot.bytes(), "tensor {}", slot.name);
        file.extend(bytes);
    }
    file
}

/// Wide values first, so that every tensor starts at a multiple of its own width.
fn aligned(mut slots: Vec<Slot>) -> Vec<Slot> {
    slots.sort_by_key(|slot| std::cmp::Reverse(slot.dtype.bitsize()));
    slots
}

/// The JSON header, padded with spaces to a multiple of eight bytes.
fn header(slots: &[Slot], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!(metadata));
    let mut start = 0;
    for slot in slots {
        let end = start + slot.bytes();
        let info = json!({"dtype": slot.dtype, "shape": slot.shape, "data_offsets": [start, end]});
        assert!(map.insert(slot.name.clone(), info).is_none(), "tensor {} twice", slot.name);
        start = end;
    }
    let mut bytes = Value::Object(map).to_string().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    bytes
}

/// A safetensors file opened for reading; only its header is in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    data_start: u64,
    header: Metadata,
}

impl TensorFile {
    /// Opens a file and checks that its tensors fill it exactly. Errors: [`Error::Io`]; [`Error::Trace`] for
    /// a file that is cut short, too long or not of the format.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file =
            File::open(path).map_err(Error::io("open", path, "name a trace made by `assay run`"))?;
        let read = |source| Error::io("read", path, NEXT)(source);
        let length = file.metadata().map_err(read)?.len();
        let refuse = |expected: &str, found: String| Error::Trace {
            path: path.into(),
            expected: expected.into(),
            found,
            next: NEXT.into(),
        };
        if length < LENGTH_BYTES as u64 {
            return Err(refuse("a safetensors file", format!("a file of {length} bytes")));
        }
        let mut first = [0; LENGTH_BYTES];
        file.read_exact(&mut first).map_err(read)?;
        let head = u64::from_le_bytes(first);
        if head > HEADER_BYTES_MAX.min(length - LENGTH_BYTES as u64) {
            let found = format!("a header of {head} bytes in a file of {length}");
            return Err(refuse("a safetensors header inside the file", found));
        }
        let mut text = vec![0; usize::try_from(head).expect("below the longest header")];
        file.read_exact(&mut text).map_err(read)?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|error| {
            refuse("a safetensors header", format!("one that says: {}", error.to_string().escape_debug()))
        })?;
        let data_start = LENGTH_BYTES as u64 + head;
        let told = data_start.saturating_add(header.data_len() as u64);
        if told != length {
            let expected = format!("{told} bytes, as the header says");
            return Err(refuse(&expected, format!("{length} bytes")));
        }
        Ok(Self { path: path.into(), file, data_start, header })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One string of the file's metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Names of the tensors, in the order of the file.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Shape of a tensor, if the file has it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.info(name).map(|info| &info.shape[..])
    }

    /// Rows of an F32 tensor of shape `[T, width]`. Errors: [`Error::Trace`] if there is no such tensor, of
    /// that dtype and rank, or no such rows; [`Error::Io`].
    pub fn f32_rows(&self, name: &str, rows: Range<usize>) -> Result<Array2<f32>> {
        let info = self.info(name, &[Dtype::F32])?;
        let &[height, width] = &info.shape[..] else {
            return Err(self.refuse(format!("`{name}` of two dimensions"), format!("{:?}", info.shape)));
        };
        if rows.end > height || rows.start > rows.end {
            return Err(self.refuse(format!("rows {rows:?} of `{name}`"), format!("{height} rows")));
        }
        let shape = (rows.len(), width);
        let bytes = self.bytes(info, rows.start * width * 4..rows.end * width * 4)?;
        Ok(Array2::from_shape_vec(shape, f32_of(&bytes)).expect("as many values as the shape says"))
    }

    /// A whole tensor's dtype, shape and bytes. Errors: [`Error::Trace`] if it is missing or of a dtype that
    /// is not in `allowed`; [`Error::Io`].
    pub(super) fn tensor(&self, name: &str, allowed: &[Dtype]) -> Result<(Dtype, Vec<usize>, Vec<u8>)> {
        let info = self.info(name, allowed)?;
        let bytes = self.bytes(info, 0..info.data_offsets.1 - info.data_offsets.0)?;
        Ok((info.dtype, info.shape.clone(), bytes))
    }

    /// A refusal of this file.
    pub fn refuse(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        let (expected, found) = (expected.into(), found.into());
        Error::Trace { path: self.path.clone(), expected, found, next: NEXT.into() }
    }

    fn info(&self, name: &str, allowed: &[Dtype]) -> Result<&TensorInfo> {
        let info = self
            .header
            .info(name)
            .ok_or_else(|| self.refuse(format!("a tensor `{name}`"), "no such tensor"))?;
        if !allowed.contains(&info.dtype) {
            let words: Vec<String> = allowed.iter().map(Dtype::to_string).collect();
            let expected = format!("tensor `{name}` of dtype {}", words.join(" or "));
            return Err(self.refuse(expected, info.dtype.to_string()));
        }
        Ok(info)
    }

    fn bytes(&self, info: &TensorInfo, part: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; part.len()];
        let offset = self.data_start + (info.data_offsets.0 + part.start) as u64;
        self.file.read_exact_at(&mut bytes, offset).map_err(Error::io("read", &self.path, NEXT))?;
        Ok(bytes)
    }
}

/// Little-endian bytes as f32.
pub(super) fn f32_of(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect()
}

/// Little-endian bytes of an I16 or I32 tensor as i32.
pub(super) fn i32_of(dtype: Dtype, bytes: &[u8]) -> Vec<i32> {
    match dtype {
        Dtype::I16 => bytes.as_chunks().0.iter().map(|&two| i16::from_le_bytes(two).into()).collect(),
        Dtype::I32 => bytes.as_chunks().0.iter().map(|&four| i32::from_le_bytes(four)).collect(),
        other => panic!("a tensor of ids has dtype I16 or I32, not {other}"),
    }
}
