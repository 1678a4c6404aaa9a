//! Lists the TargetAccesses of a target and the Flux objects that depend on them, for offboarding.

use keyferry_api::config::{ObjectSize, ReducedObject};
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_client::ClientError;
use keyferry_client::object_view::AccessView;
use keyferry_client::objects_of_hub::{list_accesses, list_of};
use keyferry_core::delivery::FluxObject;
use keyferry_hub::client::{HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::{Value, json};

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
pub(crate) struct TargetUse {
    /// The TargetAccess.
    pub(crate) access: AccessName,
    /// The ServiceAccount that it names.
    pub(crate) service_account: String,
    /// The UID of the TargetAccess.
    pub(crate) uid: String,
    /// Whether it is being deleted already.
    pub(crate) deleting: bool,
    /// The objects that it delivers, as type and name.
    pub(crate) delivered: Vec<(String, String)>,
    /// When the last token that was delivered expires.
    pub(crate) exposure_until: Option<String>,
    /// The Flux objects that refer to what it delivers, or why they are unknown.
    pub(crate) flux: Result<Vec<String>, UnknownFlux>,
}

/// Why the Flux objects that use an access are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownFlux {
    /// What the access delivers is unknown.
    #[error("TargetAccess {0} is too large to be read")]
    AccessTooLarge(String),
    /// The objects of Flux cannot be listed.
    #[error("{0}")]
    NotListed(String),
}

/// The uses of a target, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetUses {
    /// The TargetAccesses that lead to the target.
    pub(crate) readable: Vec<TargetUse>,
    /// The names of those that are too large to be read, so that whether they lead to the target is
    /// unknown.
    pub(crate) unread: Vec<String>,
}

impl TargetUses {
    /// Names the accesses of which it is unknown whether they lead to the target. `None` if there
    /// are none.
    pub(crate) fn unknown(&self, target: &ObjectName) -> Option<String> {
        const MAX_NAMED: usize = 5;
        if self.unread.is_empty() {
            return None;
        }
        let named: Vec<&str> = self.unread.iter().map(String::as_str).collect();
        let (named, more) = named.split_at(named.len().min(MAX_NAMED));
        let mut names = named.join(", ");
        if !more.is_empty() {
            names = format!("{names} and {} more", more.len());
        }
        Some(format!(
            "whether these TargetAccesses lead to TargetCluster {target} is unknown, because they \
             are too large to be read: {names}"
        ))
    }

    /// Whether an access of the namespace is too large to be read.
    pub(crate) fn has_unread_in(&self, namespace: &Namespace) -> bool {
        let own = |name: &String| {
            name.split_once('/')
                .is_some_and(|(one, _)| one == namespace.as_str())
        };
        self.unread.iter().any(own)
    }
}

/// Reads every use of a target; of one namespace, if given.
///
/// # Errors
/// [`ClientError`]: the TargetAccesses cannot be listed.
pub(crate) async fn of_target(
    client: &HubClient,
    target: &ObjectName,
    namespace: Option<&Namespace>,
) -> Result<TargetUses, ClientError> {
    let keep = |access| use_of(access, target, namespace).transpose();
    let mut uses = TargetUses::default();
    for access in list_accesses(client, keep).await? {
        match access {
            Ok(mut one) => {
                if one.flux.is_ok() {
                    one.flux = flux_objects(client, &one).await;
                }
                uses.readable.push(one);
            }
            Err(UnreadAccess(name)) => uses.unread.push(name),
        }
    }
    Ok(uses)
}

/// The name of a TargetAccess that is too large to be read, so that whether it uses a target is
/// unknown.
#[derive(Debug, PartialEq, Eq)]
struct UnreadAccess(String);

/// Reads how an access uses the target, if it does.
///
/// # Errors
/// [`UnreadAccess`].
fn use_of(
    access: ReducedObject,
    target: &ObjectName,
    namespace: Option<&Namespace>,
) -> Result<Option<TargetUse>, UnreadAccess> {
    let (size, name) = (access.size(), access.full_name());
    let view = AccessView::of(&access.into_value());
    let own_namespace = view.metadata.namespace.as_deref();
    if namespace.is_some_and(|wanted| own_namespace != Some(wanted.as_str())) {
        return Ok(None);
    }
    let named = &view.spec.target_cluster_ref.name;
    if size != ObjectSize::Kept && named.is_empty() {
        return Err(UnreadAccess(name));
    }
    let is_of_target = named == target.as_str();
    let mut one = read(view).filter(|_| is_of_target);
    if let (Some(one), true) = (&mut one, size != ObjectSize::Kept) {
        one.flux = Err(UnknownFlux::AccessTooLarge(name));
    }
    Ok(one)
}

/// Deletes a TargetAccess of exactly this UID. What it delivered drains by its deletionPolicy.
///
/// # Errors
/// The call failed.
pub(crate) async fn delete_access(
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
pub(crate) async fn delete(
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

fn read(access: AccessView) -> Option<TargetUse> {
    let delivered = access.status.deliveries.into_iter();
    let delivered =
        delivered.filter_map(|delivery| Some((delivery.delivery_type, delivery.object?)));
    Some(TargetUse {
        access: access.metadata.access_name()?,
        service_account: access.spec.service_account_name,
        deleting: access.metadata.is_deleting(),
        uid: access.metadata.uid,
        delivered: delivered.collect(),
        exposure_until: access.status.exposure_until,
        flux: Ok(Vec::new()),
    })
}

/// Lists the Flux objects of the access's namespace whose kubeConfig refers to a delivered object.
async fn flux_objects(client: &HubClient, one: &TargetUse) -> Result<Vec<String>, UnknownFlux> {
    let mut descriptions = Vec::new();
    if one.delivered.is_empty() {
        return Ok(descriptions);
    }
    for (kind, group, plural) in FLUX {
        let path = format!("/apis/{group}/namespaces/{}/{plural}", one.access.namespace);
        let user =
            |object: FluxObject| refers(&object, one).then(|| format!("{kind} {}", object.name()));
        match list_of(client, &path, "listing objects of Flux", user).await {
            Ok(users) => descriptions.extend(users),
            // The hub does not have this kind.
            Err(ClientError::HubCall {
                error: HubError::NotFound(_),
                ..
            }) => {}
            Err(error) => return Err(UnknownFlux::NotListed(error.to_string())),
        }
    }
    Ok(descriptions)
}

fn refers(object: &FluxObject, one: &TargetUse) -> bool {
    let mut delivered = one.delivered.iter();
    delivered.any(|(_, delivered)| object.names_any(delivered))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_access_that_is_too_large_to_be_read_is_not_called_unused() {
        let target = ObjectName::new("prod").unwrap();
        let access = |spec: &str, status: &str| -> ReducedObject {
            let object = json!({
                "metadata": { "name": "apps", "namespace": "tenant-a", "uid": "u" },
                "spec": {
                    "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler",
                    "text": spec,
                },
                "status": { "text": status },
            });
            serde_json::from_str(&object.to_string()).unwrap()
        };
        let (small, large) = ("x", "x".repeat(1_100_000));
        let one = use_of(access(small, small), &target, None)
            .unwrap()
            .unwrap();
        assert_eq!(one.flux, Ok(Vec::new()));
        let one = use_of(access(small, &large), &target, None)
            .unwrap()
            .unwrap();
        let unknown = "TargetAccess tenant-a/apps is too large to be read";
        assert_eq!(one.flux.unwrap_err().to_string(), unknown);
        for status in [small, &large] {
            let unread = use_of(access(&large, status), &target, None).unwrap_err();
            assert_eq!(unread, UnreadAccess("tenant-a/apps".to_owned()));
        }
        // Of another tenant, nothing is said.
        let other = Namespace::new("tenant-b").unwrap();
        assert_eq!(
            use_of(access(&large, small), &target, Some(&other)),
            Ok(None)
        );
    }

    #[test]
    fn the_accesses_that_are_too_large_to_be_read_are_named_together() {
        let target = ObjectName::new("prod").unwrap();
        let unread = |count: usize| TargetUses {
            readable: Vec::new(),
            unread: (0..count).map(|index| format!("a/x{index}")).collect(),
        };
        assert_eq!(unread(0).unknown(&target), None);
        let all = unread(7).unknown(&target).unwrap();
        assert!(
            all.ends_with("read: a/x0, a/x1, a/x2, a/x3, a/x4 and 2 more"),
            "{all}"
        );
        let namespace = |name| Namespace::new(name).unwrap();
        assert!(unread(1).has_unread_in(&namespace("a")));
        assert!(!unread(1).has_unread_in(&namespace("b")));
    }

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
        let one = read(AccessView::of(&object)).unwrap();
        assert_eq!(
            one.delivered,
            [("FluxConfigMap".to_owned(), "prod".to_owned())]
        );
        assert!(!one.deleting);
        assert_eq!(one.exposure_until.as_deref(), Some("2026-01-01T00:00:00Z"));
        let object = |object: Value| serde_json::from_value::<FluxObject>(object).unwrap();
        let flux = |reference: &str, name: &str| {
            object(json!({ "spec": { "kubeConfig": { reference: { "name": name } } } }))
        };
        assert!(refers(&flux("configMapRef", "prod"), &one));
        assert!(!refers(&flux("configMapRef", "other"), &one));
        assert!(!refers(&object(json!({ "spec": {} })), &one));
    }
}
