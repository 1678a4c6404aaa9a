//! An object of the hub without the part of its metadata that takes the most memory.

use std::fmt;

use keyferry_api::bounded_value::{BoundedValue, ValueBudget};
use keyferry_core::delivery::ReadObject;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// An object of a namespace, which a tenant may have written. The limit is above the largest Secret
/// and ConfigMap with the largest annotations. What a tenant can write besides these takes many
/// times its length: 60,000 ownerReferences of an answer took 51 MiB.
pub(crate) type NamespacedObject = SlimObject<{ 2 << 20 }>;
/// An object of the whole hub, which no tenant writes. The AudiencePairing has a text for each pair.
pub(crate) type ClusterObject = SlimObject<{ 16 << 20 }>;

/// What an entry of `managedFields` takes.
const MANAGED_FIELDS_BYTES: usize = 640;

/// An object whose `managedFields` say who wrote it, but not which fields. Their trees repeat all
/// that others wrote into the object, at many times its size. It may take `MAX_BYTES` of memory, as
/// [`ValueBudget`] counts them.
pub(crate) struct SlimObject<const MAX_BYTES: usize> {
    /// Also what is too large may be a Secret, which is wiped.
    object: ReadObject,
    is_too_large: bool,
}

impl<const MAX_BYTES: usize> SlimObject<MAX_BYTES> {
    /// The object; `None` if it is larger than it may be.
    pub(crate) fn into_whole(self) -> Option<ReadObject> {
        (!self.is_too_large).then_some(self.object)
    }
}

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

impl<'de, const MAX_BYTES: usize> Deserialize<'de> for SlimObject<MAX_BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut budget = ValueBudget::of(MAX_BYTES);
        let members = Members {
            level: Level::Object,
            budget: &mut budget,
        };
        let value = deserializer.deserialize_map(members)?;
        Ok(Self {
            object: ReadObject::new(value),
            is_too_large: budget.is_exceeded(),
        })
    }
}

struct Members<'a> {
    level: Level,
    budget: &'a mut ValueBudget,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let (mut members, budget) = (Map::new(), self.budget);
        while let Some(key) = all.next_key::<String>()? {
            let value = match (self.level, key.as_str()) {
                (Level::Object, "metadata") => all.next_value_seed(Members {
                    level: Level::Metadata,
                    budget: &mut *budget,
                })?,
                (Level::Metadata, "managedFields") => {
                    let entries: Option<Vec<ManagedFields>> = all.next_value()?;
                    entries
                        .into_iter()
                        .flatten()
                        .take_while(|_| budget.take(MANAGED_FIELDS_BYTES))
                        .map(ManagedFields::into_value)
                        .collect()
                }
                _ if budget.take(key.len()) => all.next_value_seed(BoundedValue(&mut *budget))?,
                _ => {
                    all.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_core::delivery::ReadObject;
    use serde_json::{Value, json};

    use super::{ClusterObject, NamespacedObject};

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
        let read: NamespacedObject = serde_json::from_value(written).unwrap();
        let expected = object(json!([
            { "manager": "keyferry", "operation": "Update" },
            { "manager": "kubectl", "operation": "Apply", "subresource": "status" },
        ]));
        assert_eq!(read.into_whole().unwrap().value(), &expected);
    }

    #[test]
    fn an_object_that_would_take_more_than_its_text_is_too_large() {
        let many = |part: Value, bytes: usize| vec![part.clone(); bytes / part.to_string().len()];
        let owner = json!({ "apiVersion": "v1", "kind": "a", "name": "a", "uid": "a" });
        let manager = json!({ "manager": "a", "operation": "Apply" });
        let largest = "x".repeat(1400 * 1024);
        for (metadata, data, is_whole) in [
            (
                json!({ "annotations": { "a": "y".repeat(256 * 1024) } }),
                json!({ "value": largest }),
                true,
            ),
            (
                json!({ "ownerReferences": many(owner, 1_000_000) }),
                json!({}),
                false,
            ),
            (
                json!({ "managedFields": many(manager, 1_000_000) }),
                json!({}),
                false,
            ),
            (
                json!({ "finalizers": many(json!("a/b"), 1_000_000) }),
                json!({}),
                false,
            ),
            (
                json!({}),
                json!(many(json!({ "a": "b" }), 1_000_000)),
                false,
            ),
        ] {
            let written = json!({ "metadata": metadata, "data": data });
            let text = written.to_string();
            let is_read =
                |read: Option<ReadObject>| read.is_some_and(|read| read.value() == &written);
            let read: NamespacedObject = serde_json::from_str(&text).unwrap();
            assert_eq!(is_read(read.into_whole()), is_whole, "{text:.80}");
        }
    }

    /// It is as large as etcd takes it, and its texts are short.
    #[test]
    fn the_largest_pairing_is_whole() {
        let accounts = vec!["tenant-a/app"; 100_000];
        let pairing = json!({ "metadata": { "name": "keyferry" }, "pairs": { "a": accounts } });
        let read: ClusterObject = serde_json::from_str(&pairing.to_string()).unwrap();
        assert!(read.into_whole().is_some());
    }
}
