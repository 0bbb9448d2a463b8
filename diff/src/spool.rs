//! Rows of f32 on disk, for what is too large to keep: the reference's logits.
//!
//! One temporary file, already unlinked, so that it is gone whenever the process is. It lies in the system's
//! temporary folder (`TMPDIR`) and needs `rows * width * 4` bytes there.
//! Absent on purpose: memory maps, caches and a file format; only the process that wrote it reads it.

use ndarray::{Array2, ArrayView2};
use spec::{Error, Result};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of one value.
const VALUE_BYTES: usize = size_of::<f32>();

/// Rows of several runs in one file; the rows of each run are appended in order of position.
#[derive(Debug)]
pub struct Spool {
    file: File,
    width: usize,
    runs: Vec<Extent>,
}

#[derive(Debug)]
struct Extent {
    /// First row of the run in the file.
    first: usize,
    /// Rows the run will have.
    len: usize,
    /// Rows written so far.
    written: usize,
}

impl Spool {
    /// An empty spool for `lengths[run]` rows of `width` values of each run. Errors: [`Error::Io`].
    pub fn create(lengths: &[usize], width: usize) -> Result<Self> {
        let next = "set TMPDIR to a folder that can be written to";
        let file = tempfile::tempfile().map_err(Error::io("create a file in", std::env::temp_dir(), next))?;
        Ok(Self::in_file(file, lengths, width))
    }

    fn in_file(file: File, lengths: &[usize], width: usize) -> Self {
        let mut first = 0;
        let extent = |&len: &usize| {
            first += len;
            Extent { first: first - len, len, written: 0 }
        };
        Self { file, width, runs: lengths.iter().map(extent).collect() }
    }

    /// Appends rows of one run, `[n, width]`. Panics on another width, or on more rows than the run was to
    /// have. Errors: [`Error::Io`], above all on a full disk.
    pub fn append(&mut self, run: usize, rows: ArrayView2<'_, f32>) -> Result<()> {
        assert_eq!(rows.ncols(), self.width, "values per row of the spool");
        let extent = &self.runs[run];
        assert!(extent.written + rows.nrows() <= extent.len, "more rows than run {run} was to have");
        let contiguous = rows.as_standard_layout();
        let values = contiguous.as_slice().expect("standard layout is contiguous");
        let offset = self.offset(extent.first + extent.written);
        self.file
            .write_all_at(bytemuck::cast_slice(values), offset)
            .map_err(|source| self.refused(source))?;
        self.runs[run].written += rows.nrows();
        Ok(())
    }

    /// Rows of one run, by position, `[rows.len(), width]`. Errors: [`Error::Unpaired`] on rows that were
    /// never written, [`Error::Io`].
    pub fn read(&self, run: usize, rows: Range<usize>) -> Result<Array2<f32>> {
        let extent = &self.runs[run];
        if rows.end > extent.written {
            return Err(Error::Unpaired {
                expected: format!("rows {rows:?} of run {run} in the spool"),
                found: format!("{} rows", extent.written),
                next: "check that both sides ran the same cases".into(),
            });
        }
        let offset = self.offset(extent.first + rows.start);
        let mut read = Array2::zeros((rows.len(), self.width));
        let values = read.as_slice_mut().expect("a new array is contiguous");
        let next = "check the disk that TMPDIR names";
        let io = Error::io("read a temporary file in", std::env::temp_dir(), next);
        self.file.read_exact_at(bytemuck::cast_slice_mut(values), offset).map_err(io)?;
        Ok(read)
    }

    fn offset(&self, row: usize) -> u64 {
        row as u64 * (self.width * VALUE_BYTES) as u64
    }

    fn refused(&self, source: std::io::Error) -> Error {
        let rows: usize = self.runs.iter().map(|extent| extent.len).sum();
        let mib = self.offset(rows).div_ceil(1 << 20);
        let next = format!(
            "the logits need {mib} MiB: free them there, set TMPDIR to a folder with room, or \
                            compare fewer tokens"
        );
        Error::io("write a temporary file in", std::env::temp_dir(), next)(source)
    }
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
        let mut spool = Spool::in_file(File::open(&path).unwrap(), &[3, 1 << 20], 2);
        let message = spool.append(0, array![[1.0, 2.0]].view()).unwrap_err().to_string();
        assert!(message.starts_with("failed to write a temporary file in"), "{message}");
        assert!(message.contains("need 9 MiB"), "(2^20 + 3) rows of 8 bytes: {message}");
        assert!(message.contains("TMPDIR"), "{message}");
    }
}
