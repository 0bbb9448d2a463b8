//! The keys of a JSON object of `config.json`, and which of them have been read.
//!
//! Inputs: an object. Outputs: checked values; refusals that name key, value and file. Absent on purpose:
//! what a key means ([`crate::config_file`]).

use crate::{Error, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Keys that do not touch the forward pass (K2); `output_*` belongs here too.
const WITHOUT_EFFECT: [&str; 17] = [
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "eos_token_id",
    "id2label",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "transformers_version",
    "use_cache",
];

/// Largest count any size key may give; beyond it a number is a typing error, not a model.
pub(crate) const SIZE_MAX: u64 = 1 << 24;

/// The keys of one JSON object, and which of them have been read.
pub(crate) struct Keys {
    path: PathBuf,
    map: Map<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

impl Keys {
    /// The keys of one object, none of them read yet; `path` is for messages.
    pub(crate) fn new(path: &Path, map: Map<String, Value>) -> Self {
        Self { path: path.into(), map, used: RefCell::new(BTreeSet::new()) }
    }

    /// The keys of an object inside this one.
    pub(crate) fn inside(&self, map: &Map<String, Value>) -> Keys {
        Keys::new(&self.path, map.clone())
    }

    /// Every key there is.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.used.borrow_mut().insert(key.into());
        self.map.get(key)
    }

    pub(crate) fn need(&self, key: &str, expected: &str) -> Result<&Value> {
        self.get(key).ok_or_else(|| self.refuse(key, expected, "no such key"))
    }

    pub(crate) fn size(&self, key: &str) -> Result<usize> {
        let expected = "a whole number of at least 1";
        match self.need(key, expected)?.as_u64() {
            Some(size) if (1..=SIZE_MAX).contains(&size) => Ok(usize::try_from(size).expect("64-bit usize")),
            _ => Err(self.refuse_value(key, expected)),
        }
    }

    pub(crate) fn positive(&self, key: &str) -> Result<f64> {
        let expected = "a positive number within the normal range of f32";
        match self.need(key, expected)?.as_f64() {
            Some(number) if number > 0.0 && (number as f32).is_normal() => Ok(number),
            _ => Err(self.refuse_value(key, expected)),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.refuse_value(key, "true or false")),
        }
    }

    pub(crate) fn only(&self, key: &str, supported: &str) -> Result<()> {
        let expected = format!("\"{supported}\"");
        match self.need(key, &expected)? {
            Value::String(word) if word == supported => Ok(()),
            _ => Err(self.refuse_value(key, &expected)),
        }
    }

    pub(crate) fn only_if_present(&self, key: &str, supported: &Value) -> Result<()> {
        match self.get(key) {
            None => Ok(()),
            Some(found) if found == supported => Ok(()),
            Some(_) => Err(self.refuse_value(key, &supported.to_string())),
        }
    }

    pub(crate) fn refuse(
        &self,
        key: &str,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Error {
        Error::Config {
            path: self.path.clone(),
            key: key.into(),
            expected: expected.into(),
            found: found.to_string(),
            next: "use a checkpoint within what docs/kolibri-1.md covers (K1, K2), or correct the key".into(),
        }
    }

    pub(crate) fn refuse_value(&self, key: &str, expected: &str) -> Error {
        let found = self.map.get(key).map_or("no such key".into(), Value::to_string);
        self.refuse(key, expected, found)
    }

    pub(crate) fn refuse_unread(&self) -> Result<()> {
        let used = self.used.borrow();
        let known = |key: &str| WITHOUT_EFFECT.contains(&key) || key.starts_with("output_");
        match self.map.iter().find(|(key, _)| !used.contains(*key) && !known(key)) {
            None => Ok(()),
            Some((key, value)) => {
                let found = format!("{value}, a key that is not known and could change arithmetic");
                Err(self.refuse(key, "no such key", found))
            }
        }
    }
}
