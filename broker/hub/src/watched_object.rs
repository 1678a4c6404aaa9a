//! ServiceAccounts and Namespaces from a watch, reduced to what decisions need of them.
//!
//! Everything else of their metadata can be as long as its writers like. It is skipped during
//! parsing, so that a tenant cannot fill Keyferry's memory with it, not even during a list.

use std::collections::BTreeMap;
use std::fmt;

use keyferry_api::config::{ReducedObject, selects_by};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::delivery::OtherFluxCredential;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::collection_watch::WatchedItem;

/// The most bytes of a namespace's guarded labels that are kept. Each has some 130.
const MAX_LABEL_BYTES: usize = 64 * 1024;
/// The most bytes of annotations that are kept. An apiserver takes 256 KiB of all together.
const MAX_ANNOTATION_BYTES: usize = 512 * 1024;

impl WatchedItem for ReducedObject {
    fn version(&self) -> Option<&str> {
        Self::version(self)
    }
}

/// A ServiceAccount.
#[derive(Debug, Deserialize)]
#[serde(from = "ParsedServiceAccount")]
pub(super) struct WatchedServiceAccount {
    version: Option<String>,
    /// `None` if its name is none that Keyferry uses.
    pub(super) account: Option<ServiceAccount>,
    /// `None` if it is being deleted, which counts as gone.
    pub(super) uid: Option<Uid>,
    /// The annotation by which Flux gets another credential.
    pub(super) flux_credential: Option<OtherFluxCredential>,
}

impl WatchedItem for WatchedServiceAccount {
    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

/// A Namespace.
#[derive(Debug, Deserialize)]
#[serde(from = "ParsedNamespace")]
pub struct WatchedNamespace {
    version: Option<String>,
    /// `None` if it is none that Keyferry uses.
    pub name: Option<Namespace>,
    /// The labels that a TargetCluster may select by; `None` if it is being deleted, which counts
    /// as gone. Empty if they are too large: no selector selects a namespace without labels.
    pub labels: Option<BTreeMap<String, String>>,
}

impl WatchedItem for WatchedNamespace {
    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

#[derive(Deserialize)]
struct ParsedServiceAccount {
    metadata: ServiceAccountMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceAccountMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "flux_annotations")]
    annotations: BTreeMap<String, String>,
}

impl From<ParsedServiceAccount> for WatchedServiceAccount {
    fn from(parsed: ParsedServiceAccount) -> Self {
        let metadata = parsed.metadata;
        let namespace = metadata
            .namespace
            .and_then(|name| Namespace::new(name).ok());
        let name = metadata.name.and_then(|name| ObjectName::new(name).ok());
        let is_live = metadata.deletion_timestamp.is_none();
        Self {
            version: metadata.resource_version,
            account: namespace
                .zip(name)
                .map(|(namespace, name)| ServiceAccount { namespace, name }),
            uid: metadata
                .uid
                .and_then(|uid| Uid::new(uid).ok())
                .filter(|_| is_live),
            flux_credential: OtherFluxCredential::of(|key| {
                metadata.annotations.get(key).map(String::as_str)
            }),
        }
    }
}

#[derive(Deserialize)]
struct ParsedNamespace {
    metadata: NamespaceMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamespaceMetadata {
    name: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "guarded_labels")]
    labels: BTreeMap<String, String>,
}

impl From<ParsedNamespace> for WatchedNamespace {
    fn from(parsed: ParsedNamespace) -> Self {
        let metadata = parsed.metadata;
        Self {
            version: metadata.resource_version,
            name: metadata.name.and_then(|name| Namespace::new(name).ok()),
            labels: metadata
                .deletion_timestamp
                .is_none()
                .then_some(metadata.labels),
        }
    }
}

/// Keeps the annotations by which Flux chooses a credential.
fn flux_annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_any(KeptTexts {
        keeps: OtherFluxCredential::is_read_from,
        max_bytes: MAX_ANNOTATION_BYTES,
    })
}

/// Keeps the labels that a TargetCluster may select by. The namespace's owner may add any number of
/// others.
fn guarded_labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_any(KeptTexts {
        keeps: selects_by,
        max_bytes: MAX_LABEL_BYTES,
    })
}

/// Labels or annotations of which some are kept; none if those together are too large.
struct KeptTexts {
    keeps: fn(&str) -> bool,
    max_bytes: usize,
}

impl<'de> Visitor<'de> for KeptTexts {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels or annotations")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let (mut texts, mut bytes) = (BTreeMap::new(), 0_usize);
        while let Some(key) = all.next_key::<String>()? {
            if !(self.keeps)(&key) || bytes > self.max_bytes {
                all.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: String = all.next_value()?;
            bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
            texts.insert(key, value);
        }
        if bytes > self.max_bytes {
            texts.clear();
        }
        Ok(texts)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stuffed(metadata: &Value) -> Value {
        let long = "x".repeat(100_000);
        let mut metadata = metadata.clone();
        for (field, value) in [
            ("finalizers", json!([long])),
            (
                "managedFields",
                json!([{ "fieldsV1": { long.as_str(): {} } }]),
            ),
            ("ownerReferences", json!([{ "name": long }])),
        ] {
            metadata[field] = value;
        }
        json!({ "kind": "x", "metadata": metadata, "secrets": [{ "name": long }] })
    }

    #[test]
    fn of_a_service_account_only_what_decisions_need_is_kept() {
        let long = "x".repeat(100_000);
        let mut metadata = json!({
            "name": "apps", "namespace": "tenant-a", "uid": "u", "resourceVersion": "7",
            "labels": { "a": "b" },
            "annotations": { "note": long, "credential.auth.fluxcd.io/type": long },
        });
        let read = |metadata: &Value| -> WatchedServiceAccount {
            serde_json::from_value(stuffed(metadata)).unwrap()
        };
        let object = read(&metadata);
        assert!(format!("{object:?}").len() < 500, "{object:?}");
        let account = object.account.as_ref().unwrap();
        assert_eq!(account.to_string(), "tenant-a/apps");
        assert_eq!((object.uid.is_some(), object.version()), (true, Some("7")));
        assert!(object.flux_credential.is_some());
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        metadata["annotations"] = Value::Null;
        let object = read(&metadata);
        assert!(object.account.is_some() && object.uid.is_none());
        assert!(object.flux_credential.is_none());
    }

    #[test]
    fn of_a_namespace_only_the_guarded_labels_are_kept() {
        let mut metadata = json!({
            "name": "tenant-a", "resourceVersion": "7",
            "labels": { "a": "b", "access.keyferry.dev/team": "x" },
        });
        let read = |metadata: &Value| -> WatchedNamespace {
            serde_json::from_value(stuffed(metadata)).unwrap()
        };
        let labels = read(&metadata).labels.unwrap();
        assert_eq!(labels.len(), 1);
        assert!(labels.contains_key("access.keyferry.dev/team"));
        // Half of them could be selected by a term that asks what is not there.
        for index in 0..2000 {
            let key = format!("access.keyferry.dev/label-{index}");
            metadata["labels"][key] = json!("y".repeat(50));
        }
        assert_eq!(read(&metadata).labels, Some(BTreeMap::new()));
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(read(&metadata).labels, None);
    }
}
