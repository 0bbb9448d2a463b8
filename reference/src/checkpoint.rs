//! The files of a checkpoint: which there are, and which tensor lies where (K3).
//!
//! Inputs: a folder. Outputs: mapped shards, one [`Entry`] per tensor, and what is wrong with the set of
//! files. Absent on purpose: what the tensors should be (`survey`) and what is in them (`weights`).

use crate::survey::{Problem, ProblemKind};
use crate::unique::Unique;
use memmap2::{Mmap, UncheckedAdvice};
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::de::IgnoredAny;
use spec::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Index into [`Files::shards`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardId(pub usize);

/// One mapped file.
pub(crate) struct Shard {
    /// File name within the folder.
    pub name: String,
    pub path: PathBuf,
    pub map: Mmap,
    /// Number of tensors its header lists.
    pub tensors: usize,
}

/// Ranges shorter than this are not worth a system call; the scales of one expert's matrix are longer.
const RELEASED_BYTES_MIN: usize = 1 << 14;

impl Shard {
    /// Lets go of the memory behind a range that was read. Reading it again fetches it again.
    #[allow(unsafe_code)]
    pub fn release(&self, bytes: &Range<usize>) {
        if bytes.len() < RELEASED_BYTES_MIN {
            return;
        }
        // SAFETY: the map is read-only and of a file: pages that are dropped come back with the same bytes.
        let released =
            unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
        // a system that refuses keeps the pages, and nothing else changes
        drop(released);
    }
}

/// Where one tensor lies.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub shard: ShardId,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Byte range within the shard's file.
    pub bytes: Range<usize>,
}

impl Entry {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&size| size as u64).product()
    }
}

/// A checkpoint's files, as far as they could be read.
pub(crate) struct Files {
    pub dir: PathBuf,
    pub shards: Vec<Shard>,
    /// By name; of a tensor in two shards, the first.
    pub entries: BTreeMap<String, Entry>,
    /// What is wrong with the files, in the order found; names and shapes of tensors are not looked at.
    pub problems: Vec<Problem>,
    /// Whether every file that should be there was read; if not, a tensor not seen may still exist.
    pub complete: bool,
}

/// `weight_map` of the index: tensor name to file name.
type WeightMap = BTreeMap<String, String>;

impl Files {
    /// Maps every shard of `dir`. Errors: [`Error::Io`] where the system refuses; all else is in `problems`.
    pub fn read(dir: &Path) -> Result<Self> {
        let mut files = Files {
            dir: dir.into(),
            shards: Vec::new(),
            entries: BTreeMap::new(),
            problems: Vec::new(),
            complete: true,
        };
        let index = files.read_index()?;
        if !files.complete {
            return Ok(files);
        }
        let names: BTreeSet<String> = match &index {
            Some(map) => map.values().cloned().collect(),
            None => BTreeSet::from([SINGLE.to_string()]),
        };
        if !dir.join(INDEX).exists() && !dir.join(SINGLE).exists() {
            files.refuse(&dir.join(SINGLE), &format!("{SINGLE} or {INDEX}"), "neither", CHECK_FOLDER);
            files.complete = false;
            return Ok(files);
        }
        if index.is_some() && dir.join(SINGLE).exists() && !names.contains(SINGLE) {
            let found = format!("both, and {INDEX} does not name {SINGLE}");
            let next = "remove whichever of the two is stale";
            files.refuse(&dir.join(SINGLE), &format!("either {SINGLE} or {INDEX}"), &found, next);
        }
        for name in &names {
            files.read_shard(name, index.as_ref())?;
        }
        if let Some(index) = &index {
            files.check_index(index);
        }
        Ok(files)
    }

    /// The weight map; `None` if there is no index or it cannot be understood.
    fn read_index(&mut self) -> Result<Option<WeightMap>> {
        let path = self.dir.join(INDEX);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path, CHECK_FOLDER))?;
        #[derive(serde::Deserialize)]
        struct Index {
            weight_map: Unique<String>,
        }
        let expected = "a JSON object whose weight_map gives a file name for each tensor";
        match serde_json::from_str::<Index>(&text).map(|index| index.weight_map.0) {
            Ok(map) if map.is_empty() => {
                self.refuse(&path, expected, "an empty weight_map", FETCH_AGAIN);
            }
            Ok(map) => match map.values().find(|name| !is_plain_name(name)) {
                None => return Ok(Some(map)),
                Some(name) => {
                    let found = format!("the file name `{name}`");
                    self.refuse(&path, "plain file names in the same folder", &found, FETCH_AGAIN);
                }
            },
            Err(error) => self.refuse(&path, expected, &error.to_string(), FETCH_AGAIN),
        }
        self.complete = false;
        Ok(None)
    }

    fn read_shard(&mut self, name: &str, index: Option<&WeightMap>) -> Result<()> {
        let path = self.dir.join(name);
        if !path.exists() {
            let expected = if index.is_some() { "this shard, which the index names" } else { "this file" };
            self.refuse(&path, expected, "no such file", FETCH_AGAIN);
            self.complete = false;
            return Ok(());
        }
        let file = File::open(&path).map_err(Error::io("open", &path, CHECK_FOLDER))?;
        let map = map_file(&file).map_err(Error::io("map", &path, CHECK_FOLDER))?;
        let (header, metadata) = match read_header(&map) {
            Ok(read) => read,
            Err(error) => {
                let (expected, found) = header_words(&error, &map);
                self.refuse(&path, &expected, &found, FETCH_AGAIN);
                self.complete = false;
                return Ok(());
            }
        };
        let shard = ShardId(self.shards.len());
        let tensors: BTreeMap<_, _> = metadata.tensors().into_iter().collect();
        let data_start = size_of::<u64>() + header;
        self.shards.push(Shard { name: name.into(), path, map, tensors: tensors.len() });
        for (tensor, info) in tensors {
            let (start, end) = info.data_offsets;
            let bytes = data_start + start..data_start + end;
            let entry = Entry { shard, dtype: info.dtype, shape: info.shape.clone(), bytes };
            self.add(tensor, entry, index);
        }
        Ok(())
    }

    fn add(&mut self, tensor: String, entry: Entry, index: Option<&WeightMap>) {
        let shard = &self.shards[entry.shard.0];
        let mut problem = Problem {
            kind: ProblemKind::Duplicate,
            path: shard.path.clone(),
            tensor: Some(tensor.clone()),
            expected: "each tensor in one shard".into(),
            found: String::new(),
            next: FETCH_AGAIN.into(),
        };
        if let Some(first) = self.entries.get(&tensor) {
            problem.found = format!("it in {} as well", self.shards[first.shard.0].name);
            self.problems.push(problem);
            return;
        }
        if index.is_some_and(|index| !index.contains_key(&tensor)) {
            problem.kind = ProblemKind::Index;
            problem.expected = format!("every tensor of the shard in {INDEX}");
            problem.found = "a tensor that the index does not list".into();
            self.problems.push(problem);
        }
        self.entries.insert(tensor, entry);
    }

    /// Refuses an index that puts a tensor where it is not. Tensors of unreadable shards are passed over.
    fn check_index(&mut self, index: &WeightMap) {
        let readable: BTreeSet<String> = self.shards.iter().map(|shard| shard.name.clone()).collect();
        for (tensor, file) in index.iter().filter(|(_, file)| readable.contains(*file)) {
            let holder = self.entries.get(tensor).map(|entry| &self.shards[entry.shard.0].name);
            let duplicated = || self.problems.iter().any(|problem| problem.tensor.as_ref() == Some(tensor));
            if holder == Some(file) || holder.is_some() && duplicated() {
                continue;
            }
            self.problems.push(Problem {
                kind: ProblemKind::Index,
                path: self.dir.join(INDEX),
                tensor: Some(tensor.clone()),
                expected: format!("it in {file}, as the index says"),
                found: holder.map_or("it in no shard".into(), |holder| format!("it in {holder}")),
                next: FETCH_AGAIN.into(),
            });
        }
    }

    fn refuse(&mut self, path: &Path, expected: &str, found: &str, next: &str) {
        self.problems.push(Problem {
            kind: ProblemKind::File,
            path: path.into(),
            tensor: None,
            expected: expected.into(),
            found: found.into(),
            next: next.into(),
        });
    }
}

const CHECK_FOLDER: &str = "name a folder that holds a checkpoint and can be read";
const FETCH_AGAIN: &str = "fetch the checkpoint's files again";

fn is_plain_name(name: &str) -> bool {
    !name.starts_with('.') && !name.contains(['/', '\\']) && !name.is_empty()
}

#[allow(unsafe_code)]
fn map_file(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only and private to this crate. That nobody shortens or rewrites a checkpoint
    // while it is open is a condition of use, written at `Reference::open`; no safe call can ensure it.
    unsafe { Mmap::map(file) }
}

/// Length and content of a file's header. The safetensors crate keeps the last of two entries of one name;
/// here that is an error.
fn read_header(bytes: &[u8]) -> Result<(usize, Metadata), SafeTensorError> {
    let (length, metadata) = SafeTensors::read_metadata(bytes)?;
    serde_json::from_slice::<Unique<IgnoredAny>>(&bytes[size_of::<u64>()..][..length])
        .map_err(SafeTensorError::InvalidHeaderDeserialization)?;
    Ok((length, metadata))
}

/// What a sound file would hold, and what this one does, for an error of the safetensors crate.
fn header_words(error: &SafeTensorError, bytes: &[u8]) -> (String, String) {
    let size = bytes.len();
    let declared = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    match error {
        SafeTensorError::HeaderTooSmall => {
            ("a safetensors file, which has at least 8 bytes".into(), format!("a file of {size} bytes"))
        }
        SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength => (
            "a safetensors header that fits in the file".into(),
            format!("a header of {declared} bytes in a file of {size} bytes"),
        ),
        SafeTensorError::MetadataIncompleteBuffer => (
            "as many bytes as the header's tensors take".into(),
            format!("a file of {size} bytes, truncated or with bytes left over"),
        ),
        SafeTensorError::InvalidHeader(_)
        | SafeTensorError::InvalidHeaderDeserialization(_)
        | SafeTensorError::JsonError(_) => {
            let expected = "a safetensors header, which is JSON that names each tensor once";
            (expected.into(), format!("a header that is not: {error}"))
        }
        other => ("a safetensors file whose tensors lie end to end".into(), other.to_string()),
    }
}
