//! Which recording of one side belongs to which of the other, and whether the two are of the same thing.

use super::sites::{self, SitesFile};
use spec::trace::{self, Trace};
use spec::{Case, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The recordings of one case by both sides.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) reference: Recording,
    pub(super) port: Recording,
}

/// One side's recording of a case.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) trace: Trace,
    /// `None` where no site was kept.
    pub(super) sites: Option<SitesFile>,
}

/// The trace files to compare, paired by the name of the case; two single files are a pair whatever their
/// names.
/// Errors: [`Error::Unpaired`] if a case is on one side only; [`Error::Trace`] on a folder without traces;
/// [`Error::Io`].
pub(super) fn find(reference: &Path, port: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let (left, right) = (listing(reference)?, listing(port)?);
    let names = |side: &BTreeMap<String, PathBuf>| {
        side.keys().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>()
    };
    if (reference.is_dir() || port.is_dir()) && !left.keys().eq(right.keys()) {
        return Err(Error::Unpaired {
            expected: format!("the reference's cases ({})", names(&left).join(", ")),
            found: format!("{} in {}", names(&right).join(", "), port.display()),
            next: "record both sides on the same cases".into(),
        });
    }
    // both are in order of name, and there are as many
    Ok(left.into_values().zip(right.into_values()).collect())
}

/// Trace files by the name of the case.
fn listing(path: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let name = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.strip_suffix(trace::SUFFIX).map(str::to_owned)
    };
    if !path.is_dir() {
        let name = name(path).unwrap_or_else(|| path.display().to_string());
        return Ok([(name, path.to_owned())].into());
    }
    let next = "name a folder or trace made by `assay run`";
    let mut found = BTreeMap::new();
    for entry in path.read_dir().map_err(Error::io("list", path, next))? {
        let file = entry.map_err(Error::io("list", path, next))?.path();
        found.extend(name(&file).map(|name| (name, file)));
    }
    if found.is_empty() {
        return Err(Error::Trace {
            path: path.into(),
            expected: format!("a folder with files named *{}", trace::SUFFIX),
            found: "none".into(),
            next: next.into(),
        });
    }
    Ok(found)
}

impl Pair {
    /// Reads both traces and opens their sites. Errors: [`Error::Trace`] if one is malformed, they are not of
    /// one checkpoint, text, and set of layers, or the port's is given as the reference's; [`Error::Io`].
    pub(super) fn open(reference: &Path, port: &Path) -> Result<Self> {
        let pair = Self { reference: Recording::open(reference)?, port: Recording::open(port)? };
        let (expected, found) = (&pair.reference.trace, &pair.port.trace);
        if (expected.meta.side(), found.meta.side()) == (Some("port"), Some("reference")) {
            let told = format!("the port's first and the reference's second, {}", found.path.display());
            let next = "give the two the other way round";
            return Err(expected.refuse("the reference's recording first and the port's second", told, next));
        }
        let hashes = (&expected.meta.weights_sha256, &expected.meta.config_sha256);
        let (Some(weights), Some(config)) = hashes else {
            let next = "record the reference's trace with `assay run`";
            return Err(expected.refuse("weights_sha256 and config_sha256 in its metadata", "none", next));
        };
        found.check_same_checkpoint(weights, config)?;
        found.check_tokens(&Case { name: expected.meta.case.clone(), tokens: expected.tokens.clone() })?;
        check_layers(expected, found)?;
        check_rows(expected, found)?;
        Ok(pair)
    }
}

impl Recording {
    fn open(path: &Path) -> Result<Self> {
        let trace = Trace::read(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = name.strip_suffix(trace::SUFFIX).map(|case| format!("{case}{}", sites::SUFFIX));
        let beside = beside.map(|name| path.with_file_name(name)).filter(|path| path.exists());
        let sites = beside.map(|path| SitesFile::open(&path, &trace)).transpose()?;
        Ok(Self { trace, sites })
    }
}

/// Refuses a trace of other layers, experts or k.
pub(super) fn check_layers(expected: &Trace, found: &Trace) -> Result<()> {
    let layers = |trace: &Trace| {
        let ids: Vec<usize> = trace.layers.iter().map(|layer| layer.0).collect();
        format!("{} layers {ids:?} of {} experts, k {}", ids.len(), trace.meta.num_experts, trace.meta.k)
    };
    let (wanted, layers) = (layers(expected), layers(found));
    if wanted == layers {
        return Ok(());
    }
    let next = "record both traces on the same checkpoint";
    Err(found.refuse(wanted, format!("another number or set, {layers}"), next))
}

fn check_rows(expected: &Trace, found: &Trace) -> Result<()> {
    let rows = |trace: &Trace| format!("{} rows from position {}", trace.rows(), trace.meta.pos0);
    let (wanted, rows) = (rows(expected), rows(found));
    if wanted == rows {
        return Ok(());
    }
    Err(found.refuse(wanted, rows, "record both traces over the whole text"))
}
