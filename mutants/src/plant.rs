//! One or several rows of the catalogue, planted together.

use crate::edit::Edit;
use crate::mutant::{Facts, Mutant, PortPlant};
use crate::{catalogue, find, port, reference};
use spec::{Error, Result};

/// The rows of ids with commas between them. Errors: [`Error::Argument`] on an id that is not in the
/// catalogue, or named twice.
pub fn find_all(ids: &str) -> Result<Vec<&'static Mutant>> {
    let mut found: Vec<&'static Mutant> = Vec::new();
    for id in ids.split(',').map(str::trim) {
        let mutant = find(id).ok_or_else(|| unknown(id))?;
        if found.iter().any(|other| other.id == id) {
            return Err(refuse(ids, "each planted bug once", format!("`{id}` twice")));
        }
        found.push(mutant);
    }
    Ok(found)
}

/// The port's steps with all of them, those that a checkpoint has apart. Errors: [`Error::Argument`] on a row
/// that the port cannot have, and on two that are in the same step or one in a step of the other.
pub fn port_steps(mutants: &[&'static Mutant]) -> Result<Box<dyn ::port::Steps>> {
    let mut parts: Vec<(&'static [port::Step], Box<dyn ::port::Steps>)> = Vec::new();
    for mutant in mutants {
        match mutant.port {
            None => return Err(not_of(mutant, "the port")),
            Some(PortPlant::Checkpoint(_)) => {}
            Some(PortPlant::Steps { of, make }) => {
                if parts.iter().any(|(other, _)| !port::are_apart(of, other)) {
                    return Err(clash(mutants));
                }
                parts.push((of, make()));
            }
        }
    }
    Ok(match parts.len() {
        1 => parts.remove(0).1,
        _ => Box::new(port::Both(parts)),
    })
}

/// The edits of the checkpoint that all of them need, in order; empty if none does.
pub fn edits(mutants: &[&'static Mutant], facts: &Facts<'_>) -> Vec<Edit> {
    let of = |mutant: &&'static Mutant| match mutant.port {
        Some(PortPlant::Checkpoint(edits)) => edits(facts),
        _ => Vec::new(),
    };
    mutants.iter().flat_map(of).collect()
}

/// The reference's steps with all of them. Errors: as [`port_steps`].
pub fn reference_steps(mutants: &[&'static Mutant]) -> Result<Box<dyn ::reference::Steps>> {
    let mut parts: Vec<(&'static [reference::Step], Box<dyn ::reference::Steps>)> = Vec::new();
    for mutant in mutants {
        let plant = mutant.reference().ok_or_else(|| not_of(mutant, "the reference"))?;
        if parts.iter().any(|(other, _)| !reference::are_apart(plant.of, other)) {
            return Err(clash(mutants));
        }
        parts.push((plant.of, (plant.make)()));
    }
    Ok(match parts.len() {
        1 => parts.remove(0).1,
        _ => Box::new(reference::Both(parts)),
    })
}

fn not_of(mutant: &Mutant, side: &str) -> Error {
    refuse(mutant.id, &format!("a planted bug that {side} can have"), format!("`{}`", mutant.id))
}

fn clash(mutants: &[&'static Mutant]) -> Error {
    let ids: Vec<&str> = mutants.iter().map(|mutant| mutant.id).collect();
    refuse(&ids.join(","), "bugs in steps that are apart", "two that are in one step".into())
}

fn unknown(id: &str) -> Error {
    let ids: Vec<&str> = catalogue().map(|mutant| mutant.id).collect();
    refuse(id, &format!("one of {}", ids.join(", ")), format!("`{id}`"))
}

fn refuse(what: &str, expected: &str, found: String) -> Error {
    Error::Argument {
        what: format!("planted bug {what}"),
        expected: expected.into(),
        found,
        next: "see `assay mutants list`".into(),
    }
}
