//! JSON objects that hold each key once.
//!
//! Input: JSON text, through serde. Output: a [`serde_json::Map`]. A key given twice has no agreed meaning:
//! most readers keep the last value without a word. Absent on purpose: what the keys mean.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt::Formatter;

/// An object whose keys, and those of every object inside it, are given once each.
pub struct UniqueMap(pub Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = UniqueMap;
            fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<UniqueMap, A::Error> {
                entries(object).map(UniqueMap)
            }
        }
        from.deserialize_map(Object)
    }
}

fn entries<'de, A: MapAccess<'de>>(mut object: A) -> Result<Map<String, Value>, A::Error> {
    let mut map = Map::new();
    while let Some(key) = object.next_key::<String>()? {
        if map.contains_key(&key) {
            return Err(A::Error::custom(format!("key `{key}` twice")));
        }
        let Inner(value) = object.next_value()?;
        map.insert(key, value);
    }
    Ok(map)
}

/// Any value; objects in it as [`UniqueMap`].
struct Inner(Value);

impl<'de> Deserialize<'de> for Inner {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any).map(Inner)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;
    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Inner(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Value, A::Error> {
        entries(object).map(Value::Object)
    }
}
