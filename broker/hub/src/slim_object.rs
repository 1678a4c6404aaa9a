//! An object of the hub without the part of its metadata that takes the most memory.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// An object whose `managedFields` say who wrote it, but not which fields. Their trees repeat all
/// that others wrote into the object, at many times its size.
pub(crate) struct SlimObject(pub(crate) Value);

#[derive(Deserialize)]
struct ManagedFields {
    manager: Option<String>,
    operation: Option<String>,
    subresource: Option<String>,
}

impl ManagedFields {
    fn into_value(self) -> Value {
        let mut entry = json!({ "manager": self.manager, "operation": self.operation });
        if let Some(subresource) = self.subresource {
            entry["subresource"] = Value::String(subresource);
        }
        entry
    }
}

/// Which member of the object is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Object,
    Metadata,
}

impl<'de> Deserialize<'de> for SlimObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(Members(Level::Object))
            .map(Self)
    }
}

struct Members(Level);

impl<'de> serde::de::DeserializeSeed<'de> for Members {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = all.next_key::<String>()? {
            let value = match (self.0, key.as_str()) {
                (Level::Object, "metadata") => all.next_value_seed(Self(Level::Metadata))?,
                (Level::Metadata, "managedFields") => {
                    let entries: Option<Vec<ManagedFields>> = all.next_value()?;
                    entries
                        .into_iter()
                        .flatten()
                        .map(ManagedFields::into_value)
                        .collect()
                }
                _ => all.next_value()?,
            };
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::SlimObject;

    #[test]
    fn only_the_trees_of_managed_fields_are_left_out() {
        let object = |fields: Value| {
            json!({
                "kind": "Secret", "data": { "managedFields": [1] },
                "metadata": { "name": "a", "finalizers": ["a/b"], "managedFields": fields },
            })
        };
        let written = object(json!([
            { "manager": "keyferry", "operation": "Update", "fieldsV1": { "f:data": {} }, "time": "t" },
            { "manager": "kubectl", "operation": "Apply", "subresource": "status" },
        ]));
        let read: SlimObject = serde_json::from_value(written).unwrap();
        let expected = object(json!([
            { "manager": "keyferry", "operation": "Update" },
            { "manager": "kubectl", "operation": "Apply", "subresource": "status" },
        ]));
        assert_eq!(read.0, expected);
    }
}
