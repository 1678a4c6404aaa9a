//! Reads TargetClusters and TargetAccesses from the hub with the user's own rights, for commands
//! whose configuration sets `objects: CustomResources`.

use std::collections::{BTreeMap, BTreeSet};

use keyferry_api::config::{
    Configuration, ObjectSource, ServerConfiguration, StoredAccess, StoredObjects, StoredTarget,
    TokenIssuer,
};
use keyferry_api::issuer::Issuer;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_api::status::TargetClusterStatus;
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
/// [`ClientError::StaleTarget`]: the server has not judged the target's current spec yet.
pub async fn with_access(
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
            let target = stored_target(client, &configuration.server, &target).await?;
            objects.targets.extend(target);
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
pub async fn with_target(
    configuration: Configuration,
    client: &HubClient,
    target: &ObjectName,
) -> Result<Configuration, ClientError> {
    let mut objects = StoredObjects::default();
    let stored = stored_target(client, &configuration.server, target).await?;
    objects.targets.extend(stored);
    Ok(with_policy(configuration, client, objects).await)
}

/// Returns the configuration with all objects of the hub as its policy, if it says that the objects
/// are there. Otherwise returns it unchanged.
///
/// # Errors
/// [`ClientError::HubCall`]: the hub does not respond, or the user may not list the objects.
pub async fn with_all_objects(
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

/// Reads one TargetCluster, if it has no mistake that hides its name. Refuses a spec that the server
/// has not judged yet.
async fn stored_target(
    client: &HubClient,
    server: &ServerConfiguration,
    target: &ObjectName,
) -> Result<Option<(ObjectName, StoredTarget)>, ClientError> {
    let object = target_value(client, target).await?;
    let read = object
        .as_ref()
        .and_then(|object| StoredTarget::read(object, server));
    let Some((name, stored)) = read else {
        return Ok(None);
    };
    // Only the server has seen all targets, and its status says whether an older one has the
    // audience.
    let observed = stored.record.status.get("observedGeneration");
    if observed.and_then(Value::as_i64) != Some(stored.record.generation) {
        return Err(ClientError::StaleTarget(name.to_string()));
    }
    Ok(Some((name, stored)))
}

/// Returns the hub's issuer from the TargetClusters' statuses, if they agree.
pub(crate) fn published_issuer<'a>(
    targets: impl Iterator<Item = &'a StoredTarget>,
) -> Option<Issuer> {
    let of_hub = |target: &&StoredTarget| {
        target
            .meant()
            .is_some_and(|target| target.issuer == TokenIssuer::Hub)
    };
    let stated = |target: &'a StoredTarget| target.record.status.get("issuer")?.as_str();
    let issuers: BTreeSet<&str> = targets.filter(of_hub).filter_map(stated).collect();
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
pub(crate) async fn access_values(client: &HubClient) -> Result<Vec<Value>, ClientError> {
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

/// Reads all pages of a list.
pub(crate) async fn pages(
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
mod tests {
    use std::time::Duration;

    use keyferry_api::config;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::configuration_source::{ConfigurationSource, Wanted, server_of_hub};

    /// A hub that answers the first requests with these documents, each on a connection of its own,
    /// and closes all others without an answer.
    async fn hub(answers: Vec<Value>) -> HubClient {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                if let Some(answer) = answers.next() {
                    let body = answer.to_string();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                         content-length: {}\r\n\r\n",
                        body.len()
                    );
                    let _ = stream.write_all((head + &body).as_bytes()).await;
                }
            }
        });
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        HubClient::new(config).unwrap()
    }

    fn target() -> Value {
        json!({
            "metadata": {
                "name": "prod", "uid": "u", "generation": 1, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "address": "https://prod.example.com", "audience": "https://prod" },
            "status": {
                "observedGeneration": 1, "usernamePrefix": "hub:", "issuer": "https://hub.example.com",
                "discoveryURL": "https://keys.example.com/.well-known/openid-configuration",
                "clusterResourceNamespace": "keyferry-system",
            },
        })
    }

    fn page(items: &[Value], next: &str) -> Value {
        json!({ "items": items, "metadata": { "continue": next } })
    }

    /// No command works with half a list: the missing half may have the older target of an
    /// audience.
    #[tokio::test]
    async fn a_hub_that_goes_away_within_a_command_ends_it() {
        let all = async |answers: Vec<Value>| {
            let client = hub(answers).await;
            let source = ConfigurationSource::Hub;
            let read = source.read(async || Ok(client), Wanted::All);
            tokio::time::timeout(Duration::from_secs(20), read)
                .await
                .unwrap()
        };
        let whole = page(&[target()], "");
        for (answers, doing) in [
            (vec![], "listing the TargetClusters of the hub"),
            (
                vec![page(&[target()], "more")],
                "listing the TargetClusters of the hub",
            ),
            (vec![whole.clone()], "listing the TargetClusters of the hub"),
            (
                vec![whole.clone(), whole.clone()],
                "listing the TargetAccesses of the hub",
            ),
        ] {
            let error = all(answers).await.unwrap_err();
            assert!(
                matches!(&error, ClientError::HubCall { doing: step, error: HubError::Unreachable(_) } if *step == doing),
                "{error:?}"
            );
        }
        let read = all(vec![whole.clone(), whole, page(&[], "")]).await;
        assert_eq!(read.unwrap().policy.targets.len(), 1);
    }

    #[tokio::test]
    async fn a_list_without_end_is_refused() {
        let client = hub(vec![page(&[], "more"); MOST_PAGES + 1]).await;
        let error = target_values(&client).await.unwrap_err();
        assert!(
            matches!(
                error,
                ClientError::HubCall {
                    error: HubError::Unreadable(_),
                    ..
                }
            ),
            "{error}"
        );
    }

    #[tokio::test]
    async fn the_settings_of_the_server_are_in_the_statuses() {
        let read = async |answer: Value| server_of_hub(&hub(vec![answer]).await).await;
        let server = read(page(&[target()], "")).await.unwrap();
        assert_eq!(server.public_url.as_str(), "https://keys.example.com");
        assert_eq!(
            server.hub_issuer.as_ref().map(Issuer::as_str),
            Some("https://hub.example.com")
        );
        let mut other = target();
        other["metadata"]["name"] = json!("other");
        other["status"]["issuer"] = json!("https://other.example.com");
        let server = read(page(&[target(), other], "")).await.unwrap();
        assert_eq!(server.hub_issuer, None, "they do not agree");
        let none = read(page(&[], "")).await.unwrap_err();
        assert!(matches!(none, ClientError::NoTargetClusters), "{none}");
        let mut stale = target();
        stale["status"]["observedGeneration"] = json!(0);
        let stale = read(page(&[stale], "")).await.unwrap_err();
        assert!(matches!(stale, ClientError::NoSettings), "{stale}");
    }

    /// With a configuration file, the settings do not come from the status, so nothing else compares
    /// the generations.
    #[tokio::test]
    async fn one_access_at_a_target_that_the_server_has_not_judged_is_refused() {
        let access = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": {
                "name": "apps", "namespace": "tenant-a", "uid": "a", "generation": 1,
                "resourceVersion": "8", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler" },
        });
        let name = AccessName::parse("tenant-a/apps").unwrap();
        let settings = config::of_hub_objects("hub", "https://k", "keyferry-system").unwrap();
        let mut judged = target();
        judged["apiVersion"] = json!("keyferry.dev/v1alpha1");
        judged["kind"] = json!("TargetCluster");
        let mut changed = judged.clone();
        changed["metadata"]["generation"] = json!(2);
        for (target, is_current) in [(judged, true), (changed, false)] {
            let client = hub(vec![access.clone(), target]).await;
            let read = with_access(settings.clone(), &client, &name).await;
            match read {
                Ok(read) => assert!(is_current && read.policy.targets.len() == 1),
                Err(error) => assert!(
                    !is_current
                        && matches!(&error, ClientError::StaleTarget(name) if name == "prod"),
                    "{error}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn names_of_accesses_leave_out_what_is_being_deleted() {
        let access = |namespace: &str, name: &str, deleted: bool| {
            let mut metadata = json!({ "namespace": namespace, "name": name });
            if deleted {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            json!({ "metadata": metadata })
        };
        let items = [
            access("tenant-a", "prod", false),
            access("tenant-a", "old", true),
            access("tenant-a", "../x", false),
        ];
        let client = hub(vec![page(&items, "")]).await;
        let names = access_names(&client, None).await.unwrap();
        assert_eq!(
            names.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["tenant-a/prod"]
        );
    }
}
