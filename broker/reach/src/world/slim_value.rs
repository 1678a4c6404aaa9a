//! An object as text of others, without what no answer needs and its writers make as long as they
//! like: as a tree it takes many times the length of its text.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// An object, or a list of objects, without `managedFields` and finalizers, and of its owners with
/// the controller alone.
#[derive(Clone, Debug)]
pub struct SlimValue(pub Value);

impl<'de> Deserialize<'de> for SlimValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Level::Object).map(Self)
    }
}

/// Which members are read.
#[derive(Clone, Copy)]
enum Level {
    Object,
    Metadata,
    Owners,
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = all.next_key::<String>()? {
            let value = match (self, key.as_str()) {
                (Self::Object, "metadata") => all.next_value_seed(Self::Metadata)?,
                (Self::Object, "items") => all.next_value::<SlimValue>()?.0,
                (Self::Metadata, "ownerReferences") => all.next_value_seed(Self::Owners)?,
                (Self::Metadata, "managedFields" | "finalizers") => {
                    all.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => all.next_value()?,
            };
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        match self {
            Self::Owners => {
                while let Some(owner) = all.next_element::<Value>()? {
                    if owner["controller"] == true {
                        items.push(owner);
                    }
                }
            }
            Self::Object | Self::Metadata => {
                while let Some(SlimValue(item)) = all.next_element()? {
                    items.push(item);
                }
            }
        }
        Ok(Value::Array(items))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::SlimValue;

    #[test]
    fn only_what_no_answer_needs_is_left_out() {
        let object = |finalizers: Value, owners: Value| {
            let mut object = json!({
                "kind": "Secret", "number": 1.5, "spec": { "finalizers": ["kubernetes"], "items": [1] },
                "metadata": { "name": "a", "labels": { "finalizers": "b" }, "ownerReferences": owners },
            });
            if finalizers.is_array() {
                object["metadata"]["finalizers"] = finalizers.clone();
                object["metadata"]["managedFields"] = finalizers;
            }
            object
        };
        let controller = json!({ "kind": "TargetAccess", "controller": true });
        let owners = json!([{ "kind": "ConfigMap" }, controller, { "controller": false }]);
        let written = object(json!(["a/b"]), owners);
        let slim = object(Value::Null, json!([controller]));
        let list = json!({ "kind": "List", "items": [written.clone(), Value::Null, { "items": [written.clone()] }] });
        let expected = json!({ "kind": "List", "items": [slim.clone(), Value::Null, { "items": [slim.clone()] }] });
        for (written, expected) in [(written, slim), (list, expected)] {
            let (json, yaml) = (
                written.to_string(),
                serde_saphyr::to_string(&written).unwrap(),
            );
            let SlimValue(read) = serde_json::from_str(&json).unwrap();
            assert_eq!(read, expected);
            let SlimValue(read) = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(read, expected, "{yaml}");
        }
        let SlimValue(text) = serde_json::from_str("\"x\"").unwrap();
        assert_eq!(text, "x");
    }
}
