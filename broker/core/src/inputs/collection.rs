//! The body of a response with fleet inputs: `{"inputs":[{"id":"…", …}]}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::InputsError;
use super::secret_scan;

/// The largest body that Flux Operator reads, in bytes.
pub const MAX_BYTES: usize = 900 * 1024;

/// The body with fleet inputs.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CollectionBody<T> {
    /// The inputs, sorted by their ids.
    inputs: Vec<Input<T>>,
}

#[derive(Serialize, JsonSchema)]
struct Input<T> {
    /// Unique in this list.
    id: String,
    #[serde(flatten)]
    members: T,
}

/// A body that may be sent: its ids are unique, nothing in it looks like a secret, and it is not
/// too large. Equal inputs make equal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    bytes: Arc<[u8]>,
    etag: Arc<str>,
}

impl Collection {
    /// Makes a body of inputs by their ids.
    ///
    /// # Errors
    /// [`InputsError`]: something looks like a secret, or the body is too large. It is never
    /// truncated, because Flux Operator deletes the objects of missing inputs.
    pub fn new(inputs: BTreeMap<String, Map<String, Value>>) -> Result<Self, InputsError> {
        let inputs = inputs
            .into_iter()
            .map(|(id, mut members)| {
                // Before they are sorted: a removal moves the last member to the place that is free.
                members.remove("id");
                let members = sort_members(members);
                Input { id, members }
            })
            .collect();
        let body =
            serde_json::to_value(CollectionBody { inputs }).map_err(|_| InputsError::Unwritable)?;
        secret_scan::scan_for_secrets(&body["inputs"])?;
        let text = body.to_string();
        if text.len() > MAX_BYTES {
            return Err(InputsError::TooLarge(text.len()));
        }
        let hash = digest(&SHA256, text.as_bytes());
        let hex: String = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self {
            bytes: text.into_bytes().into(),
            etag: format!("\"{hex}\"").into(),
        })
    }

    /// The JSON text.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The strong entity tag, in its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }
}

/// Sorts the members of an object and of all objects in it, so that the order in which they were
/// written does not change the bytes.
fn sort_members(members: Map<String, Value>) -> Map<String, Value> {
    let members: BTreeMap<String, Value> = members.into_iter().collect();
    members
        .into_iter()
        .map(|(name, value)| (name, sorted_value(value)))
        .collect()
}

fn sorted_value(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(sort_members(members)),
        Value::Array(items) => Value::Array(items.into_iter().map(sorted_value).collect()),
        scalar => scalar,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Map, Value, json};

    use super::{Collection, MAX_BYTES};
    use crate::inputs::error::InputsError;

    fn of(inputs: &[(&str, Value)]) -> Result<Collection, InputsError> {
        let inputs: BTreeMap<String, Map<String, Value>> = inputs
            .iter()
            .map(|(id, members)| ((*id).to_owned(), members.as_object().unwrap().clone()))
            .collect();
        Collection::new(inputs)
    }

    #[test]
    fn the_same_state_has_the_same_bytes_in_any_order() {
        let collection = of(&[
            (
                "b",
                json!({ "y": 1, "x": { "n": [{ "d": 1, "c": 2 }], "m": 2 } }),
            ),
            ("a", json!({})),
        ])
        .unwrap();
        let other = of(&[
            ("a", json!({ "id": "a" })),
            (
                "b",
                json!({ "x": { "m": 2, "n": [{ "c": 2, "d": 1 }] }, "y": 1 }),
            ),
        ])
        .unwrap();
        assert_eq!(collection, other);
        assert_eq!(
            str::from_utf8(collection.bytes()).unwrap(),
            r#"{"inputs":[{"id":"a"},{"id":"b","x":{"m":2,"n":[{"c":2,"d":1}]},"y":1}]}"#
        );
        let stated = json!({ "id": "c", "x": 1, "y": 2, "z": 3 });
        assert_eq!(
            of(&[("c", stated)]),
            of(&[("c", json!({ "x": 1, "y": 2, "z": 3 }))]),
            "whether or not the id is stated"
        );
        assert_ne!(collection.etag(), of(&[("a", json!({}))]).unwrap().etag());
        assert_eq!(&**of(&[]).unwrap().bytes(), br#"{"inputs":[]}"#);
    }

    #[test]
    fn a_body_of_exactly_the_limit_is_sent_and_one_more_byte_is_not() {
        let frame = r#"{"inputs":[{"id":"a","x":""}]}"#.len();
        let full = of(&[("a", json!({ "x": "y ".repeat((MAX_BYTES - frame) / 2) }))]).unwrap();
        assert_eq!(full.bytes().len(), MAX_BYTES);
        let more = "y ".repeat((MAX_BYTES - frame) / 2) + "y";
        assert_eq!(
            of(&[("a", json!({ "x": more }))]),
            Err(InputsError::TooLarge(MAX_BYTES + 1))
        );
    }

    #[test]
    fn one_secret_refuses_the_whole_collection() {
        let refused = of(&[("a", json!({})), ("b", json!({ "password": "hunter2" }))]);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.starts_with("inputs[1].password has the name of a secret")
                && !said.contains("hunter2"),
            "{said}"
        );
    }
}
