//! What commands read of objects of a cluster. Each view is read once, where the object comes in. It
//! has only the members that are read, and a missing text is empty. The object itself stays JSON
//! where it is written back, because it keeps what others wrote.

use std::collections::BTreeMap;

use crate::name::{AccessName, Namespace, ObjectName};
use crate::status::{ClusterStatus, IdentityStatus, TargetClusterStatus};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::lenient::{Lenient, or_default, readable_items};
use crate::stated_condition::StatedCondition;

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMetadata {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace; `None` for an object of the whole cluster.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Option<String>,
    /// Its UID.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// The generation of its spec.
    #[serde(deserialize_with = "or_default")]
    pub generation: Option<i64>,
    /// Its version.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: Option<String>,
    /// When it was deleted, if it still has finalizers.
    #[serde(deserialize_with = "or_default")]
    pub deletion_timestamp: Option<String>,
    /// Its labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

/// What names an object of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectHead {
    /// Its API version.
    #[serde(deserialize_with = "or_default")]
    pub api_version: String,
    /// Its kind. The items of a list may lack it.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMetadata,
}

/// A TargetCluster of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TargetView {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMetadata,
    /// What the platform admin states.
    #[serde(deserialize_with = "or_default")]
    pub spec: TargetSpecView,
    /// What Keyferry states; `None` if there is nothing yet, or nothing that can be read.
    #[serde(deserialize_with = "or_default")]
    pub status: Option<TargetClusterStatus>,
}

/// The spec of a TargetCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TargetSpecView {
    /// `Cluster`, or `Audience` for a relying party that is no cluster.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// The TargetCluster at whose cluster it is a role.
    #[serde(deserialize_with = "or_default")]
    pub same_as: Option<String>,
    /// The role.
    #[serde(deserialize_with = "or_default")]
    pub role: Option<String>,
    /// The URL of its apiserver.
    #[serde(deserialize_with = "or_default")]
    pub address: String,
    /// Its audience.
    #[serde(deserialize_with = "or_default")]
    pub audience: String,
    /// Who signs its tokens: `Hub` or `Keyferry`.
    #[serde(deserialize_with = "or_default")]
    pub issuer: String,
    /// The Secret with its CA certificates.
    #[serde(deserialize_with = "or_default")]
    pub cert_secret_ref: Reference,
    /// The ClusterTrustBundle with its CA certificates.
    #[serde(deserialize_with = "or_default")]
    pub cluster_trust_bundle_ref: Reference,
    /// Its CA certificates themselves, in PEM.
    #[serde(deserialize_with = "or_default")]
    pub ca_bundle: Option<String>,
    /// Set if it issues client certificates of the hub instead of tokens.
    pub client_certificates: Option<Value>,
    /// Whether it is the hub's own apiserver.
    #[serde(deserialize_with = "or_default")]
    pub hub: bool,
    /// Whether Keyferry asks it about tokens: `Report` or `Off`.
    #[serde(deserialize_with = "or_default")]
    pub probe: String,
    /// Whether nothing is minted for it.
    #[serde(deserialize_with = "or_default")]
    pub suspend: bool,
}

/// A TargetAccess of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AccessView {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMetadata,
    /// What the tenant states.
    #[serde(deserialize_with = "or_default")]
    pub spec: AccessSpecView,
    /// What Keyferry states.
    #[serde(deserialize_with = "or_default")]
    pub status: AccessStatusView,
}

/// The spec of a TargetAccess.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessSpecView {
    /// The TargetCluster.
    #[serde(deserialize_with = "or_default")]
    pub target_cluster_ref: Reference,
    /// The ServiceAccount.
    #[serde(deserialize_with = "or_default")]
    pub service_account_name: String,
    /// Other ServiceAccounts that may ask for it.
    #[serde(deserialize_with = "readable_items")]
    pub callers: Vec<String>,
    /// Whether Keyferry asks the target about its token: `Off`, `Report` or `Require`.
    #[serde(deserialize_with = "or_default")]
    pub probe: String,
    /// Whether nothing is minted for it.
    #[serde(deserialize_with = "or_default")]
    pub suspend: bool,
    /// The wanted deliveries; none means tokens on request.
    #[serde(deserialize_with = "readable_items")]
    pub deliveries: Vec<DeliveryView>,
}

/// A reference to another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// The status of a TargetAccess.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AccessStatusView {
    /// The generation of the spec that it is about.
    #[serde(deserialize_with = "or_default")]
    pub observed_generation: Option<i64>,
    /// The user that the target authenticates the token as.
    #[serde(deserialize_with = "or_default")]
    pub identity: Option<IdentityStatus>,
    /// Ready and the target's answer in one short line.
    #[serde(deserialize_with = "or_default")]
    pub summary: Option<String>,
    /// When the target was last asked about a token.
    #[serde(deserialize_with = "or_default")]
    pub last_probe_time: Option<String>,
    /// Its conditions.
    #[serde(deserialize_with = "readable_items")]
    pub conditions: Vec<StatedCondition>,
    /// The target, if the access may use it.
    #[serde(deserialize_with = "or_default")]
    pub cluster: Option<ClusterStatus>,
    /// What became of the deliveries that write an object.
    #[serde(deserialize_with = "readable_items")]
    pub deliveries: Vec<DeliveryView>,
    /// When the last token that was delivered expires.
    #[serde(deserialize_with = "or_default")]
    pub exposure_until: Option<String>,
}

/// A delivery, as wanted or as it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeliveryView {
    /// Its name in the list.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its type.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub delivery_type: String,
    /// The name of the object to write, if the access states one.
    #[serde(deserialize_with = "or_default")]
    pub object_name: Option<String>,
    /// The name of the delivered object.
    #[serde(deserialize_with = "or_default")]
    pub object: Option<String>,
    /// `Delivered`, or the reason code of the failure.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// The text for readers of the access.
    #[serde(deserialize_with = "or_default")]
    pub message: Option<String>,
    /// When the token in the object expires.
    #[serde(deserialize_with = "or_default")]
    pub expires_at: Option<String>,
    /// When it is rewritten.
    #[serde(deserialize_with = "or_default")]
    pub renew_at: Option<String>,
    /// The kid of the key that signed the token.
    #[serde(rename = "keyID", deserialize_with = "or_default")]
    pub key_id: Option<String>,
}

fn view<T: DeserializeOwned + Default>(object: &Value) -> T {
    Lenient::deserialize(object)
        .map(|Lenient(view)| view)
        .unwrap_or_default()
}

impl ObjectHead {
    /// Reads what names an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        view(object)
    }
}

impl ObjectMetadata {
    /// Returns the name, if it is a valid one.
    #[must_use]
    pub fn object_name(&self) -> Option<ObjectName> {
        ObjectName::new(self.name.as_str()).ok()
    }

    /// Returns the name of a TargetAccess, if it is a valid one.
    #[must_use]
    pub fn access_name(&self) -> Option<AccessName> {
        Some(AccessName {
            namespace: Namespace::new(self.namespace.as_deref()?).ok()?,
            name: self.object_name()?,
        })
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

impl TargetView {
    /// Reads a TargetCluster.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        view(object)
    }

    /// Returns the status if it is about the current spec: only then has the server judged the
    /// spec, and compared its audience with those of other targets.
    #[must_use]
    pub fn current_status(&self) -> Option<&TargetClusterStatus> {
        let generation = self.metadata.generation?;
        let status = self.status.as_ref()?;
        (status.observed_generation == Some(generation)).then_some(status)
    }
}

impl TargetSpecView {
    /// Whether the target is no Kubernetes cluster.
    #[must_use]
    pub fn is_relying_party(&self) -> bool {
        self.kind == "Audience"
    }

    /// Whether its tokens are signed by a managed issuer of its own.
    #[must_use]
    pub fn has_managed_issuer(&self) -> bool {
        self.issuer == "Keyferry"
    }
}

impl AccessView {
    /// Reads a TargetAccess.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        view(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_odd_hides_nothing_else() {
        let access = AccessView::of(&json!({
            "metadata": { "name": "prod", "namespace": "tenant-a", "labels": { "a": 1 }, "generation": "2" },
            "spec": { "targetClusterRef": null, "serviceAccountName": "reconciler", "deliveries": [7, { "type": "HTTP" }] },
            "status": { "conditions": "none", "deliveries": [{ "type": "ClusterProfile" }] },
        }));
        let name = access.metadata.access_name().map(|name| name.to_string());
        assert_eq!(name.as_deref(), Some("tenant-a/prod"));
        assert_eq!(access.metadata.generation, None);
        assert_eq!(access.spec.service_account_name, "reconciler");
        assert_eq!(access.spec.target_cluster_ref.name, "");
        assert_eq!(access.spec.deliveries.len(), 1);
        assert_eq!(access.status.deliveries.len(), 1);
        for odd in [
            json!(null),
            json!("a"),
            json!({ "metadata": 1, "spec": [] }),
        ] {
            assert_eq!(AccessView::of(&odd), AccessView::default(), "{odd}");
            assert_eq!(TargetView::of(&odd), TargetView::default(), "{odd}");
        }
    }

    #[test]
    fn a_status_about_an_earlier_spec_does_not_count() {
        let issuer = |generation: Value, observed: Value| {
            let target = TargetView::of(&json!({
                "metadata": { "generation": generation },
                "status": { "observedGeneration": observed, "issuer": "https://hub" },
            }));
            target.current_status()?.issuer.clone()
        };
        assert_eq!(issuer(json!(2), json!(2)).as_deref(), Some("https://hub"));
        for (generation, observed) in [
            (json!(3), json!(2)),
            (json!(null), json!(null)),
            (json!("2"), json!(2)),
        ] {
            assert_eq!(issuer(generation, observed), None);
        }
    }
}
