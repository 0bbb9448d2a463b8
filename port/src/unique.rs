//! Lists of tensors in JSON (a header, an index) in which a name may stand once only.
//!
//! Input: JSON text, through serde. Output: pairs in order of name. Absent on purpose: values' meaning.

use serde::de;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

/// What an object lists under each name; a name that stands twice is refused.
pub(crate) struct Listed<T>(pub BTreeMap<String, T>);

struct Collect<T>(BTreeMap<String, T>);

impl<'de, T: de::Deserialize<'de>> de::Visitor<'de> for Collect<T> {
    type Value = Listed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a key for each tensor")
    }

    fn visit_map<A: de::MapAccess<'de>>(mut self, mut pairs: A) -> Result<Listed<T>, A::Error> {
        while let Some(name) = pairs.next_key()? {
            match self.0.entry(name) {
                Entry::Vacant(free) => free.insert(pairs.next_value()?),
                Entry::Occupied(taken) => {
                    return Err(de::Error::custom(format_args!("`{}` is listed twice", taken.key())));
                }
            };
        }
        Ok(Listed(self.0))
    }
}

impl<'de, T: de::Deserialize<'de>> de::Deserialize<'de> for Listed<T> {
    fn deserialize<D: de::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(Collect(BTreeMap::new()))
    }
}
