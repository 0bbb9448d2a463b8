//! A safetensors file against its own header, before MLX sees it.
//!
//! MLX reads lazily and on threads of its own, where a short file ends the process; here it is an error.
//! Inputs: a path. Outputs: the names, dtypes and shapes that the header lists. Absent on purpose: tensor
//! data.

use crate::unique::Listed;
use safetensors::tensor::{Dtype, Metadata};
use serde::de::IgnoredAny;
use spec::{Error, Result};
use std::io::Read;
use std::path::Path;

/// Dtypes the port takes: plain ones (K3), FP8 (K4), and the words of packed matrices.
pub const SUPPORTED: [Dtype; 5] = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F8_E4M3, Dtype::U32];

const NEXT: &str = "download the file again";

/// Reads and checks a file's header: it fits into the file, it is valid and lists each tensor once, and the
/// data after it is exactly as long as it says. Errors: [`Error::Checkpoint`], [`Error::Io`], and
/// [`Error::Tensor`] for a dtype that is not [`SUPPORTED`].
pub fn check(path: &Path) -> Result<Metadata> {
    let mut file = std::fs::File::open(path).map_err(Error::io("open", path, "check the folder's files"))?;
    let bytes = file.metadata().map_err(Error::io("read", path, NEXT))?.len();
    let refuse = |expected: String, found: String| Error::Checkpoint {
        path: path.into(),
        expected,
        found,
        next: NEXT.into(),
    };
    if bytes < 8 {
        return Err(refuse("a safetensors header".into(), format!("{bytes} bytes")));
    }
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(Error::io("read", path, NEXT))?;
    let header_bytes = u64::from_le_bytes(prefix);
    if header_bytes > bytes - 8 {
        let expected = format!("a header within the file's {bytes} bytes");
        return Err(refuse(expected, format!("a header of {header_bytes} bytes")));
    }
    let mut header = vec![0; usize::try_from(header_bytes).expect("64-bit usize")];
    file.read_exact(&mut header).map_err(Error::io("read", path, NEXT))?;
    let invalid = |e: serde_json::Error| refuse("a valid safetensors header".into(), e.to_string());
    let metadata: Metadata = serde_json::from_slice(&header).map_err(invalid)?;
    serde_json::from_slice::<Listed<IgnoredAny>>(&header).map_err(invalid)?;
    let data_bytes = metadata.data_len() as u64;
    if data_bytes != bytes - 8 - header_bytes {
        let expected = format!("{data_bytes} bytes of data, as its header says");
        return Err(refuse(expected, format!("{} bytes", bytes - 8 - header_bytes)));
    }
    check_dtypes(path, &metadata)?;
    Ok(metadata)
}

fn check_dtypes(path: &Path, metadata: &Metadata) -> Result<()> {
    let tensors = metadata.tensors();
    let mut unsupported: Vec<_> = tensors.iter().filter(|(_, t)| !SUPPORTED.contains(&t.dtype)).collect();
    unsupported.sort_by_key(|(name, _)| name.as_str());
    match unsupported.first() {
        None => Ok(()),
        Some((name, tensor)) => Err(Error::Tensor {
            path: path.into(),
            name: name.to_string(),
            expected: "BF16, F16, F32, F8_E4M3, or U32 where it is packed".into(),
            found: format!("{:?}", tensor.dtype),
            next: "convert the checkpoint to BF16".into(),
        }),
    }
}
