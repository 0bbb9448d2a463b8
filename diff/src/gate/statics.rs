//! The tensors as the port holds them against the reference's, name by name (K3).

use super::finding::Measurement;
use super::rows::Vectors;
use half::bf16;
use spec::{Error, Precision, Result, Side, hash};
use std::collections::BTreeMap;

/// What the reference holds: a hash of every tensor at either precision, and the one-dimensional ones.
pub(crate) struct Held {
    /// By name: of the f32 values, and of the same rounded to bf16.
    hashes: BTreeMap<String, [String; 2]>,
    pub(crate) vectors: Vectors,
}

/// Visits every tensor of the reference. Errors: the reference's.
pub(crate) fn of_reference(reference: &dyn Side) -> Result<Held> {
    let mut held = Held { hashes: BTreeMap::new(), vectors: BTreeMap::new() };
    reference.tensors(&mut |name, values| {
        let hashes = [hash_of(values, Precision::F32), hash_of(values, Precision::Bf16)];
        held.hashes.insert(name.into(), hashes);
        if name.ends_with("norm.weight") || name.ends_with(".expert_bias") {
            held.vectors.insert(name.into(), values.into());
        }
        Ok(())
    })?;
    Ok(held)
}

/// How many tensors the ports hold otherwise than the file, or not at all, or beside it. Errors: the ports'.
pub(crate) fn measure(held: &Held, ports: &[&dyn Side]) -> Result<Measurement> {
    let (mut wrong, mut first) = (0, None);
    for port in ports {
        let precision = port.describe().precision;
        let mut seen = BTreeMap::new();
        port.tensors(&mut |name, values| {
            let twice = seen.insert(name.to_owned(), hash_of(values, precision)).is_some();
            match twice {
                false => Ok(()),
                true => Err(Error::Unpaired {
                    expected: "each tensor of the port once".into(),
                    found: format!("`{name}` twice"),
                    next: "mend the port's list of tensors".into(),
                }),
            }
        })?;
        let index = usize::from(precision == Precision::Bf16);
        let differs = |name: &&String| seen.get(*name) != held.hashes.get(*name).map(|both| &both[index]);
        let names: std::collections::BTreeSet<&String> = held.hashes.keys().chain(seen.keys()).collect();
        for name in names.into_iter().filter(differs) {
            wrong += 1;
            first.get_or_insert_with(|| format!("{name} ({})", precision.name()));
        }
    }
    let tensors = held.hashes.len() * ports.len();
    let leg = Measurement::new("static.weights", "tensors", tensors, f64::from(wrong));
    Ok(leg.at(first.unwrap_or_default()))
}

fn hash_of(values: &[f32], precision: Precision) -> String {
    match precision {
        Precision::F32 => hash::of_bytes(bytemuck::cast_slice(values)),
        Precision::Bf16 => {
            let rounded: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
            hash::of_bytes(bytemuck::cast_slice(&rounded))
        }
    }
}

/// A strict load that refused is one problem, which it names; a failure of another kind is an error.
pub(crate) fn census(loaded: Result<Box<dyn Side>>, tensors: usize) -> Result<Measurement> {
    let leg = |value, place: String| Measurement::new("static.census", "problems", tensors, value).at(place);
    match loaded {
        Ok(_) => Ok(leg(0.0, String::new())),
        // without the path: an edited checkpoint has another one in every run
        Err(Error::Tensor { name, expected, found, .. }) => {
            Ok(leg(1.0, format!("`{name}`: expected {expected}, found {found}")))
        }
        Err(Error::Checkpoint { expected, found, .. }) => {
            Ok(leg(1.0, format!("expected {expected}, found {found}")))
        }
        Err(failure) => Err(failure),
    }
}

impl Held {
    pub(crate) fn tensors(&self) -> usize {
        self.hashes.len()
    }
}
