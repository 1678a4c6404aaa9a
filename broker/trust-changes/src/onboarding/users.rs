//! Lists the TargetAccesses of a target and the Flux objects that depend on them, for offboarding.

use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::TargetAccessStatus;
use keyferry_hub::client::{HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::{Value, json};

use keyferry_client::ClientError;
use keyferry_client::objects_of_hub::{access_values, pages};

/// The kinds of Flux that apply at a target, with the paths of their lists.
const FLUX: [(&str, &str, &str); 2] = [
    (
        "Kustomization",
        "kustomize.toolkit.fluxcd.io/v1",
        "kustomizations",
    ),
    ("HelmRelease", "helm.toolkit.fluxcd.io/v2", "helmreleases"),
];

/// One TargetAccess of a target, with what it delivers and the Flux objects that refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUse {
    /// The TargetAccess.
    pub access: AccessName,
    /// The ServiceAccount that it names.
    pub service_account: String,
    /// The UID of the TargetAccess.
    pub uid: String,
    /// Whether it is being deleted already.
    pub deleting: bool,
    /// The objects that it delivers, as type and name.
    pub delivered: Vec<(String, String)>,
    /// When the last token that was delivered expires.
    pub exposure_until: Option<String>,
    /// The Flux objects that refer to what it delivers, or why they are unknown.
    pub flux: Result<Vec<String>, String>,
}

/// Reads every use of a target; of one namespace, if given.
///
/// # Errors
/// [`ClientError`]: the TargetAccesses cannot be listed.
pub async fn of_target(
    client: &HubClient,
    target: &ObjectName,
    namespace: Option<&Namespace>,
) -> Result<Vec<TargetUse>, ClientError> {
    let mut uses: Vec<TargetUse> = access_values(client)
        .await?
        .iter()
        .filter(|object| text(object, "/spec/targetClusterRef/name") == target.as_str())
        .filter_map(read)
        .filter(|one| namespace.is_none_or(|namespace| one.access.namespace == *namespace))
        .collect();
    for one in &mut uses {
        one.flux = flux_objects(client, one).await;
    }
    Ok(uses)
}

/// Deletes a TargetAccess of exactly this UID. What it delivered drains by its deletionPolicy.
///
/// # Errors
/// The call failed.
pub async fn delete_access(
    client: &HubClient,
    one: &TargetUse,
    persistence: Persistence,
) -> Result<(), HubError> {
    let path = format!(
        "/apis/keyferry.dev/v1alpha1/namespaces/{}/targetaccesses/{}",
        one.access.namespace, one.access.name
    );
    delete(client, &path, &one.uid, persistence).await
}

/// Deletes the object at `path` if it has this UID, or lets the hub check that.
///
/// # Errors
/// The call failed; [`HubError::Conflict`] if another object has the name by now.
pub async fn delete(
    client: &HubClient,
    path: &str,
    uid: &str,
    persistence: Persistence,
) -> Result<(), HubError> {
    let mut options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid },
    });
    if persistence == Persistence::DryRun {
        options["dryRun"] = json!(["All"]);
    }
    client
        .delete::<_, Value>(path, &options, "object")
        .await
        .map(drop)
}

fn read(object: &Value) -> Option<TargetUse> {
    let status: TargetAccessStatus =
        serde_json::from_value(object.get("status").cloned().unwrap_or_default())
            .unwrap_or_default();
    let delivered = status.deliveries.iter().filter_map(|delivery| {
        let object = delivery.object.clone()?;
        Some((delivery.delivery_type.clone(), object))
    });
    Some(TargetUse {
        access: AccessName {
            namespace: Namespace::new(text(object, "/metadata/namespace")).ok()?,
            name: ObjectName::new(text(object, "/metadata/name")).ok()?,
        },
        service_account: text(object, "/spec/serviceAccountName").to_owned(),
        uid: text(object, "/metadata/uid").to_owned(),
        deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        delivered: delivered.collect(),
        exposure_until: status.exposure_until,
        flux: Ok(Vec::new()),
    })
}

/// Lists the Flux objects of the access's namespace whose kubeConfig refers to a delivered object.
async fn flux_objects(client: &HubClient, one: &TargetUse) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    if one.delivered.is_empty() {
        return Ok(found);
    }
    for (kind, group, plural) in FLUX {
        let path = format!("/apis/{group}/namespaces/{}/{plural}", one.access.namespace);
        match pages(client, &path, "listing objects of Flux").await {
            Ok(objects) => found.extend(
                objects
                    .iter()
                    .filter(|object| refers(object, one))
                    .map(|object| format!("{kind} {}", text(object, "/metadata/name"))),
            ),
            // The hub does not have this kind.
            Err(ClientError::HubCall {
                error: HubError::NotFound(_),
                ..
            }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(found)
}

fn refers(object: &Value, one: &TargetUse) -> bool {
    ["secretRef", "configMapRef"].iter().any(|reference| {
        let name = text(object, &format!("/spec/kubeConfig/{reference}/name"));
        one.delivered.iter().any(|(_, delivered)| delivered == name)
    })
}

/// Returns the text at a JSON pointer; empty if there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_use_names_what_it_delivered_and_who_refers_to_it() {
        let object = json!({
            "metadata": { "name": "prod", "namespace": "tenant-a", "uid": "u" },
            "spec": { "serviceAccountName": "reconciler", "targetClusterRef": { "name": "prod" } },
            "status": {
                "exposureUntil": "2026-01-01T00:00:00Z",
                "deliveries": [
                    { "name": "flux", "type": "FluxConfigMap", "object": "prod", "reason": "Delivered" },
                    { "name": "http", "type": "HTTP", "reason": "Delivered" },
                ],
            },
        });
        let one = read(&object).unwrap();
        assert_eq!(
            one.delivered,
            [("FluxConfigMap".to_owned(), "prod".to_owned())]
        );
        assert!(!one.deleting);
        assert_eq!(one.exposure_until.as_deref(), Some("2026-01-01T00:00:00Z"));
        let flux = |reference: &str, name: &str| json!({ "spec": { "kubeConfig": { reference: { "name": name } } } });
        assert!(refers(&flux("configMapRef", "prod"), &one));
        assert!(!refers(&flux("configMapRef", "other"), &one));
        assert!(!refers(&json!({ "spec": {} }), &one));
    }
}
