//! The tables of objects, `*.yaml` beside this file: one row an object, with the readers that
//! accept it.

use std::collections::BTreeMap;

use keyferry_integration::runner::TestError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::stage::NAMESPACE;

/// The readers that accept an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AcceptedBy {
    /// The API and the file's reader.
    Both,
    /// Neither of them.
    None,
    /// The API alone.
    Api,
    /// The file's reader alone.
    File,
}

/// An object and the expected result of both readers.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) object: Value,
    /// What differs from a valid object, in the words of the row.
    pub(super) change: String,
    pub(super) accepted_by: AcceptedBy,
    /// The field that a refusal names.
    pub(super) field: String,
    /// Why the readers differ; empty where they agree.
    pub(super) why: String,
}

/// A valid TargetCluster.
pub(super) fn target() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "prod" },
        "spec": {
            "address": "https://prod.example.com:6443",
            "audience": "https://prod.example.com",
            "allow": [{ "namespaces": [NAMESPACE], "serviceAccounts": ["reconciler"] }],
        },
    })
}

/// A valid TargetAccess.
pub(super) fn access() -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": { "name": "prod", "namespace": NAMESPACE },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: Kind,
    whys: BTreeMap<String, String>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Deserialize)]
enum Kind {
    TargetCluster,
    TargetAccess,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    accepted_by: AcceptedBy,
    #[serde(default)]
    field: String,
    #[serde(default)]
    why: Option<String>,
    #[serde(default)]
    spec: Map<String, Value>,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    status: Option<Map<String, Value>>,
    #[serde(default)]
    without: Option<String>,
    /// The spec instead of the valid one; it may be `null`.
    #[serde(default, deserialize_with = "present")]
    whole_spec: Option<Value>,
}

/// Reads a value that may be `null` as one that is there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The cases of a table.
pub(super) fn read_table(text: &str) -> Result<Vec<Case>, TestError> {
    let table: Table = serde_saphyr::from_str(text)?;
    let valid = match table.kind {
        Kind::TargetCluster => target(),
        Kind::TargetAccess => access(),
    };
    let case = |row: Row| {
        // A difference without a reason, or a reason without a difference, is a mistake of the row.
        let differ = matches!(row.accepted_by, AcceptedBy::Api | AcceptedBy::File);
        let why = match (&row.why, differ) {
            (Some(name), true) => table.whys.get(name).cloned(),
            (None, false) => Some(String::new()),
            _ => None,
        };
        let change = row.change();
        let why = why.ok_or_else(|| format!("the row {change} names no reason of the table"))?;
        Ok(Case {
            object: row.applied_to(valid.clone()),
            change,
            accepted_by: row.accepted_by,
            field: row.field,
            why,
        })
    };
    table.rows.into_iter().map(case).collect()
}

impl Row {
    fn applied_to(&self, mut object: Value) -> Value {
        for (member, values) in [("metadata", &self.metadata), ("spec", &self.spec)] {
            for (name, value) in values {
                object[member][name] = expanded(value);
            }
        }
        if let (Some(name), Some(spec)) = (&self.without, object["spec"].as_object_mut()) {
            spec.remove(name);
        }
        if let Some(spec) = &self.whole_spec {
            object["spec"] = spec.clone();
        }
        if let Some(status) = &self.status {
            object["status"] = Value::Object(status.clone());
        }
        object
    }

    fn change(&self) -> String {
        let set = json!({
            "metadata": self.metadata, "spec": self.spec, "status": self.status,
            "without": self.without, "whole_spec": self.whole_spec,
        });
        let is_set =
            |value: &Value| !value.is_null() && value.as_object().is_none_or(|it| !it.is_empty());
        let members = set.as_object().into_iter().flatten();
        let shown: Vec<String> = members
            .filter(|(_, value)| is_set(value))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        shown.join(", ")
    }
}

/// The value with its long texts and lists written out.
fn expanded(value: &Value) -> Value {
    match value {
        Value::Object(members) => long_text(members)
            .or_else(|| numbered(members))
            .unwrap_or_else(|| {
                let members = members.iter();
                Value::Object(
                    members
                        .map(|(name, it)| (name.clone(), expanded(it)))
                        .collect(),
                )
            }),
        Value::Array(values) => values.iter().map(expanded).collect(),
        other => other.clone(),
    }
}

fn long_text(members: &Map<String, Value>) -> Option<Value> {
    let repeated = members.get("$repeat")?.as_str()?;
    let times = usize::try_from(members.get("times")?.as_u64()?).ok()?;
    let before = members.get("after").and_then(Value::as_str);
    let before = before.unwrap_or_default();
    Some(Value::from(format!("{before}{}", repeated.repeat(times))))
}

fn numbered(members: &Map<String, Value>) -> Option<Value> {
    let prefix = members.get("$numbered")?.as_str()?;
    let count = members.get("count")?.as_u64()?;
    Some(
        (0..count)
            .map(|number| format!("{prefix}{number}"))
            .collect(),
    )
}
