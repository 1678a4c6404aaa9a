//! Applies objects one by one, by server-side apply, and reports what became of each. Values that
//! another manager owns are never overwritten.
//!
//! A change of an existing object names the resourceVersion that was read. Keyferry may write the
//! status of a TargetCluster meanwhile, which makes a new version with the same spec. Then the
//! change is retried on the current version. If the spec has changed, it is refused.

use keyferry_client::doctor::at_target;
use keyferry_hub::client::{ApplyTerms, Conflicts, HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::Value;

use super::change_plan::{PlannedChange, Removals};
use super::users::{self, text};

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
pub(crate) fn title(object: &Value) -> String {
    let text = |pointer| text(object, pointer);
    let place = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    format!("{} {}{place}", text("/kind"), text("/metadata/name"))
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
    /// The existing object as it was read, if this is a change of it.
    pub(crate) read: Option<Value>,
    /// What is done with it.
    pub(crate) purpose: ObjectPurpose,
}

impl From<Value> for PlannedObject {
    fn from(object: Value) -> Self {
        Self {
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
            object: read.clone(),
            read: Some(read),
            purpose: ObjectPurpose::Deleted,
        }
    }
}

impl Applier<'_> {
    /// Reads the existing object where the caller has not, and compares. Writes nothing.
    ///
    /// # Errors
    /// [`ApplyError::OtherRole`], or the object cannot be read.
    pub(crate) async fn plan(
        &self,
        mut planned: PlannedObject,
        removals: Removals,
    ) -> Result<PlannedChange, ApplyError> {
        if planned.read.is_none() {
            planned.read = self.existing(&planned.object).await?;
        }
        PlannedChange::of(planned, removals)
    }

    /// Applies one object, or lets the server check it in a dry run. Also returns the object as the
    /// server has it then.
    ///
    /// # Errors
    /// [`ApplyError`]. The object is unchanged.
    pub(crate) async fn apply(
        &self,
        planned: &PlannedObject,
    ) -> Result<(ApplyOutcome, Option<Value>), ApplyError> {
        let mut before = match &planned.read {
            Some(read) => Some(read.clone()),
            None => self.existing(&planned.object).await?,
        };
        if before.is_some() && is_left_alone(&planned.object) {
            return Ok((ApplyOutcome::LeftAsItIs, None));
        }
        let mut object = on_current(planned, before.as_ref())?;
        let mut answer = self.send(&object).await;
        if matches!(answer, Err(HubError::Conflict(_))) && version(&object).is_some() {
            // The API answers 409 if another manager owns a field, and if the object has just got a
            // new version. The current version shows which. The change is retried once; a second
            // conflict is reported.
            let current = self.existing(&planned.object).await?;
            if version_of(current.as_ref()) != version(&object) {
                before = current;
                object = on_current(planned, before.as_ref())?;
                answer = self.send(&object).await;
            }
        }
        let after = match answer {
            Ok(after) => after,
            Err(HubError::Conflict(message)) => {
                return Err(ApplyError::Conflict {
                    object: title(&object),
                    message,
                });
            }
            Err(HubError::NotFound(_)) if self.persistence == Persistence::DryRun => {
                return Ok((ApplyOutcome::NotTried, None));
            }
            Err(error) => return Err(self.failed(&object, error)),
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
        let object = &planned.object;
        let path = path(object).ok_or_else(|| ApplyError::Kind(title(object)))?;
        let uid = text(object, "/metadata/uid");
        match users::delete(self.client, &path, uid, self.persistence).await {
            Ok(()) | Err(HubError::NotFound(_)) => Ok((ApplyOutcome::Deleted, None)),
            Err(error) => Err(self.failed(object, error)),
        }
    }

    async fn existing(&self, object: &Value) -> Result<Option<Value>, ApplyError> {
        let path = path(object).ok_or_else(|| ApplyError::Kind(title(object)))?;
        match self.client.get_object(&path, "object").await {
            Ok(object) => Ok(Some(object)),
            Err(HubError::NotFound(_)) => Ok(None),
            Err(error) => Err(self.failed(object, error)),
        }
    }

    async fn send(&self, object: &Value) -> Result<Value, HubError> {
        let terms = ApplyTerms {
            manager: MANAGER,
            conflicts: Conflicts::Refuse,
            persistence: self.persistence,
        };
        // An object without a path was refused when it was read.
        let path = path(object).unwrap_or_default();
        self.client.apply_on(&path, &terms, object, "object").await
    }

    fn failed(&self, object: &Value, error: HubError) -> ApplyError {
        ApplyError::Call {
            object: title(object),
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
    let part = |object: &Value, pointer: &str| object.pointer(pointer).cloned();
    let same = current.is_some_and(|current| {
        ["/metadata/uid", "/spec", "/subjects", "/rules", "/data"]
            .iter()
            .all(|pointer| part(current, pointer) == part(read, pointer))
    });
    match version_of(current) {
        Some(version) if same => {
            object["metadata"]["resourceVersion"] = version.into();
            Ok(object)
        }
        _ => Err(ApplyError::Changed {
            object: title(&object),
        }),
    }
}

fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}

fn version_of(object: Option<&Value>) -> Option<&str> {
    version(object?)
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
pub(crate) fn is_left_alone(object: &Value) -> bool {
    matches!(
        object.get("kind").and_then(Value::as_str),
        Some("Namespace" | "ServiceAccount")
    )
}

/// Returns the path of an object in the API; `None` for a kind that is never written here, or a
/// name that would lead elsewhere.
pub(crate) fn path(object: &Value) -> Option<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (group, plural, namespaced) = match (text("/apiVersion")?, text("/kind")?) {
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
    let name = text("/metadata/name").filter(|name| is_path_segment(name))?;
    let namespace = match text("/metadata/namespace") {
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
            assert_eq!(path(&given).as_deref(), Some(wanted));
        }
        for wrong in [
            object("v1", "Secret", None, "a"),
            object("v1", "Pod", Some("a"), "b"),
            object("v1", "Secret", Some("a/b"), "c"),
            object("v1", "Secret", Some("a"), ".."),
            object("v1", "Secret", Some("a"), "b?dryRun=All"),
            object("keyferry.dev/v1alpha1", "TargetCluster", Some("a"), "b"),
        ] {
            assert_eq!(path(&wrong), None, "{wrong}");
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
            version(&moved).map(str::to_owned)
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
