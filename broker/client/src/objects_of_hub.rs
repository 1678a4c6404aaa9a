//! Reads TargetClusters and TargetAccesses from the hub with the user's own rights, for commands
//! whose configuration sets `objects: CustomResources`.

use std::collections::BTreeSet;

use keyferry_api::config::{
    Configuration, ObjectSource, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget,
    TokenIssuer,
};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::AccessName;
use keyferry_hub::client::HubClient;
use keyferry_hub::ports::HubError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ClientError;
use super::checked_mint::issuer_of;

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

/// Returns the configuration with `access` and its target as its policy.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the objects.
pub async fn with_objects(
    mut configuration: Configuration,
    client: &HubClient,
    access: &AccessName,
) -> Result<Configuration, ClientError> {
    let mut objects = StoredObjects::default();
    let path = format!(
        "{GROUP}/namespaces/{}/targetaccesses/{}",
        access.namespace, access.name
    );
    if let Some((name, stored)) = read(client, &path, "reading the TargetAccess on the hub")
        .await?
        .as_ref()
        .and_then(StoredAccess::read)
    {
        let target = stored
            .read
            .as_ref()
            .ok()
            .map(|access| access.target.clone());
        objects.accesses.insert(name, stored);
        if let Some(target) = target {
            let path = format!("{GROUP}/targetclusters/{target}");
            let object = read(client, &path, "reading the TargetCluster on the hub").await?;
            // The target's status says whether an older target has its audience: the server has
            // seen all targets.
            objects.targets.extend(
                object
                    .as_ref()
                    .and_then(|object| StoredTarget::read(object, &configuration.server)),
            );
        }
    }
    configuration.policy = objects
        .assemble(&configuration.server.cluster_resource_namespace)
        .policy;
    Ok(configuration)
}

/// Returns the configuration with all objects of the hub as its policy, if it says that the objects
/// are there. Otherwise returns it unchanged.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn with_all_objects(
    mut configuration: Configuration,
    client: &HubClient,
) -> Result<Configuration, ClientError> {
    if configuration.server.objects == ObjectSource::CustomResources {
        let mut objects = all_objects(&configuration.server, client).await?;
        if configuration.server.hub_issuer.is_none() {
            // A status has the issuer only once the controller has checked its target. A user
            // without the right to read the hub's discovery document has only the statuses.
            let own = issuer_of(client)
                .await
                .and_then(|issuer| Issuer::new(issuer).ok());
            configuration.server.hub_issuer = own.or_else(|| published_issuer(&objects));
        }
        configuration.policy = objects
            .assemble(&configuration.server.cluster_resource_namespace)
            .policy;
    }
    Ok(configuration)
}

/// Returns the hub's issuer from the TargetClusters' statuses, if they agree.
fn published_issuer(objects: &StoredObjects) -> Option<Issuer> {
    let of_hub = |target: &&StoredTarget| {
        target
            .meant()
            .is_some_and(|target| target.issuer == TokenIssuer::Hub)
    };
    let stated = |target: &StoredTarget| {
        target
            .record
            .status
            .get("issuer")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let issuers: BTreeSet<String> = objects
        .targets
        .values()
        .filter(of_hub)
        .filter_map(stated)
        .collect();
    let mut issuers = issuers.into_iter();
    match (issuers.next(), issuers.next()) {
        (Some(issuer), None) => Issuer::new(issuer).ok(),
        _ => None,
    }
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
    let targets = list(
        client,
        "targetclusters",
        "TargetCluster",
        "listing the TargetClusters of the hub",
    )
    .await?;
    objects.targets.extend(
        targets
            .iter()
            .filter_map(|object| StoredTarget::read(object, server)),
    );
    objects.accesses.extend(all_accesses(client).await?);
    Ok(objects)
}

/// Reads every TargetAccess of the hub.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn all_accesses(
    client: &HubClient,
) -> Result<Vec<(AccessName, StoredAccess)>, ClientError> {
    let accesses = list(
        client,
        "targetaccesses",
        "TargetAccess",
        "listing the TargetAccesses of the hub",
    )
    .await?;
    Ok(accesses.iter().filter_map(StoredAccess::read).collect())
}

async fn list(
    client: &HubClient,
    plural: &str,
    kind: &str,
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
        let path = format!("{GROUP}/{plural}?limit={PAGE}{from}");
        let page: List = client
            .get_object(&path, "list")
            .await
            .map_err(|error| ClientError::HubCall { doing, error })?;
        all.extend(
            page.items
                .into_iter()
                .filter(Value::is_object)
                .map(|mut object| {
                    // Some servers omit these fields in the items of a list.
                    object["apiVersion"] = json!("keyferry.dev/v1alpha1");
                    object["kind"] = json!(kind);
                    object
                }),
        );
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
