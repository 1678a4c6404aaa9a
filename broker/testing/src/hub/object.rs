//! One object of a hub, and its form in an answer.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The kinds of objects in a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    Namespaces,
    ServiceAccounts,
    Secrets,
    Leases,
}

/// One object. No `Debug`: the data of a Secret is in it.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) resource: Resource,
    /// Empty for a namespace.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) data: BTreeMap<String, Vec<u8>>,
    pub(super) created: Timestamp,
    pub(super) version: u64,
}

/// Whether an answer contains whole objects or only their metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Full,
    MetadataOnly,
}

impl Resource {
    /// Plural name in the API.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::ServiceAccounts => "serviceaccounts",
            Self::Secrets => "secrets",
            Self::Leases => "leases",
        }
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Namespaces => "Namespace",
            Self::ServiceAccounts => "ServiceAccount",
            Self::Secrets => "Secret",
            Self::Leases => "Lease",
        }
    }
}

impl Object {
    /// The object as JSON, with its apiVersion and kind.
    pub(super) fn to_json(&self, shape: Shape) -> Value {
        let metadata = self.metadata();
        if shape == Shape::MetadataOnly {
            return json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            });
        }
        let kind = self.resource.kind();
        match self.resource {
            Resource::Namespaces => json!({
                "kind": kind, "apiVersion": "v1", "metadata": metadata,
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }),
            Resource::ServiceAccounts => {
                json!({"kind": kind, "apiVersion": "v1", "metadata": metadata})
            }
            Resource::Leases => {
                let spec = self
                    .data
                    .get("spec")
                    .and_then(|spec| serde_json::from_slice(spec).ok())
                    .unwrap_or(Value::Null);
                json!({"kind": kind, "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": spec})
            }
            Resource::Secrets => {
                let data: BTreeMap<_, _> = self
                    .data
                    .iter()
                    .map(|(key, value)| (key, STANDARD.encode(value)))
                    .collect();
                json!({
                    "kind": kind, "apiVersion": "v1", "metadata": metadata,
                    "data": data, "type": "Opaque",
                })
            }
        }
    }

    fn metadata(&self) -> Value {
        let mut metadata = json!({
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.version.to_string(),
            "creationTimestamp": whole_seconds(self.created),
        });
        if let Some(fields) = metadata.as_object_mut() {
            if !self.namespace.is_empty() {
                fields.insert("namespace".to_owned(), json!(self.namespace));
            }
            if !self.labels.is_empty() {
                fields.insert("labels".to_owned(), json!(self.labels));
            }
        }
        metadata
    }

    /// Whether a list of `resource` in `namespace` (empty = all) includes this object.
    pub(super) fn is(&self, resource: Resource, namespace: &str) -> bool {
        self.resource == resource && (namespace.is_empty() || self.namespace == namespace)
    }
}

/// RFC 3339 without fractions, as `metav1.Time`.
pub(super) fn whole_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
