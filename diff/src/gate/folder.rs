//! A run's folder: `record.json`, and for scripts `layers.csv` and `controls.json`. Each is written under
//! another name and renamed, after every step, so that at any moment the folder holds whole files.
//!
//! Absent on purpose: what the tables look like ([`Tables`] is handed in).

use super::record::{Record, SCHEMA};
use spec::unique_json::UniqueMap;
use spec::{Error, Result, output};
use std::path::Path;

/// The record's file.
pub const RECORD: &str = "record.json";

/// Makes `layers.csv` of a record.
pub type Tables = fn(&Record) -> String;

/// Writes all files of a folder. Errors: [`Error::Io`]; what was there stays.
pub fn write(folder: &Path, record: &Record, layers_csv: Tables) -> Result<()> {
    let put = |name: &str, text: String| {
        output::write_file(&folder.join(name), |file| file.write_all(text.as_bytes()))
    };
    put("layers.csv", layers_csv(record))?;
    put("controls.json", json(&record.controls))?;
    // last: it says how far the others are
    put(RECORD, json(record))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("a record is JSON") + "\n"
}

/// Reads a record from its folder or its file. Errors: [`Error::Io`]; [`Error::Argument`] on what is no
/// record or one of another schema.
pub fn read(path: &Path) -> Result<Record> {
    let file = if path.is_dir() { path.join(RECORD) } else { path.to_owned() };
    let next = "give the folder of a gate run, or its record.json";
    let text = std::fs::read_to_string(&file).map_err(Error::io("read record", &file, next))?;
    let refuse = |expected: String, found: String, next: &str| Error::Argument {
        what: format!("record {}", file.display()),
        expected,
        found,
        next: next.into(),
    };
    let damaged = |e: serde_json::Error| refuse("a record of a gate run".into(), e.to_string(), next);
    let UniqueMap(map) = serde_json::from_str(&text).map_err(damaged)?;
    match map.get("schema").and_then(|schema| schema.as_str()) {
        Some(SCHEMA) => {}
        Some(other) => {
            let next = "read it with the version of assay that wrote it, or a newer one";
            return Err(refuse(format!("schema `{SCHEMA}`"), format!("`{other}`"), next));
        }
        None => return Err(refuse(format!("schema `{SCHEMA}`"), "no schema".into(), next)),
    }
    serde_json::from_value(map.into()).map_err(damaged)
}
