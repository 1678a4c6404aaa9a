//! The one access and the one target of a command, read from the hub with the user's own rights, where objects stand there.

use keyferry_core::config::{Configuration, StoredAccess, StoredObjects, StoredTarget};
use keyferry_core::name::AccessName;
use serde_json::Value;

use super::ClientError;
use crate::kube::client::HubClient;
use crate::ports::HubError;

const GROUP: &str = "/apis/keyferry.dev/v1alpha1";

/// The configuration with `access` and its target as its policy.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not answer, or the user may not read the objects.
pub async fn with_objects(mut configuration: Configuration, client: &HubClient, access: &AccessName) -> Result<Configuration, ClientError> {
    let mut objects = StoredObjects::default();
    let path = format!("{GROUP}/namespaces/{}/targetaccesses/{}", access.namespace, access.name);
    if let Some((name, stored)) = read(client, &path, "reading the TargetAccess on the hub").await?.as_ref().and_then(StoredAccess::read) {
        let target = stored.read.as_ref().ok().map(|access| access.target.clone());
        objects.accesses.insert(name, stored);
        if let Some(target) = target {
            let path = format!("{GROUP}/targetclusters/{target}");
            let object = read(client, &path, "reading the TargetCluster on the hub").await?;
            // Whether an older target has its audience is in its status: the server has seen them all.
            objects.targets.extend(object.as_ref().and_then(|object| StoredTarget::read(object, &configuration.server)));
        }
    }
    configuration.policy = objects.assemble(&configuration.server.cluster_resource_namespace).policy;
    Ok(configuration)
}

async fn read(client: &HubClient, path: &str, doing: &'static str) -> Result<Option<Value>, ClientError> {
    match client.get_object::<Value>(path, "object").await {
        Ok(object) => Ok(Some(object)),
        Err(HubError::NotFound(_)) => Ok(None),
        Err(error) => Err(ClientError::HubCall { doing, error }),
    }
}
