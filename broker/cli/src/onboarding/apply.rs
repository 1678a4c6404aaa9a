//! Applies objects one by one, by server-side apply, and reports what became of each. Values that
//! another manager owns are never overwritten.
//!
//! A change of an existing object names the resourceVersion that was read. Keyferry may write the
//! status of a TargetCluster meanwhile, which makes a new version with the same spec. Then the
//! change is retried on the current version. If the spec has changed, it is refused.

use keyferry_client::doctor::at_target;
use keyferry_client::object_view::ObjectHead;
use keyferry_hub::client::{ApplyTerms, Conflicts, HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde::Deserialize;
use serde_json::Value;

use super::users;

/// How often a change is sent while the object gets new versions, as each write of its status makes.
const MAX_ATTEMPTS: usize = 5;
/// The field manager of these commands.
const MANAGER: &str = "keyferry-onboard";

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplyOutcome {
    /// It is new.
    Created,
    /// It had other values.
    Changed,
    /// It had these values already.
    Unchanged,
    /// It was there, and is left as it is: a Namespace or a ServiceAccount.
    LeftAsItIs,
    /// It is gone.
    Deleted,
    /// A dry run cannot try it, because its namespace is not there yet.
    NotTried,
}

impl ApplyOutcome {
    /// Describes the outcome to a person, in kubectl's words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "configured",
            Self::Unchanged => "unchanged",
            Self::LeftAsItIs => "exists, left as it is",
            Self::Deleted => "deleted",
            Self::NotTried => "not tried: its namespace does not exist yet",
        }
    }
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// Another manager owns a field with another value.
    #[error("applying {object}: another manager owns fields with other values: {message}")]
    Conflict {
        /// Kind and name.
        object: String,
        /// The server's message, which names the manager and the fields.
        message: String,
    },
    /// The object got a new version between each read and the write after it.
    #[error(
        "applying {object}: it changed between each of {MAX_ATTEMPTS} reads and the write after it"
    )]
    Contended {
        /// Kind and name.
        object: String,
    },
    /// The object's spec is no longer the one that the change was made from.
    #[error("applying {object}: it was changed since this command read it")]
    Changed {
        /// Kind and name.
        object: String,
    },
    /// A binding of this name binds another role, and a binding's role cannot be changed.
    #[error(
        "applying {object}: it exists and binds {found}, not {wanted}, and the API cannot change \
         the role of a binding"
    )]
    OtherRole {
        /// Kind, name and namespace.
        object: String,
        /// The role that it binds.
        found: String,
        /// The role that it is to bind.
        wanted: String,
    },
    /// The call failed.
    #[error("applying {object}: {}", cluster.describe(error))]
    Call {
        /// Kind and name.
        object: String,
        /// The cluster that was called.
        cluster: Cluster,
        /// The error of the call.
        error: HubError,
    },
    /// No path is known for this kind.
    #[error("applying {0}: its kind is not one that this command writes")]
    Kind(String),
}

/// The cluster whose objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cluster {
    /// The hub.
    Hub,
    /// A target.
    Target,
}

impl Cluster {
    fn describe(self, error: &HubError) -> String {
        match self {
            Self::Hub => error.to_string(),
            Self::Target => at_target(error),
        }
    }
}

/// Writes to one cluster, or lets it check what would be written.
#[derive(Clone, Copy)]
pub(crate) struct Applier<'a> {
    /// The client, with the rights of the user.
    pub(crate) client: &'a HubClient,
    /// The cluster of this client.
    pub(crate) cluster: Cluster,
    /// Whether the result is stored.
    pub(crate) persistence: Persistence,
}

/// Names an object for a person: `TargetCluster prod`, `Role keyferry-author in tenant-a`.
pub(crate) fn title(head: &ObjectHead) -> String {
    let place = match &head.metadata.namespace {
        Some(namespace) => format!(" in {namespace}"),
        None => String::new(),
    };
    format!("{} {}{place}", head.kind, head.metadata.name)
}

/// What a command does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectPurpose {
    /// It is applied.
    Applied,
    /// It is deleted.
    Deleted,
}

/// An object to apply or to delete, with the existing object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedObject {
    /// The object. A resourceVersion marks it as a change of an existing object.
    pub(crate) object: Value,
    /// What names the object.
    pub(crate) head: ObjectHead,
    /// The existing object as it was read, if this is a change of it.
    pub(crate) read: Option<Value>,
    /// What is done with it.
    pub(crate) purpose: ObjectPurpose,
}

impl From<Value> for PlannedObject {
    fn from(object: Value) -> Self {
        Self {
            head: ObjectHead::of(&object),
            object,
            read: None,
            purpose: ObjectPurpose::Applied,
        }
    }
}

impl PlannedObject {
    /// The object as a change of the one that was read.
    pub(crate) fn change_of(object: Value, read: Value) -> Self {
        Self {
            read: Some(read),
            ..Self::from(object)
        }
    }

    /// The deletion of the object that was read.
    pub(crate) fn deletion_of(read: Value) -> Self {
        Self {
            read: Some(read.clone()),
            purpose: ObjectPurpose::Deleted,
            ..Self::from(read)
        }
    }
}

impl Applier<'_> {
    /// Applies one object, or lets the server check it in a dry run. Also returns the object as the
    /// server has it then.
    ///
    /// # Errors
    /// [`ApplyError`]. The object is unchanged.
    pub(crate) async fn apply(
        &self,
        planned: &PlannedObject,
    ) -> Result<(ApplyOutcome, Option<Value>), ApplyError> {
        let head = &planned.head;
        let mut before = match &planned.read {
            Some(read) => Some(read.clone()),
            None => self.existing(head).await?,
        };
        if before.is_some() && is_left_alone(head) {
            return Ok((ApplyOutcome::LeftAsItIs, None));
        }
        let mut attempts = 0;
        let after = loop {
            let object = on_current(planned, before.as_ref())?;
            attempts += 1;
            let message = match self.send(head, &object).await {
                Ok(after) => break after,
                Err(HubError::Conflict(message)) => message,
                Err(HubError::NotFound(_)) if self.persistence == Persistence::DryRun => {
                    return Ok((ApplyOutcome::NotTried, None));
                }
                Err(error) => return Err(self.failed(head, error)),
            };
            // The API answers 409 if another manager owns a field, and if the object has just got a
            // new version. The current version shows which.
            let sent = version(&object);
            if sent.is_some() {
                before = self.existing(head).await?;
            }
            if sent.is_none() || before.as_ref().and_then(version) == sent {
                let object = title(head);
                return Err(ApplyError::Conflict { object, message });
            }
            if attempts == MAX_ATTEMPTS {
                let object = title(head);
                return Err(ApplyError::Contended { object });
            }
        };
        let outcome = match before {
            None => ApplyOutcome::Created,
            Some(before) if same(&before, &after) => ApplyOutcome::Unchanged,
            Some(_) => ApplyOutcome::Changed,
        };
        Ok((outcome, Some(after)))
    }

    /// Deletes the object that was read, if it still is the same one.
    ///
    /// # Errors
    /// [`ApplyError`]. The object is unchanged.
    pub(crate) async fn delete(
        &self,
        planned: &PlannedObject,
    ) -> Result<(ApplyOutcome, Option<Value>), ApplyError> {
        let head = &planned.head;
        let path = path(head).ok_or_else(|| ApplyError::Kind(title(head)))?;
        match users::delete(self.client, &path, &head.metadata.uid, self.persistence).await {
            Ok(()) | Err(HubError::NotFound(_)) => Ok((ApplyOutcome::Deleted, None)),
            Err(error) => Err(self.failed(head, error)),
        }
    }

    pub(super) async fn existing(&self, head: &ObjectHead) -> Result<Option<Value>, ApplyError> {
        let path = path(head).ok_or_else(|| ApplyError::Kind(title(head)))?;
        match self.client.get_object(&path, "object").await {
            Ok(object) => Ok(Some(object)),
            Err(HubError::NotFound(_)) => Ok(None),
            Err(error) => Err(self.failed(head, error)),
        }
    }

    async fn send(&self, head: &ObjectHead, object: &Value) -> Result<Value, HubError> {
        let terms = ApplyTerms {
            manager: MANAGER,
            conflicts: Conflicts::Refuse,
            persistence: self.persistence,
        };
        // An object without a path was refused when it was read.
        let path = path(head).unwrap_or_default();
        self.client.apply_on(&path, &terms, object, "object").await
    }

    fn failed(&self, head: &ObjectHead, error: HubError) -> ApplyError {
        ApplyError::Call {
            object: title(head),
            cluster: self.cluster,
            error,
        }
    }
}

/// Returns the object as a change of the current version.
///
/// # Errors
/// [`ApplyError::Changed`]: the spec is another one than that which was read, so the change could
/// undo what somebody else has done.
fn on_current(planned: &PlannedObject, current: Option<&Value>) -> Result<Value, ApplyError> {
    let mut object = planned.object.clone();
    let (Some(read), Some(_)) = (&planned.read, version(&object)) else {
        return Ok(object);
    };
    let is_same = |current: &&Value| OwnContent::of(current) == OwnContent::of(read);
    match current.filter(is_same).and_then(version) {
        Some(version) => {
            set_version(&mut object, Some(version));
            Ok(object)
        }
        None => Err(ApplyError::Changed {
            object: title(&planned.head),
        }),
    }
}

/// What a change of an object starts from: which object it is, and its content.
#[derive(Debug, PartialEq)]
struct OwnContent {
    uid: String,
    parts: WrittenContent,
}

/// The content of the kinds that are written here.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct WrittenContent {
    spec: Value,
    subjects: Value,
    rules: Value,
    data: Value,
}

impl OwnContent {
    fn of(object: &Value) -> Self {
        Self {
            uid: ObjectHead::of(object).metadata.uid,
            parts: WrittenContent::deserialize(object).unwrap_or_default(),
        }
    }
}

fn version(object: &Value) -> Option<String> {
    ObjectHead::of(object).metadata.resource_version
}

/// Makes the object a change of exactly this version.
pub(crate) fn set_version(object: &mut Value, version: Option<String>) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
}

/// Whether an apply left everything as it was but the bookkeeping of the API.
fn same(before: &Value, after: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["managedFields", "resourceVersion", "generation"] {
                metadata.remove(field);
            }
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        object
    };
    plain(before) == plain(after)
}

/// Whether an existing object of this kind is the tenant's own affair.
pub(crate) fn is_left_alone(head: &ObjectHead) -> bool {
    matches!(head.kind.as_str(), "Namespace" | "ServiceAccount")
}

/// Returns the path of an object in the API; `None` for a kind that is never written here, or a
/// name that would lead elsewhere.
pub(crate) fn path(head: &ObjectHead) -> Option<String> {
    let kind = (head.api_version.as_str(), head.kind.as_str());
    let (group, plural, namespaced) = match kind {
        ("v1", "Namespace") => ("/api/v1", "namespaces", false),
        ("v1", "ServiceAccount") => ("/api/v1", "serviceaccounts", true),
        ("v1", "Secret") => ("/api/v1", "secrets", true),
        ("rbac.authorization.k8s.io/v1", kind) => {
            let (plural, namespaced) = match kind {
                "Role" => ("roles", true),
                "RoleBinding" => ("rolebindings", true),
                "ClusterRole" => ("clusterroles", false),
                "ClusterRoleBinding" => ("clusterrolebindings", false),
                _ => return None,
            };
            ("/apis/rbac.authorization.k8s.io/v1", plural, namespaced)
        }
        ("keyferry.dev/v1alpha1", "TargetCluster") => {
            ("/apis/keyferry.dev/v1alpha1", "targetclusters", false)
        }
        ("keyferry.dev/v1alpha1", "TargetAccess") => {
            ("/apis/keyferry.dev/v1alpha1", "targetaccesses", true)
        }
        _ => return None,
    };
    let name = Some(&head.metadata.name).filter(|name| is_path_segment(name))?;
    let namespace = match head.metadata.namespace.as_deref() {
        Some(namespace) if namespaced && is_path_segment(namespace) => {
            format!("/namespaces/{namespace}")
        }
        None if !namespaced => String::new(),
        _ => return None,
    };
    Some(format!("{group}{namespace}/{plural}/{name}"))
}

fn is_path_segment(name: &str) -> bool {
    let plain = |character: char| character.is_ascii_alphanumeric() || ".-_:".contains(character);
    !name.is_empty() && name != "." && name != ".." && name.chars().all(plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let object = |version: &str, kind: &str, namespace: Option<&str>, name: &str| {
            json!({
                "apiVersion": version, "kind": kind,
                "metadata": { "name": name, "namespace": namespace },
            })
        };
        let rbac = "rbac.authorization.k8s.io/v1";
        for (given, wanted) in [
            (object("v1", "Namespace", None, "a"), "/api/v1/namespaces/a"),
            (
                object(rbac, "RoleBinding", Some("a"), "b"),
                "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/b",
            ),
            (
                object("keyferry.dev/v1alpha1", "TargetCluster", None, "prod"),
                "/apis/keyferry.dev/v1alpha1/targetclusters/prod",
            ),
        ] {
            assert_eq!(path(&ObjectHead::of(&given)).as_deref(), Some(wanted));
        }
        for wrong in [
            object("v1", "Secret", None, "a"),
            object("v1", "Pod", Some("a"), "b"),
            object("v1", "Secret", Some("a/b"), "c"),
            object("v1", "Secret", Some("a"), ".."),
            object("v1", "Secret", Some("a"), "b?dryRun=All"),
            object("keyferry.dev/v1alpha1", "TargetCluster", Some("a"), "b"),
        ] {
            assert_eq!(path(&ObjectHead::of(&wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn bookkeeping_is_no_change() {
        let before = json!({
            "metadata": { "name": "a", "resourceVersion": "1", "generation": 1 },
            "spec": { "b": 1 }, "status": { "c": 1 },
        });
        let mut after = before.clone();
        after["metadata"]["resourceVersion"] = json!("2");
        after["metadata"]["managedFields"] = json!([{}]);
        after["status"] = json!({});
        assert!(same(&before, &after));
        after["spec"]["b"] = json!(2);
        assert!(!same(&before, &after));
    }

    #[test]
    fn a_change_moves_to_a_new_version_of_the_same_spec_only() {
        let read = json!({
            "kind": "TargetCluster",
            "metadata": { "name": "prod", "uid": "u", "resourceVersion": "7" },
            "spec": { "allow": [] },
        });
        let mut object = read.clone();
        object["spec"]["allow"] = json!([{ "namespaces": ["a"] }]);
        let planned = PlannedObject::change_of(object.clone(), read.clone());
        let version = |current: Option<&Value>| {
            let moved = on_current(&planned, current).ok()?;
            assert_eq!(moved["spec"], object["spec"]);
            version(&moved)
        };
        assert_eq!(version(Some(&read)).as_deref(), Some("7"));
        let mut with_status = read.clone();
        with_status["metadata"]["resourceVersion"] = json!("8");
        with_status["status"] = json!({ "observedGeneration": 1 });
        assert_eq!(version(Some(&with_status)).as_deref(), Some("8"));
        for (pointer, value) in [
            ("/spec/allow", json!([{ "namespaces": ["b"] }])),
            ("/metadata/uid", json!("another")),
        ] {
            let mut changed = with_status.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(version(Some(&changed)), None, "{pointer}");
        }
        assert_eq!(version(None), None, "it was deleted");
        // Without a version it is no change of what was read.
        let whole = PlannedObject::from(json!({ "metadata": { "name": "prod" } }));
        assert_eq!(on_current(&whole, Some(&read)).unwrap(), whole.object);
    }
}
