//! SHA-256 of files and bytes, as lower-case hex.

use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// SHA-256 of bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

/// SHA-256 of a file's content; `progress` is told the bytes of each block read. Errors: [`Error::Io`].
pub fn of_file(path: &Path, progress: &mut dyn FnMut(u64)) -> Result<String> {
    let next = "check that the file exists and can be read";
    let mut file = File::open(path).map_err(Error::io("open", path, next))?;
    let mut hasher = Sha256::new();
    let mut block = vec![0_u8; 1 << 20];
    loop {
        let read = file.read(&mut block).map_err(Error::io("read", path, next))?;
        if read == 0 {
            return Ok(hex(hasher.finalize().as_slice()));
        }
        hasher.update(&block[..read]);
        progress(read as u64);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
