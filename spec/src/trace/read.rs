//! Reads a `moe-trace/1` file into a [`Trace`] and checks it.

use super::tensors::{Dtype, TensorFile, f32_of, i32_of};
use super::{Candidates, Meta, Origin, Trace, write};
use crate::{Error, LayerId, Result, TokenId, hash};
use ndarray::{Array, Array2, Array3, Dimension};
use std::path::Path;

impl Trace {
    /// Reads and checks a trace file. Errors: [`Error::Io`]; [`Error::Trace`] for a file that is cut short,
    /// lacks a tensor or key, has one of another dtype or shape, is no sound record ([`Trace::check`]), or
    /// whose ids or tokens are not those it was written with.
    pub fn read(path: &Path) -> Result<Self> {
        let file = TensorFile::open(path)?;
        let meta = Meta::read(&file)?;
        let ids_dtype = write::ids_dtype(meta.num_experts);
        let whole = |name: &str| optional(&file, name, |name| ids(&file, name, ids_dtype));
        let trace = Self {
            path: path.into(),
            ids: ids(&file, "ids", ids_dtype)?,
            layers: list(&file, "layers", |id| usize::try_from(id).ok().map(LayerId))?,
            tokens: list(&file, "tokens", |id| u32::try_from(id).ok().map(TokenId))?,
            weights: optional(&file, "weights", |name| f32s(&file, name))?,
            candidates: candidates(&file, ids_dtype)?,
            origin: optional(&file, "origin", |name| origin(&file, name))?,
            call: optional(&file, "call", |name| list(&file, name, |call| u32::try_from(call).ok()))?,
            shadow: whole("shadow_ids")?,
            meta,
        };
        trace.check()?;
        check_hash(&file, "ids_sha256", "ids", ids_dtype)?;
        if file.metadata("tokens_sha256").is_some() {
            check_hash(&file, "tokens_sha256", "tokens", Dtype::I32)?;
        }
        Ok(trace)
    }
}

fn optional<T>(file: &TensorFile, name: &str, read: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
    file.shape(name).is_some().then(|| read(name)).transpose()
}

fn candidates(file: &TensorFile, dtype: Dtype) -> Result<Option<Candidates>> {
    if ["cand_ids", "cand_sel", "cand_logit"].iter().all(|name| file.shape(name).is_none()) {
        return Ok(None);
    }
    let ids = ids(file, "cand_ids", dtype)?;
    Ok(Some(Candidates { ids, sel: f32s(file, "cand_sel")?, logit: f32s(file, "cand_logit")? }))
}

fn ids(file: &TensorFile, name: &str, dtype: Dtype) -> Result<Array3<i32>> {
    let (dtype, shape, bytes) = file.tensor(name, &[dtype])?;
    shaped(file, name, &shape, i32_of(dtype, &bytes))
}

fn f32s(file: &TensorFile, name: &str) -> Result<Array3<f32>> {
    let (_, shape, bytes) = file.tensor(name, &[Dtype::F32])?;
    shaped(file, name, &shape, f32_of(&bytes))
}

fn origin(file: &TensorFile, name: &str) -> Result<Array2<Origin>> {
    let (_, shape, bytes) = file.tensor(name, &[Dtype::U8])?;
    let known = |&byte: &u8| match byte {
        0 => Ok(Origin::Missing),
        1 => Ok(Origin::Live),
        2 => Ok(Origin::Forced),
        3 => Ok(Origin::HashTable),
        4 => Ok(Origin::Imported),
        other => Err(file.refuse("`origin` from 0 to 4", other.to_string())),
    };
    shaped(file, name, &shape, bytes.iter().map(known).collect::<Result<Vec<_>>>()?)
}

/// A one-dimensional I32 tensor whose values `known` accepts.
fn list<T>(file: &TensorFile, name: &str, known: impl Fn(i32) -> Option<T>) -> Result<Vec<T>> {
    let (dtype, shape, bytes) = file.tensor(name, &[Dtype::I32])?;
    if shape.len() != 1 {
        return Err(file.refuse(format!("`{name}` of one dimension"), format!("shape {shape:?}")));
    }
    let refuse = |value: i32| file.refuse(format!("`{name}` of 0 or more"), value.to_string());
    i32_of(dtype, &bytes).into_iter().map(|value| known(value).ok_or_else(|| refuse(value))).collect()
}

fn shaped<T, D: Dimension>(
    file: &TensorFile,
    name: &str,
    shape: &[usize],
    values: Vec<T>,
) -> Result<Array<T, D>> {
    let array = Array::from_shape_vec(shape, values).expect("as many values as the shape says");
    array.into_dimensionality().map_err(|_| {
        let wanted = D::NDIM.expect("a fixed number of dimensions");
        file.refuse(format!("`{name}` of {wanted} dimensions"), format!("shape {shape:?}"))
    })
}

fn check_hash(file: &TensorFile, key: &str, name: &str, dtype: Dtype) -> Result<()> {
    let (_, _, bytes) = file.tensor(name, &[dtype])?;
    let found = hash::of_bytes(&bytes);
    match file.metadata(key) {
        Some(told) if told == found => Ok(()),
        told => {
            let told = told.unwrap_or("no such key").escape_debug().to_string();
            let expected = format!("metadata `{key}` to be the hash of `{name}`, {found}");
            Err::<(), Error>(file.refuse(expected, told))
        }
    }
}
