//! How f64 appear in JSON: finite ones as numbers, the others as the strings `"NaN"`, `"inf"` and `"-inf"`.
//!
//! JSON has no NaN, and `null` already says "there is none" (no disagreement, a run that was not made). A
//! reader that expects a number therefore fails on a NaN and cannot take it for a good one.

use serde::Serializer;

/// For `#[serde(serialize_with)]` on an `f64`.
pub fn plain<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
}
