//! Applies objects one by one, by server-side apply, and reports what became of each. Values that
//! another manager owns are never overwritten.

use keyferry_hub::client::{ApplyTerms, Conflicts, HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::Value;

use super::users::text;

/// The field manager of these commands.
const MANAGER: &str = "keyferry-onboard";

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Created,
    /// It had other values.
    Changed,
    /// It had these values already.
    Unchanged,
    /// It was there, and is left as it is: a Namespace or a ServiceAccount.
    LeftAsItIs,
    /// A dry run cannot try it, because its namespace is not there yet.
    NotTried,
}

impl Outcome {
    /// Describes the outcome to a person, in kubectl's words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "configured",
            Self::Unchanged => "unchanged",
            Self::LeftAsItIs => "exists, left as it is",
            Self::NotTried => "not tried: its namespace does not exist yet",
        }
    }
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Another manager owns a field with another value.
    #[error("applying {object}: another manager owns fields with other values: {message}")]
    Conflict {
        /// Kind and name.
        object: String,
        /// The server's message, which names the manager and the fields.
        message: String,
    },
    /// The call failed.
    #[error("applying {object}: {error}")]
    Call {
        /// Kind and name.
        object: String,
        /// The error of the call.
        error: HubError,
    },
    /// No path is known for this kind.
    #[error("applying {0}: its kind is not one that this command writes")]
    Kind(String),
}

/// Names an object for a person: `TargetCluster prod`, `Role keyferry-author in tenant-a`.
pub fn title(object: &Value) -> String {
    let text = |pointer| text(object, pointer);
    let place = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    format!("{} {}{place}", text("/kind"), text("/metadata/name"))
}

/// Applies one object, or tries to.
///
/// # Errors
/// [`ApplyError`]. The object is unchanged.
pub async fn apply(
    client: &HubClient,
    object: &Value,
    persistence: Persistence,
) -> Result<Outcome, ApplyError> {
    let path = path(object).ok_or_else(|| ApplyError::Kind(title(object)))?;
    let failed = |error| ApplyError::Call {
        object: title(object),
        error,
    };
    let before: Option<Value> = match client.get_object(&path, "object").await {
        Ok(object) => Some(object),
        Err(HubError::NotFound(_)) => None,
        Err(error) => return Err(failed(error)),
    };
    if before.is_some() && is_left_alone(object) {
        return Ok(Outcome::LeftAsItIs);
    }
    let terms = ApplyTerms {
        manager: MANAGER,
        conflicts: Conflicts::Refuse,
        persistence,
    };
    let after: Value = match client.apply_on(&path, &terms, object, "object").await {
        Ok(after) => after,
        Err(HubError::Conflict(message)) => {
            return Err(ApplyError::Conflict {
                object: title(object),
                message,
            });
        }
        Err(HubError::NotFound(_)) if persistence == Persistence::DryRun => {
            return Ok(Outcome::NotTried);
        }
        Err(error) => return Err(failed(error)),
    };
    Ok(match before {
        None => Outcome::Created,
        Some(before) if same(&before, &after) => Outcome::Unchanged,
        Some(_) => Outcome::Changed,
    })
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
fn is_left_alone(object: &Value) -> bool {
    matches!(
        object.get("kind").and_then(Value::as_str),
        Some("Namespace" | "ServiceAccount")
    )
}

/// Returns the path of an object in the API; `None` for a kind that is never written here, or a
/// name that would lead elsewhere.
pub fn path(object: &Value) -> Option<String> {
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
}
