//! A ClusterProfile (sigs.k8s.io/cluster-inventory-api) with Keyferry as an access provider. It
//! contains no credential.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Snapshot;

/// Renders the object without its status.
pub(super) fn profile_object(snapshot: &Snapshot<'_>) -> Value {
    json!({
        "labels": { "x-k8s.io/cluster-manager": "keyferry" },
        "spec": { "displayName": snapshot.target.name.as_str(), "clusterManager": { "name": "keyferry" } },
    })
}

/// Renders our item of `status.accessProviders` as an apply configuration for the object's status.
///
/// The resourceVersion is a precondition, so that the status is not applied to another object of
/// this name. A UID would not work: when a status is written, the apiserver ignores all other
/// metadata.
pub fn profile_status(snapshot: &Snapshot<'_>, name: &str, version: &str) -> Value {
    let target = snapshot.target;
    let mut cluster = json!({
        "server": target.address,
        "extensions": [{
            "name": "client.authentication.k8s.io/exec",
            "extension": { "clusterName": snapshot.access.name.to_string() },
        }],
    });
    if let Some(pem) = snapshot.ca_pem {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(pem));
    }
    if let Some(proxy) = &target.proxy_url {
        cluster["proxy-url"] = json!(proxy);
    }
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": { "name": name, "resourceVersion": version, "namespace": snapshot.access.name.namespace.as_str() },
        "status": { "accessProviders": [{ "name": "keyferry", "cluster": cluster }] },
    })
}
