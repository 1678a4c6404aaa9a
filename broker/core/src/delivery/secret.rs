//! Secrets with a whole kubeconfig, with inline token and CA: under `value`, as Flux and Cluster
//! API's consumers read them, or as the access says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::Delivery;
use keyferry_api::name::ObjectName;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::Snapshot;
use crate::kubeconfig::{self, KubeconfigError, KubeconfigParts};

/// Renders a Secret of type `Opaque`, or as the access says.
pub(super) fn kubeconfig_secret(
    snapshot: &Snapshot<'_>,
    delivery: &Delivery,
    token: Option<&SecretString>,
) -> Result<Value, KubeconfigError> {
    let shape = delivery.secret.clone().unwrap_or_default();
    let mut object = json!({ "type": shape.secret_type, "labels": shape.labels });
    object["data"][&shape.key] = kubeconfig_base64(snapshot, token)?.into();
    if !shape.annotations.is_empty() {
        object["annotations"] = json!(shape.annotations);
    }
    Ok(object)
}

/// Renders the Secret that Cluster API's consumers expect: `<cluster>-kubeconfig`.
pub(super) fn cluster_api(
    snapshot: &Snapshot<'_>,
    name: &ObjectName,
    token: Option<&SecretString>,
) -> Result<Value, KubeconfigError> {
    let cluster = cluster_of(name);
    let mut object = json!({ "type": "cluster.x-k8s.io/secret", "data": { "value": kubeconfig_base64(snapshot, token)? } });
    if cluster.len() <= 63 {
        object["labels"] = json!({ "cluster.x-k8s.io/cluster-name": cluster });
    }
    Ok(object)
}

/// The Cluster API Cluster whose Secret has this name. Only one suffix is removed: the cluster's
/// own name may have the same suffix.
pub fn cluster_of(secret: &ObjectName) -> &str {
    secret
        .as_str()
        .strip_suffix("-kubeconfig")
        .unwrap_or(secret.as_str())
}

/// Renders the kubeconfig in base64, as `data` requires.
fn kubeconfig_base64(
    snapshot: &Snapshot<'_>,
    token: Option<&SecretString>,
) -> Result<String, KubeconfigError> {
    let empty = SecretString::from("");
    let document = kubeconfig::render_kubeconfig(&KubeconfigParts {
        target: snapshot.target,
        ca_pem: snapshot.ca_pem,
        access: &snapshot.access.name,
        token: token.unwrap_or(&empty),
    })?;
    Ok(STANDARD.encode(document.expose_secret()))
}
