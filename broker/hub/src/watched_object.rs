//! A TargetCluster or TargetAccess from a watch, without the metadata that Keyferry does not read.
//!
//! Labels, annotations, managedFields and ownerReferences can be as long as their writers like.
//! They are skipped during parsing, so that a tenant cannot fill Keyferry's memory with them, not
//! even during a list.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// The only annotation of Keyferry's objects that has a meaning.
const REQUESTED_AT: &str = "keyferry.dev/requestedAt";

/// A watched object with the metadata that Keyferry reads.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WatchedObject {
    #[serde(rename = "apiVersion", default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(deserialize_with = "kept_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Value>,
    #[serde(default)]
    status: Option<Value>,
}

/// The metadata that Keyferry reads. Everything else is skipped without being stored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Value>,
    deletion_timestamp: Option<Value>,
    finalizers: Option<Vec<String>>,
    annotations: Option<KeptAnnotations>,
}

#[derive(Deserialize)]
struct KeptAnnotations {
    #[serde(rename = "keyferry.dev/requestedAt")]
    requested_at: Option<String>,
}

fn kept_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let kept = KeptMetadata::deserialize(deserializer)?;
    let time = |value: Option<Value>| {
        serde_json::from_value(value.unwrap_or_default()).map_err(D::Error::custom)
    };
    let requested_at = kept
        .annotations
        .and_then(|annotations| annotations.requested_at);
    Ok(ObjectMeta {
        name: kept.name,
        namespace: kept.namespace,
        uid: kept.uid,
        resource_version: kept.resource_version,
        generation: kept.generation,
        creation_timestamp: time(kept.creation_timestamp)?,
        deletion_timestamp: time(kept.deletion_timestamp)?,
        finalizers: kept.finalizers,
        annotations: requested_at.map(|at| [(REQUESTED_AT.to_owned(), at)].into()),
        ..ObjectMeta::default()
    })
}

impl WatchedObject {
    /// Converts the object to JSON, moving its parts instead of copying them.
    pub(super) fn into_value(self) -> Value {
        let metadata = serde_json::to_value(self.metadata).unwrap_or_default();
        let text = |text: Option<String>| text.map(Value::String);
        let members = [
            ("apiVersion", text(self.api_version)),
            ("kind", text(self.kind)),
            ("metadata", Some(metadata)),
            ("spec", self.spec),
            ("status", self.status),
        ];
        let members: Map<String, Value> = members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        json!(members)
    }
}

impl Resource for WatchedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config::StoredAccess;

    use super::*;

    #[test]
    fn what_nobody_reads_is_dropped_and_the_rest_means_the_same() {
        let long = "x".repeat(100_000);
        let written = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": "apps", "namespace": "tenant-a", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["keyferry.dev/drain"],
                "labels": { "a": long.get(..60) }, "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "o" }],
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": long, "keyferry.dev/requestedAt": "now" },
                "managedFields": [{ "manager": "kubectl", "operation": "Apply", "apiVersion": "keyferry.dev/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": {} } }],
            },
            "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
            "status": { "exposureUntil": "2026-01-02T00:00:00Z" },
        });
        let watched: WatchedObject = serde_json::from_value(written.clone()).unwrap();
        assert!(
            format!("{watched:?}").len() < 2500,
            "nothing long was stored: {watched:?}"
        );
        let value = watched.into_value();
        let text = value.to_string();
        assert!(text.len() < 1000, "{value}");
        for dropped in ["managedFields", "labels", "ownerReferences", "last-applied"] {
            assert!(!text.contains(dropped), "{dropped} in {text}");
        }
        assert_eq!(StoredAccess::read(&value), StoredAccess::read(&written));
        let (_, stored) = StoredAccess::read(&value).unwrap();
        assert!(
            stored.read.is_ok()
                && stored.record.requested_at.as_deref() == Some("now")
                && stored.record.deleting.is_some()
        );
        assert_eq!(stored.record.status, written["status"].clone());
    }

    #[test]
    fn what_is_not_there_is_not_made_up() {
        let written =
            json!({ "metadata": { "name": "apps", "annotations": null, "finalizers": null } });
        let watched: WatchedObject = serde_json::from_value(written).unwrap();
        assert_eq!(
            watched.into_value(),
            json!({ "metadata": { "name": "apps" } })
        );
    }
}
