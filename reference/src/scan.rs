//! One pass over every byte of a checkpoint: hashes, and values that are not finite.
//!
//! Inputs: a folder. Outputs: a [`Scan`]. Absent on purpose: names and shapes; [`survey`](fn@crate::survey)
//! checks those.

use crate::checkpoint::{Entry, Files, ShardId};
use crate::decode;
use rayon::prelude::*;
use safetensors::Dtype;
use serde::Serialize;
use sha2::{Digest, Sha256};
use spec::{Error, Result, hash};
use std::path::Path;

/// What a pass over all bytes found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scan {
    /// Of one file: its SHA-256. Of shards: the SHA-256 of the lines `name␠␠hash\n`, sorted by name, where
    /// hash is each file's SHA-256. Lower-case hex.
    pub weights_sha256: String,
    /// SHA-256 of `config.json`, lower-case hex.
    pub config_sha256: String,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Number of tensors in which every NaN and infinity was looked for: those in BF16, F16, F32 and FP8
    /// E4M3, and packed codes (U32), which have neither. Those of other dtypes are only hashed.
    pub tensors_checked: usize,
    /// The first bad value of every tensor that has one, by tensor name.
    pub not_finite: Vec<NotFinite>,
}

/// A number that is NaN or infinite, as it is stored: a value, a scale, a bias, an FP8 code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotFinite {
    /// The tensor.
    pub tensor: String,
    /// The shard it is in.
    pub file: String,
    /// The value and its index: `NaN at [3, 17]`.
    pub found: String,
}

/// Bytes hashed and looked at in one go.
const BLOCK: usize = 1 << 20;

/// Reads every byte of `dir`'s shards once, shards in parallel on rayon's global pool. `progress` is told the
/// bytes of each block when it is done. Errors: [`Error::Io`], and the first problem of the set of files.
pub fn scan(dir: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<Scan> {
    let config = hash::of_file(&dir.join("config.json"), &mut |_| {})?;
    let files = Files::read(dir)?;
    if let Some(problem) = files.problems.first() {
        return Err(Error::from(problem.clone()));
    }
    let shards: Vec<ShardScan> =
        (0..files.shards.len()).into_par_iter().map(|id| scan_shard(&files, ShardId(id), progress)).collect();
    let mut not_finite: Vec<_> = shards.iter().flat_map(|shard| shard.not_finite.clone()).collect();
    not_finite.sort();
    let hashes =
        files.shards.iter().zip(&shards).map(|(file, scan)| (file.name.clone(), scan.sha256.clone()));
    Ok(Scan {
        weights_sha256: hash_of_hashes(hashes.collect()),
        config_sha256: config,
        bytes: files.shards.iter().map(|shard| shard.map.len() as u64).sum(),
        tensors_checked: shards.iter().map(|shard| shard.tensors_checked).sum(),
        not_finite,
    })
}

fn hash_of_hashes(mut files: Vec<(String, String)>) -> String {
    if let [(_, only)] = files.as_slice() {
        return only.clone();
    }
    files.sort();
    let lines: String = files.iter().map(|(name, hash)| format!("{name}  {hash}\n")).collect();
    hash::of_bytes(lines.as_bytes())
}

struct ShardScan {
    sha256: String,
    tensors_checked: usize,
    not_finite: Vec<NotFinite>,
}

fn scan_shard(files: &Files, id: ShardId, progress: &(dyn Fn(u64) + Sync)) -> ShardScan {
    let shard = &files.shards[id.0];
    let mut tensors: Vec<(&String, &Entry)> =
        files.entries.iter().filter(|(_, entry)| entry.shard == id).collect();
    tensors.sort_by_key(|(_, entry)| (entry.bytes.start, entry.bytes.end));
    let mut hasher = Sha256::new();
    let mut hash = |bytes: &[u8]| {
        hasher.update(bytes);
        progress(bytes.len() as u64);
    };
    let header_end = tensors.first().map_or(shard.map.len(), |(_, entry)| entry.bytes.start);
    hash(&shard.map[..header_end]);
    let mut at = header_end;
    let mut values = vec![0.0; BLOCK];
    let mut scan = ShardScan { sha256: String::new(), tensors_checked: 0, not_finite: Vec::new() };
    for (name, entry) in tensors {
        // the header was checked: tensors lie end to end up to the end of the file
        assert_eq!(entry.bytes.start, at, "tensor `{name}` starts where the one before it ends");
        at = entry.bytes.end;
        let known = matches!(entry.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32 | Dtype::F8_E4M3);
        scan.tensors_checked += usize::from(known || entry.dtype == Dtype::U32);
        let mut bad = None;
        for (block, bytes) in shard.map[entry.bytes.clone()].chunks(BLOCK).enumerate() {
            hash(bytes);
            if known && bad.is_none() {
                let element = decode::element_bytes(entry.dtype);
                let values = &mut values[..bytes.len() / element];
                decode::widen(entry.dtype, bytes, values);
                let first = decode::first_not_finite(values);
                bad = first.map(|i| (values[i], block * BLOCK / element + i));
            }
        }
        shard.release(&entry.bytes);
        scan.not_finite.extend(bad.map(|(value, flat)| NotFinite {
            tensor: name.clone(),
            file: shard.name.clone(),
            found: decode::not_finite_words(value, &decode::index_of(flat, &entry.shape)),
        }));
    }
    assert_eq!(at, shard.map.len(), "every byte of {} was read", shard.name);
    scan.sha256 = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    scan
}
