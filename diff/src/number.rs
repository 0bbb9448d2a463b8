//! How f64 appear in JSON: finite ones as numbers, the others as the strings `"NaN"`, `"inf"` and `"-inf"`.
//!
//! JSON has no NaN, and `null` already says "there is none" (no disagreement, a run that was not made). A
//! reader that expects a number therefore fails on a NaN and cannot take it for a good one.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// For `#[serde(with)]` on an `f64`.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
}

/// For `#[serde(with)]` on an `f64`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Written::deserialize(deserializer)?.value().map_err(D::Error::custom)
}

/// A number as it is written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Word(String),
}

impl Written {
    fn value(self) -> Result<f64, String> {
        match self {
            Written::Number(value) => Ok(value),
            Written::Word(word) => match word.as_str() {
                "NaN" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(format!("expected a number, NaN, inf or -inf, found `{word}`")),
            },
        }
    }
}

/// The same for an `Option<f64>`; `null` is none.
pub mod option {
    use super::Written;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        let written = Option::<Written>::deserialize(deserializer)?;
        written.map(Written::value).transpose().map_err(D::Error::custom)
    }
}

/// Two significant digits: `1.3e-6`; `0` is exact.
pub fn short(number: f64) -> String {
    if number == 0.0 { "0".into() } else { format!("{number:.1e}") }
}
