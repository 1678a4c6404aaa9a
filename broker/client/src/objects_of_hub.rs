//! Reads TargetClusters and TargetAccesses from the hub with the user's own rights, for commands
//! whose configuration sets `objects: CustomResources`.

mod policy;

use std::collections::BTreeMap;

use keyferry_api::config::{ServerConfiguration, StoredAccess, StoredObjects, StoredTarget};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) use self::policy::{published_issuer, with_access, with_all_objects, with_target};
use super::ClientError;

const GROUP: &str = "/apis/keyferry.dev/v1alpha1";
/// Objects per page of a list: the hub's response may have 3 MiB, and an object may be large.
const PAGE: usize = 100;
/// The most pages that are read, so that a list without end cannot block a command for ever.
const MOST_PAGES: usize = 1_000;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Value>,
    #[serde(default)]
    metadata: ListMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Reads every TargetCluster and TargetAccess of the hub, with the settings of this configuration.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn all_objects(
    server: &ServerConfiguration,
    client: &HubClient,
) -> Result<StoredObjects, ClientError> {
    let mut objects = StoredObjects::default();
    let targets = target_values(client).await?;
    objects.targets.extend(
        targets
            .iter()
            .filter_map(|object| StoredTarget::read(object, server)),
    );
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
    let status = object.and_then(|mut object| object.get_mut("status").map(Value::take));
    Ok(serde_json::from_value(status.unwrap_or_default()).unwrap_or_default())
}

/// Reads the statuses of all TargetClusters of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn target_statuses(client: &HubClient) -> Result<Vec<TargetClusterStatus>, ClientError> {
    let targets = target_values(client).await?;
    Ok(targets
        .iter()
        .filter_map(|object| serde_json::from_value(object.get("status")?.clone()).ok())
        .collect())
}

/// Reads the labels of every namespace of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list namespaces.
pub async fn namespace_labels(
    client: &HubClient,
) -> Result<BTreeMap<Namespace, BTreeMap<String, String>>, ClientError> {
    let namespaces = pages(
        client,
        "/api/v1/namespaces",
        "listing the namespaces of the hub",
    )
    .await?;
    Ok(namespaces
        .iter()
        .filter_map(|object| {
            let metadata = object.get("metadata")?;
            let name = Namespace::new(metadata.get("name")?.as_str()?).ok()?;
            let labels = metadata.get("labels").cloned().unwrap_or_default();
            Some((name, serde_json::from_value(labels).unwrap_or_default()))
        })
        .collect())
}

/// Reads every TargetCluster of the hub, as the API returns them.
pub(crate) async fn target_values(client: &HubClient) -> Result<Vec<Value>, ClientError> {
    list(
        client,
        "targetclusters",
        "TargetCluster",
        "listing the TargetClusters of the hub",
    )
    .await
}

/// Reads one TargetCluster, as the API returns it; `None` if there is none.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the object.
pub async fn target_value(
    client: &HubClient,
    target: &ObjectName,
) -> Result<Option<Value>, ClientError> {
    let path = format!("{GROUP}/targetclusters/{target}");
    read(client, &path, "reading the TargetCluster on the hub").await
}

/// Reads the TargetCluster that a TargetAccess names, as the API returns it.
pub(crate) async fn target_of_access(
    client: &HubClient,
    access: &AccessName,
) -> Result<Option<Value>, ClientError> {
    let Some(object) = access_value(client, access).await? else {
        return Ok(None);
    };
    let name = object
        .pointer("/spec/targetClusterRef/name")
        .and_then(Value::as_str)
        .and_then(|name| ObjectName::new(name).ok());
    match name {
        Some(name) => target_value(client, &name).await,
        None => Ok(None),
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
        "{GROUP}/namespaces/{}/targetaccesses/{}",
        access.namespace, access.name
    );
    read(client, &path, "reading the TargetAccess on the hub").await
}

/// Reads every TargetAccess of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn all_accesses(
    client: &HubClient,
) -> Result<Vec<(AccessName, StoredAccess)>, ClientError> {
    let accesses = access_values(client).await?;
    Ok(accesses.iter().filter_map(StoredAccess::read).collect())
}

/// Reads every TargetAccess of the hub, as the API returns them.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn access_values(client: &HubClient) -> Result<Vec<Value>, ClientError> {
    list(
        client,
        "targetaccesses",
        "TargetAccess",
        "listing the TargetAccesses of the hub",
    )
    .await
}

/// Reads the names of all TargetClusters of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn target_names(client: &HubClient) -> Result<Vec<ObjectName>, ClientError> {
    let objects = target_values(client).await?;
    Ok(objects.iter().filter_map(name_of).collect())
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
            format!("{GROUP}/namespaces/{namespace}/targetaccesses"),
            "listing the TargetAccesses of a namespace of the hub",
        ),
        None => (
            format!("{GROUP}/targetaccesses"),
            "listing the TargetAccesses of the hub",
        ),
    };
    let objects = pages(client, &path, doing).await?;
    Ok(objects
        .iter()
        .filter(|object| !is_deleting(object))
        .filter_map(access_name)
        .collect())
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Returns the name of a TargetAccess.
pub(crate) fn access_name(object: &Value) -> Option<AccessName> {
    let namespace = object.pointer("/metadata/namespace")?.as_str()?;
    Some(AccessName {
        namespace: Namespace::new(namespace).ok()?,
        name: name_of(object)?,
    })
}

fn name_of(object: &Value) -> Option<ObjectName> {
    ObjectName::new(object.pointer("/metadata/name")?.as_str()?).ok()
}

async fn list(
    client: &HubClient,
    plural: &str,
    kind: &str,
    doing: &'static str,
) -> Result<Vec<Value>, ClientError> {
    let mut objects = pages(client, &format!("{GROUP}/{plural}"), doing).await?;
    for object in &mut objects {
        // Some servers omit these fields in the items of a list.
        object["apiVersion"] = json!("keyferry.dev/v1alpha1");
        object["kind"] = json!(kind);
    }
    Ok(objects)
}

/// Reads all pages of a list. `doing` names the step in errors.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn pages(
    client: &HubClient,
    path: &str,
    doing: &'static str,
) -> Result<Vec<Value>, ClientError> {
    let (mut all, mut next) = (Vec::new(), None::<String>);
    for _ in 0..MOST_PAGES {
        let from = next.as_ref().map_or_else(String::new, |next| {
            format!(
                "&continue={}",
                url::form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>()
            )
        });
        let path = format!("{path}?limit={PAGE}{from}");
        let page: List = client
            .get_object(&path, "list")
            .await
            .map_err(|error| ClientError::HubCall { doing, error })?;
        all.extend(page.items.into_iter().filter(Value::is_object));
        next = page.metadata.next.filter(|next| !next.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
    Err(ClientError::HubCall {
        doing,
        error: HubError::Unreadable("list"),
    })
}

async fn read(
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
