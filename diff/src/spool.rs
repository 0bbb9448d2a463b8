//! Rows of f32 on disk, for what is too large to keep: the reference's logits, and a gate's reference rows.
//!
//! One temporary file, already unlinked, so that it is gone whenever the process is. It lies in the system's
//! temporary folder (`TMPDIR`) and needs `rows * width * 4` bytes there, summed over its extents.
//! Absent on purpose: memory maps, caches and a file format; only the process that wrote it reads it.

use ndarray::{Array2, ArrayView2};
use spec::{Error, Result};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of one value.
const VALUE_BYTES: usize = size_of::<f32>();

/// Rows under several keys (a run; a run, layer and site) in one file; the rows of each key are appended in
/// order of position.
#[derive(Debug)]
pub struct Spool<K> {
    file: File,
    extents: BTreeMap<K, Extent>,
}

#[derive(Debug)]
struct Extent {
    /// Offset of its first value, in values.
    first: usize,
    /// Rows it will have.
    len: usize,
    /// Values per row.
    width: usize,
    /// Rows written so far.
    written: usize,
}

impl<K: Ord + Debug> Spool<K> {
    /// An empty spool with room for `(key, rows, values per row)`. Errors: [`Error::Io`].
    pub fn create(extents: impl IntoIterator<Item = (K, usize, usize)>) -> Result<Self> {
        let next = "set TMPDIR to a folder that can be written to";
        let file = tempfile::tempfile().map_err(Error::io("create a file in", std::env::temp_dir(), next))?;
        Ok(Self::in_file(file, extents))
    }

    fn in_file(file: File, extents: impl IntoIterator<Item = (K, usize, usize)>) -> Self {
        let mut end = 0;
        let extent = |(key, len, width)| {
            let first = end;
            end += len * width;
            (key, Extent { first, len, width, written: 0 })
        };
        Self { file, extents: extents.into_iter().map(extent).collect() }
    }

    /// Whether there is room for rows of this key.
    pub fn has(&self, key: &K) -> bool {
        self.extents.contains_key(key)
    }

    /// Appends rows of one key, `[n, width]`. Panics on an unknown key, another width, or more rows than the
    /// key was to have. Errors: [`Error::Io`], above all on a full disk.
    pub fn append(&mut self, key: &K, rows: ArrayView2<'_, f32>) -> Result<()> {
        let extent = self.extents.get(key).unwrap_or_else(|| panic!("no room for {key:?} in the spool"));
        assert_eq!(rows.ncols(), extent.width, "values per row of {key:?} in the spool");
        assert!(extent.written + rows.nrows() <= extent.len, "more rows than {key:?} was to have");
        let contiguous = rows.as_standard_layout();
        let values = contiguous.as_slice().expect("standard layout is contiguous");
        let offset = offset(extent, extent.written);
        self.file
            .write_all_at(bytemuck::cast_slice(values), offset)
            .map_err(|source| self.refused(source))?;
        self.extents.get_mut(key).expect("found above").written += rows.nrows();
        Ok(())
    }

    /// Rows of one key, by position, `[rows.len(), width]`. Panics on an unknown key. Errors:
    /// [`Error::Unpaired`] on rows that were never written, [`Error::Io`].
    pub fn read(&self, key: &K, rows: Range<usize>) -> Result<Array2<f32>> {
        let extent = self.extents.get(key).unwrap_or_else(|| panic!("no room for {key:?} in the spool"));
        if rows.end > extent.written {
            return Err(Error::Unpaired {
                expected: format!("rows {rows:?} of {key:?} in the spool"),
                found: format!("{} rows", extent.written),
                next: "check that both sides ran the same cases".into(),
            });
        }
        let mut read = Array2::zeros((rows.len(), extent.width));
        let values = read.as_slice_mut().expect("a new array is contiguous");
        let next = "check the disk that TMPDIR names";
        let io = Error::io("read a temporary file in", std::env::temp_dir(), next);
        let offset = offset(extent, rows.start);
        self.file.read_exact_at(bytemuck::cast_slice_mut(values), offset).map_err(io)?;
        Ok(read)
    }

    /// All rows of one key. Panics and errors as [`Spool::read`].
    pub fn all(&self, key: &K) -> Result<Array2<f32>> {
        let len = self.extents.get(key).map_or(0, |extent| extent.len);
        self.read(key, 0..len)
    }

    fn refused(&self, source: std::io::Error) -> Error {
        let values: usize = self.extents.values().map(|extent| extent.len * extent.width).sum();
        let mib = (values * VALUE_BYTES).div_ceil(1 << 20);
        let next = format!(
            "its rows need {mib} MiB: free them there, set TMPDIR to a folder with room, or use fewer tokens"
        );
        Error::io("write a temporary file in", std::env::temp_dir(), next)(source)
    }
}

fn offset(extent: &Extent, row: usize) -> u64 {
    ((extent.first + row * extent.width) * VALUE_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn a_refused_write_says_how_much_room_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read-only");
        std::fs::write(&path, []).unwrap();
        let mut spool = Spool::in_file(File::open(&path).unwrap(), [(0, 3, 2), (1, 1 << 20, 2)]);
        let message = spool.append(&0, array![[1.0, 2.0]].view()).unwrap_err().to_string();
        assert!(message.starts_with("failed to write a temporary file in"), "{message}");
        assert!(message.contains("need 9 MiB"), "(2^20 + 3) rows of 8 bytes: {message}");
        assert!(message.contains("TMPDIR"), "{message}");
    }
}
