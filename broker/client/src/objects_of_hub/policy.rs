//! Builds the policy of a command from objects of the hub.

use std::collections::BTreeSet;

use keyferry_api::config::{
    Configuration, ObjectSource, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget,
    TokenIssuer,
};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{AccessName, ObjectName};
use keyferry_api::object_view::TargetView;
use keyferry_api::status::TargetClusterStatus;
use keyferry_hub::client::HubClient;
use serde::Deserialize;
use serde_json::Value;

use super::{access_value, all_objects, target_value, target_values};
use crate::ClientError;
use crate::checked_mint::issuer_of;

/// Returns the configuration with `access` and its target as its policy.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the objects.
/// [`ClientError::StaleTarget`]: the server has not judged the target's current spec yet.
pub(crate) async fn with_access(
    mut configuration: Configuration,
    client: &HubClient,
    access: &AccessName,
) -> Result<Configuration, ClientError> {
    let mut objects = StoredObjects::default();
    if let Some((name, stored)) = access_value(client, access)
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
            add_target(&mut objects, client, &configuration.server, &target).await?;
        }
    }
    configuration.policy = objects
        .assemble(&configuration.server.cluster_resource_namespace)
        .policy;
    Ok(configuration)
}

/// Returns the configuration with one TargetCluster as its policy, and with the issuer that its
/// status states, unless the configuration pins one.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not read the object.
/// [`ClientError::StaleTarget`]: the server has not judged the current spec yet.
pub(crate) async fn with_target(
    configuration: Configuration,
    client: &HubClient,
    target: &ObjectName,
) -> Result<Configuration, ClientError> {
    let mut objects = StoredObjects::default();
    add_target(&mut objects, client, &configuration.server, target).await?;
    Ok(with_policy(configuration, client, objects).await)
}

/// As [`with_target`], with every role at the target's cluster.
///
/// # Errors
/// As [`with_target`]; the user may not list the TargetClusters.
pub(crate) async fn with_cluster(
    configuration: Configuration,
    client: &HubClient,
    target: &ObjectName,
) -> Result<Configuration, ClientError> {
    let mut objects = StoredObjects::default();
    let server = &configuration.server;
    add_target(&mut objects, client, server, target).await?;
    for object in target_values(client).await? {
        let same_as = TargetView::of(&object).spec.same_as;
        if same_as.as_deref() == Some(target.as_str()) {
            objects.targets.extend(judged_target(&object, server)?);
        }
    }
    Ok(with_policy(configuration, client, objects).await)
}

/// Returns the configuration with all objects of the hub as its policy, if it says that the objects
/// are there. Otherwise returns it unchanged.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub(crate) async fn with_all_objects(
    configuration: Configuration,
    client: &HubClient,
) -> Result<Configuration, ClientError> {
    if configuration.server.objects == ObjectSource::File {
        return Ok(configuration);
    }
    let objects = all_objects(&configuration.server, client).await?;
    Ok(with_policy(configuration, client, objects).await)
}

/// Takes the objects as the policy, and the hub's issuer unless the configuration pins one.
async fn with_policy(
    mut configuration: Configuration,
    client: &HubClient,
    mut objects: StoredObjects,
) -> Configuration {
    if configuration.server.hub_issuer.is_none() {
        // A status has the issuer only once the controller has checked its target. A user without
        // the right to read the hub's discovery document has only the statuses.
        let own = issuer_of(client)
            .await
            .and_then(|issuer| Issuer::new(issuer).ok());
        configuration.server.hub_issuer =
            own.or_else(|| published_issuer(objects.targets.values()));
    }
    configuration.policy = objects
        .assemble(&configuration.server.cluster_resource_namespace)
        .policy;
    configuration
}

/// Adds one TargetCluster, and its base if it is a role.
async fn add_target(
    objects: &mut StoredObjects,
    client: &HubClient,
    server: &ServerConfiguration,
    target: &ObjectName,
) -> Result<(), ClientError> {
    let stored = stored_target(client, server, target).await?;
    let role = stored
        .as_ref()
        .and_then(|(_, stored)| stored.meant()?.role.clone());
    if let Some(role) = role {
        let base = stored_target(client, server, &role.same_as).await?;
        objects.targets.extend(base);
    }
    objects.targets.extend(stored);
    Ok(())
}

async fn stored_target(
    client: &HubClient,
    server: &ServerConfiguration,
    target: &ObjectName,
) -> Result<Option<(ObjectName, StoredTarget)>, ClientError> {
    match target_value(client, target).await? {
        Some(object) => judged_target(&object, server),
        None => Ok(None),
    }
}

/// Reads a TargetCluster, if it has no mistake that hides its name. Refuses a spec that the server
/// has not judged yet.
fn judged_target(
    object: &Value,
    server: &ServerConfiguration,
) -> Result<Option<(ObjectName, StoredTarget)>, ClientError> {
    let Some((name, stored)) = StoredTarget::read(object, server) else {
        return Ok(None);
    };
    // Only the server has seen all targets, and its status says whether an older one has the
    // audience.
    if stated_status(&stored).observed_generation != Some(stored.record.generation) {
        return Err(ClientError::StaleTarget(name.to_string()));
    }
    Ok(Some((name, stored)))
}

/// Reads what Keyferry states of a TargetCluster; the default if that cannot be read.
fn stated_status(target: &StoredTarget) -> TargetClusterStatus {
    TargetClusterStatus::deserialize(&target.record.status).unwrap_or_default()
}

/// Returns the hub's issuer from the TargetClusters' statuses, if they agree.
pub(crate) fn published_issuer<'a>(
    targets: impl Iterator<Item = &'a StoredTarget>,
) -> Option<Issuer> {
    let stated = |stored: &StoredTarget| {
        let target = stored.meant()?;
        let issuer = stated_status(stored).issuer?;
        let is_hubs = match target.role {
            // Its base, which may not be among these, says who signs.
            Some(_) => !issuer.ends_with(&format!("/issuers/{}", target.name)),
            None => target.issuer == TokenIssuer::Hub,
        };
        is_hubs.then_some(issuer)
    };
    let issuers: BTreeSet<String> = targets.filter_map(stated).collect();
    let mut issuers = issuers.into_iter();
    match (issuers.next(), issuers.next()) {
        (Some(issuer), None) => Issuer::new(issuer).ok(),
        _ => None,
    }
}
