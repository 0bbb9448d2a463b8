//! JSON objects of a checkpoint's files (header, index) that must name each tensor once.
//!
//! Input: JSON text, through serde. Output: a map. Absent on purpose: what a name or value means.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A JSON object; reading one that gives a key twice is an error that names the key.
pub(crate) struct Unique<V>(pub BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = Unique<V>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Unique<V>, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = object.next_entry::<String, V>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("`{key}` twice")));
            }
            map.insert(key, value);
        }
        Ok(Unique(map))
    }
}
