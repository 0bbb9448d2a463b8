//! Writes a [`Trace`] as a `moe-trace/1` file.

use super::tensors::{Dtype, Slot, whole};
use super::{Origin, Trace};
use crate::{Result, hash, output};
use ndarray::Array3;
use std::collections::BTreeMap;
use std::path::Path;

impl Trace {
    /// Checks the trace and writes it to `path`: whole or not at all, an older file replaced. Errors:
    /// [`crate::Error::Trace`] as from [`Trace::check`], [`crate::Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        self.check()?;
        let bytes = whole(self.contents(), &self.strings());
        output::write_file(path, |file| file.write_all(&bytes))
    }

    /// SHA-256 of the `ids` tensor as stored.
    pub fn ids_sha256(&self) -> String {
        hash::of_bytes(&id_bytes(&self.ids, ids_dtype(self.meta.num_experts)))
    }

    fn strings(&self) -> BTreeMap<String, String> {
        let mut strings = self.meta.strings();
        strings.insert("ids_sha256".into(), self.ids_sha256());
        strings.insert("tokens_sha256".into(), hash::of_bytes(&self.token_bytes()));
        strings
    }

    fn contents(&self) -> Vec<(Slot, Vec<u8>)> {
        let dtype = ids_dtype(self.meta.num_experts);
        let ids = |name: &str, ids: &Array3<i32>| (Slot::new(name, dtype, ids.shape()), id_bytes(ids, dtype));
        let f32s = |name: &str, values: &Array3<f32>| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (Slot::new(name, Dtype::F32, values.shape()), bytes)
        };
        let layers = i32_bytes(self.layers.iter().map(|layer| layer.0));
        let mut contents = vec![
            ids("ids", &self.ids),
            (Slot::new("layers", Dtype::I32, &[self.layers.len()]), layers),
            (Slot::new("tokens", Dtype::I32, &[self.tokens.len()]), self.token_bytes()),
        ];
        contents.extend(self.weights.as_ref().map(|weights| f32s("weights", weights)));
        if let Some(candidates) = &self.candidates {
            contents.push(ids("cand_ids", &candidates.ids));
            contents.push(f32s("cand_sel", &candidates.sel));
            contents.push(f32s("cand_logit", &candidates.logit));
        }
        contents.extend(self.origin.as_ref().map(|origin| {
            let bytes = origin.iter().map(|&origin: &Origin| origin as u8).collect();
            (Slot::new("origin", Dtype::U8, origin.shape()), bytes)
        }));
        contents.extend(self.call.as_ref().map(|call| {
            let bytes = i32_bytes(call.iter().map(|&call| call as usize));
            (Slot::new("call", Dtype::I32, &[call.len()]), bytes)
        }));
        contents.extend(self.shadow.as_ref().map(|shadow| ids("shadow_ids", shadow)));
        contents
    }

    fn token_bytes(&self) -> Vec<u8> {
        i32_bytes(self.tokens.iter().map(|token| token.index()))
    }
}

/// I16, or I32 where an id would not fit.
pub(super) fn ids_dtype(num_experts: usize) -> Dtype {
    if num_experts > 32_767 { Dtype::I32 } else { Dtype::I16 }
}

/// Panics on an id that [`Trace::check`] would refuse.
fn id_bytes(ids: &Array3<i32>, dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::I16 => {
            ids.iter().flat_map(|&id| i16::try_from(id).expect("a checked id").to_le_bytes()).collect()
        }
        _ => ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
    }
}

/// Panics on a number beyond i32: token ids, calls and layers are far below.
fn i32_bytes(values: impl Iterator<Item = usize>) -> Vec<u8> {
    values.flat_map(|value| i32::try_from(value).expect("a number that fits i32").to_le_bytes()).collect()
}
