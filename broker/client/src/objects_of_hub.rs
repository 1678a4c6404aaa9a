//! Reads TargetClusters and TargetAccesses from the hub with the user's own rights, for commands
//! whose configuration sets `objects: CustomResources`.

mod policy;

use std::collections::BTreeMap;

use jiff::Timestamp;
use keyferry_api::config::{
    ObjectSize, ReducedObject, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget,
};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use keyferry_hub::watched_object::WatchedNamespace;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) use self::policy::{
    published_issuer, with_access, with_all_objects, with_cluster, with_target,
};
use super::ClientError;
use super::object_view::{AccessView, ObjectHead, TargetView};

const GROUP_PATH: &str = "/apis/keyferry.dev/v1alpha1";
/// The annotation that requests a reconciliation.
const REQUESTED_AT: &str = "keyferry.dev/requestedAt";
/// Objects per page of a list.
const PAGE_OBJECTS: u32 = 100;

/// Reads every TargetCluster and TargetAccess of the hub, with the settings of this configuration.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn all_objects(
    server: &ServerConfiguration,
    client: &HubClient,
) -> Result<StoredObjects, ClientError> {
    let mut objects = StoredObjects::default();
    let targets = list_targets(client, |object| StoredTarget::read_reduced(&object, server));
    objects.targets.extend(targets.await?);
    objects.accesses.extend(all_accesses(client).await?);
    Ok(objects)
}

/// Reads the status of one TargetCluster; the default if there is none, or none yet.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the object.
pub async fn target_status(
    client: &HubClient,
    target: &ObjectName,
) -> Result<TargetClusterStatus, ClientError> {
    let object = target_value(client, target).await?;
    let status = object.and_then(|object| TargetView::of(&object).status);
    Ok(status.unwrap_or_default())
}

/// Reads the statuses of all TargetClusters of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn target_statuses(client: &HubClient) -> Result<Vec<TargetClusterStatus>, ClientError> {
    let targets = target_values(client).await?;
    Ok(targets
        .iter()
        .filter_map(|object| TargetView::of(object).status)
        .collect())
}

/// Reads the labels of every namespace of the hub that a TargetCluster may select by.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list namespaces.
pub async fn namespace_labels(
    client: &HubClient,
) -> Result<BTreeMap<Namespace, BTreeMap<String, String>>, ClientError> {
    // A namespace with too many labels has none here, as for the server.
    let labels = |object: WatchedNamespace| Some((object.name?, object.labels?));
    let namespaces = client
        .list("/api/v1/namespaces", PAGE_OBJECTS, "list", labels)
        .await;
    let namespaces = namespaces.map_err(|error| ClientError::HubCall {
        doing: "listing the namespaces of the hub",
        error,
    })?;
    Ok(namespaces.into_iter().collect())
}

/// Reads every TargetCluster of the hub, with the metadata that Keyferry reads.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn target_values(client: &HubClient) -> Result<Vec<Value>, ClientError> {
    list_targets(client, |object| Some(object.into_value())).await
}

/// Reads every TargetCluster of the hub, for an answer that needs the spec of all of them.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
/// [`ClientError::ObjectTooLarge`]: one is not read whole.
pub async fn whole_target_values(client: &HubClient) -> Result<Vec<Value>, ClientError> {
    let targets = list_targets(client, |object| Some(whole_object(object, "TargetCluster")));
    targets.await?.into_iter().collect()
}

fn whole_object(object: ReducedObject, kind: &'static str) -> Result<Value, ClientError> {
    match object.size() {
        ObjectSize::Kept => Ok(object.into_value()),
        ObjectSize::SpecTooLarge | ObjectSize::StatusTooLarge => {
            let name = object.full_name();
            Err(ClientError::ObjectTooLarge { kind, name })
        }
    }
}

async fn list_targets<U>(
    client: &HubClient,
    keep: impl FnMut(ReducedObject) -> Option<U>,
) -> Result<Vec<U>, ClientError> {
    let doing = "listing the TargetClusters of the hub";
    list_objects(client, "targetclusters", "TargetCluster", doing, keep).await
}

/// Reads one TargetCluster, as the API returns it; `None` if there is none.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the object.
pub async fn target_value(
    client: &HubClient,
    target: &ObjectName,
) -> Result<Option<Value>, ClientError> {
    let path = format!("{GROUP_PATH}/targetclusters/{target}");
    read_object(client, &path, "reading the TargetCluster on the hub").await
}

/// Reads the TargetCluster that a TargetAccess names, as the API returns it.
pub(crate) async fn target_of_access(
    client: &HubClient,
    access: &AccessName,
) -> Result<Option<Value>, ClientError> {
    let Some(object) = access_value(client, access).await? else {
        return Ok(None);
    };
    let target = AccessView::of(&object).spec.target_cluster_ref.name;
    match ObjectName::new(target) {
        Ok(name) => target_value(client, &name).await,
        Err(_) => Ok(None),
    }
}

/// Reads one TargetAccess, as the API returns it; `None` if there is none.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the object.
pub async fn access_value(
    client: &HubClient,
    access: &AccessName,
) -> Result<Option<Value>, ClientError> {
    let path = format!(
        "{GROUP_PATH}/namespaces/{}/targetaccesses/{}",
        access.namespace, access.name
    );
    read_object(client, &path, "reading the TargetAccess on the hub").await
}

/// Asks Keyferry to reconcile a TargetAccess at once, and to try its target again, by the annotation
/// `keyferry.dev/requestedAt`.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not patch the object.
pub async fn request_reconciliation(
    client: &HubClient,
    access: &AccessName,
    now: Timestamp,
) -> Result<(), ClientError> {
    let path = format!(
        "{GROUP_PATH}/namespaces/{}/targetaccesses/{}",
        access.namespace, access.name
    );
    let change = json!({ "metadata": { "annotations": { REQUESTED_AT: now.to_string() } } });
    let patched = client.merge_patch::<_, Value>(&path, &change, "TargetAccess");
    patched
        .await
        .map(drop)
        .map_err(|error| ClientError::HubCall {
            doing: "requesting a check of the TargetAccess on the hub",
            error,
        })
}

/// Reads every TargetAccess of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn all_accesses(
    client: &HubClient,
) -> Result<Vec<(AccessName, StoredAccess)>, ClientError> {
    list_accesses(client, |object| StoredAccess::read_reduced(&object)).await
}

/// Reads every TargetAccess of the hub, reduced to what Keyferry reads of it, and returns what `keep`
/// makes of them. It is called while the list is read, because each may be megabytes long.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn list_accesses<U>(
    client: &HubClient,
    keep: impl FnMut(ReducedObject) -> Option<U>,
) -> Result<Vec<U>, ClientError> {
    let doing = "listing the TargetAccesses of the hub";
    list_objects(client, "targetaccesses", "TargetAccess", doing, keep).await
}

/// Reads the names of all TargetClusters of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn target_names(client: &HubClient) -> Result<Vec<ObjectName>, ClientError> {
    let objects = target_values(client).await?;
    let name = |object| ObjectHead::of(object).metadata.object_name();
    Ok(objects.iter().filter_map(name).collect())
}

/// Reads the names of the TargetAccesses of one namespace, or of all. Leaves out those that are
/// being deleted.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn access_names(
    client: &HubClient,
    namespace: Option<&Namespace>,
) -> Result<Vec<AccessName>, ClientError> {
    let (path, doing) = match namespace {
        Some(namespace) => (
            format!("{GROUP_PATH}/namespaces/{namespace}/targetaccesses"),
            "listing the TargetAccesses of a namespace of the hub",
        ),
        None => (
            format!("{GROUP_PATH}/targetaccesses"),
            "listing the TargetAccesses of the hub",
        ),
    };
    let listed = client.list(&path, PAGE_OBJECTS, "list", |object: ReducedObject| {
        let metadata = ObjectHead::of(&object.into_value()).metadata;
        metadata.access_name().filter(|_| !metadata.is_deleting())
    });
    listed
        .await
        .map_err(|error| ClientError::HubCall { doing, error })
}

async fn list_objects<U>(
    client: &HubClient,
    plural: &str,
    kind: &str,
    doing: &'static str,
    mut keep: impl FnMut(ReducedObject) -> Option<U>,
) -> Result<Vec<U>, ClientError> {
    let path = format!("{GROUP_PATH}/{plural}");
    let listed = client.list(&path, PAGE_OBJECTS, "list", |object: ReducedObject| {
        // Some servers omit the kind in the items of a list.
        keep(object.of_kind(kind))
    });
    listed
        .await
        .map_err(|error| ClientError::HubCall { doing, error })
}

/// Reads a list, and returns what `keep` makes of its objects. `T` should have only the members that
/// are needed: all others are skipped while the list is parsed, because tenants decide how long they
/// are. `doing` names the step in errors.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn list_of<T: DeserializeOwned + Send + 'static, U>(
    client: &HubClient,
    path: &str,
    doing: &'static str,
    keep: impl FnMut(T) -> Option<U>,
) -> Result<Vec<U>, ClientError> {
    let listed = client.list(path, PAGE_OBJECTS, "list", keep).await;
    listed.map_err(|error| ClientError::HubCall { doing, error })
}

async fn read_object(
    client: &HubClient,
    path: &str,
    doing: &'static str,
) -> Result<Option<Value>, ClientError> {
    match client.get_object::<Value>(path, "object").await {
        Ok(object) => Ok(Some(object)),
        Err(HubError::NotFound(_)) => Ok(None),
        Err(error) => Err(ClientError::HubCall { doing, error }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
