//! Where the listed targets are read: a file, the hub, or the statuses of a namespace's accesses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::config::{Configuration, ObjectSize, ReducedObject, StoredTarget, TargetCluster};
use keyferry_api::name::Namespace;
use keyferry_api::status::{ClusterStatus, TargetClusterStatus};
use keyferry_hub::client::HubAccess;
use keyferry_hub::ports::HubError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ListError, ListedTarget, MissingTargets};
use crate::object_view::TargetView;
use crate::objects_file::ObjectsFile;

const TARGET_CLUSTERS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
/// The most targets that are read.
pub(super) const MAX_TARGETS: usize = 20_000;

/// What was read of a list.
#[derive(Default)]
pub(super) struct ReadTargets {
    pub(super) targets: Vec<ListedTarget>,
    pub(super) missing: Option<MissingTargets>,
}

/// A TargetAccess, reduced to the target that its status names.
#[derive(Deserialize)]
struct AccessObject {
    metadata: AccessMetadata,
    spec: AccessSpec,
    status: AccessStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessMetadata {
    uid: String,
    creation_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessSpec {
    target_cluster_ref: TargetReference,
}

#[derive(Deserialize)]
struct TargetReference {
    name: String,
}

#[derive(Deserialize)]
struct AccessStatus {
    cluster: ClusterStatus,
}

/// Reads every valid TargetCluster of the hub. The list is empty if the hub does not have the kind.
async fn of_hub(hub: &HubAccess) -> Result<ReadTargets, ListError> {
    let read = list(hub, TARGET_CLUSTERS, "TargetCluster", |item| {
        Some(ListedTarget {
            cluster: StoredTarget::read_alone(&item)?,
            status: TargetView::of(&item).status.unwrap_or_default(),
        })
    });
    match read.await {
        Err(ListError::Hub(HubError::NotFound(_))) => Ok(ReadTargets::default()),
        read => read,
    }
}

/// Reads the targets of a namespace's accesses from their statuses.
async fn of_accesses(hub: &HubAccess, namespace: &Namespace) -> Result<ReadTargets, ListError> {
    let path = format!("/apis/keyferry.dev/v1alpha1/namespaces/{namespace}/targetaccesses");
    list(hub, &path, "TargetAccess", |item| of_access(&item)).await
}

/// Reads a list of Keyferry's objects, reduced to what Keyferry reads of them: others decide how
/// long the rest is.
async fn list(
    hub: &HubAccess,
    path: &str,
    kind: &str,
    target: impl Fn(Value) -> Option<ListedTarget>,
) -> Result<ReadTargets, ListError> {
    let client = hub.client().await?;
    let keep = |object: ReducedObject| {
        let (size, name) = (object.size(), object.full_name());
        // The items of a list do not state their kind.
        let read = target(object.of_kind(kind).into_value()).map(Ok);
        match size {
            ObjectSize::Kept => read,
            // A spec below the limit is kept beside a status that is too large.
            ObjectSize::SpecTooLarge | ObjectSize::StatusTooLarge => {
                read.or_else(|| Some(Err(format!("{kind} {name}"))))
            }
        }
    };
    let what = "list of targets";
    let read = client.list_at_most(path, MAX_TARGETS, what, keep).await?;
    if !read.is_complete {
        return Err(ListError::TooMany);
    }
    let (mut targets, mut too_large) = (Vec::new(), Vec::new());
    for one in read.kept {
        match one {
            Ok(target) => targets.push(target),
            Err(name) => too_large.push(name),
        }
    }
    let missing = (!too_large.is_empty()).then_some(MissingTargets::TooLarge(too_large));
    Ok(ReadTargets { targets, missing })
}

/// Reads the target of an access from `status.cluster`, with the checks of a TargetCluster.
fn of_access(access: &Value) -> Option<ListedTarget> {
    let access = AccessObject::deserialize(access).ok()?;
    let cluster = access.status.cluster;
    let pem = cluster
        .certificate_authority_data
        .map(|data| String::from_utf8(STANDARD.decode(data).ok()?).ok());
    let pem = match pem {
        Some(pem) => Some(pem?),
        None => None,
    };
    let mut spec = json!({ "address": cluster.server?, "audience": cluster.audience? });
    let further = [
        ("caBundle", pem),
        ("tlsServerName", cluster.tls_server_name),
        ("proxyURL", cluster.proxy_url),
    ];
    for (member, value) in further {
        if let Some(value) = value {
            spec[member] = Value::String(value);
        }
    }
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": {
            "name": access.spec.target_cluster_ref.name, "uid": access.metadata.uid,
            "generation": 1, "resourceVersion": "1",
            "creationTimestamp": access.metadata.creation_timestamp,
        },
        "spec": spec,
    });
    Some(ListedTarget {
        cluster: StoredTarget::read_alone(&object)?,
        status: TargetClusterStatus::default(),
    })
}

/// Returns the targets of a file with objects of a hub.
pub(super) fn of_objects_file(file: &ObjectsFile) -> ReadTargets {
    let targets = file.targets().map(|cluster| ListedTarget {
        status: file.target_status(&cluster.name),
        cluster,
    });
    ReadTargets {
        targets: targets.collect(),
        missing: None,
    }
}

/// Returns the targets of a configuration file that has the objects.
pub(super) fn of_configuration(configuration: &Configuration) -> ReadTargets {
    let without_status = |cluster: TargetCluster| ListedTarget {
        cluster,
        status: TargetClusterStatus::default(),
    };
    let targets = configuration.policy.targets.values().cloned();
    ReadTargets {
        targets: targets.map(without_status).collect(),
        missing: None,
    }
}

/// Reads the targets of the hub, or those of the accesses of `namespace` if the user may not list
/// TargetClusters. Also describes where the list is.
pub(super) async fn of_hub_or_accesses(
    hub: &HubAccess,
    namespace: Option<&Namespace>,
) -> Result<(ReadTargets, String), ListError> {
    match (of_hub(hub).await, namespace) {
        (Err(ListError::Hub(HubError::Forbidden(right))), Some(own)) => {
            let listed = of_accesses(hub, own)
                .await
                .map_err(|_| ListError::MissingRight(right.to_string()))?;
            let listed = ReadTargets {
                missing: Some(MissingTargets::NoRight(right.to_string())),
                ..listed
            };
            Ok((listed, format!("the TargetAccesses of {own}")))
        }
        (Err(ListError::Hub(HubError::Forbidden(right))), None) => {
            Err(ListError::MissingRight(right.to_string()))
        }
        (listed, _) => Ok((listed?, "the hub".to_owned())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config::CertificateSource;

    use super::*;

    #[test]
    fn an_access_says_which_target_it_leads_to() {
        let pem = keyferry_testing::Authority::new("t")
            .unwrap()
            .ca_pem()
            .to_owned();
        let access = json!({
            "metadata": { "name": "prod", "namespace": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "targetClusterRef": { "name": "prod" } },
            "status": { "cluster": {
                "server": "https://t:6443", "audience": "t", "tls-server-name": "n",
                "certificate-authority-data": STANDARD.encode(&pem),
            } },
        });
        let read = of_access(&access).unwrap().cluster;
        assert_eq!(
            (read.name.as_str(), read.address.as_str()),
            ("prod", "https://t:6443")
        );
        assert_eq!(read.audience.as_str(), "t");
        assert_eq!(read.tls_server_name.as_deref(), Some("n"));
        assert!(matches!(read.certificate, CertificateSource::Inline(_)));
        for (pointer, wrong) in [
            ("/status/cluster/server", json!("http://t")),
            ("/status/cluster/server", json!(null)),
            ("/status/cluster/audience", json!(null)),
            ("/status/cluster/certificate-authority-data", json!("%")),
            ("/spec/targetClusterRef/name", json!("../a")),
        ] {
            let mut other = access.clone();
            *other.pointer_mut(pointer).unwrap() = wrong;
            assert!(of_access(&other).is_none(), "{pointer}");
        }
    }
}
