//! Reads an [`RbacPolicy`] from YAML.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::rbac::{Binding, PolicyRule, RbacPolicy, Role, RoleRef, Subject};

/// The roles and bindings that every cluster starts with, as far as the target answers for them.
const BOOTSTRAP: &str = include_str!("bootstrap-rbac.yaml");
/// Lets every authenticated user read everything.
const EVERY_USER_MAY_READ: &str = include_str!("every-user-may-read.yaml");
/// The API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io/";
/// The longest file that is read, in bytes.
const LARGEST: usize = 1 << 20;

/// Why RBAC objects cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RbacError {
    /// The text is too long.
    #[error("reading RBAC objects: the text is longer than {LARGEST} bytes; fix: split it")]
    TooLong,
    /// The text is not YAML.
    #[error("reading RBAC objects: the text is not YAML: {0}")]
    Yaml(String),
    /// An object is not what its kind should be.
    #[error("reading {kind} {name:?}: {fault}")]
    Object {
        /// Its kind.
        kind: String,
        /// Its name, empty if it has none.
        name: String,
        /// What is wrong with it.
        fault: String,
    },
}

#[derive(Deserialize)]
struct RoleDocument {
    metadata: Metadata,
    #[serde(default)]
    rules: Option<Vec<PolicyRule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingDocument {
    metadata: Metadata,
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

impl RbacPolicy {
    /// Reads the Roles, ClusterRoles and bindings of a YAML text with any number of documents, and
    /// adds the ones that every cluster starts with. Objects of other API groups are skipped: they
    /// grant nothing.
    ///
    /// # Errors
    /// [`RbacError`]: the text is too long or no YAML, or an RBAC object is not valid. An
    /// aggregated ClusterRole is refused, because its rules are written by a controller.
    pub fn from_yaml(text: &str) -> Result<Self, RbacError> {
        let mut policy = Self::default();
        policy.add(BOOTSTRAP)?;
        policy.add(text)?;
        Ok(policy)
    }

    /// Returns the policy with the objects of a further text. They replace those of the same name.
    pub(super) fn with(&self, text: &str) -> Result<Self, RbacError> {
        let mut policy = self.clone();
        policy.add(text)?;
        Ok(policy)
    }

    /// The policy of a target without a file: every authenticated user may read everything.
    pub(super) fn every_user_may_read() -> Result<Self, RbacError> {
        Self::from_yaml(EVERY_USER_MAY_READ)
    }

    fn add(&mut self, text: &str) -> Result<(), RbacError> {
        if text.len() > LARGEST {
            return Err(RbacError::TooLong);
        }
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|error| RbacError::Yaml(error.without_snippet().to_string()))?;
        documents
            .into_iter()
            .try_for_each(|document| self.add_object(document))
    }

    fn add_object(&mut self, object: Value) -> Result<(), RbacError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        if version == "v1" && kind == "List" {
            let items = object["items"].as_array().cloned().unwrap_or_default();
            return items.into_iter().try_for_each(|item| self.add_object(item));
        }
        if !version.starts_with(GROUP) {
            return Ok(());
        }
        let name = text(&object["metadata"]["name"]);
        let refuse = |fault: String| RbacError::Object {
            kind: kind.clone(),
            name: name.clone(),
            fault,
        };
        match kind.as_str() {
            "Role" | "ClusterRole" => {
                if object
                    .get("aggregationRule")
                    .is_some_and(|rule| !rule.is_null())
                {
                    return Err(refuse(
                        "it has an aggregationRule, and a controller would write its rules; fix: \
                         write the rules into the ClusterRole"
                            .to_owned(),
                    ));
                }
                let document: RoleDocument = read(object).map_err(&refuse)?;
                let namespace = place(&kind, document.metadata.namespace).map_err(&refuse)?;
                // A later object replaces an earlier one, as when it is applied.
                self.roles
                    .retain(|role| role.namespace != namespace || role.name != name);
                self.roles.push(Role {
                    namespace,
                    name: document.metadata.name,
                    rules: document.rules.unwrap_or_default(),
                });
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                let document: BindingDocument = read(object).map_err(&refuse)?;
                let namespace = place(&kind, document.metadata.namespace).map_err(&refuse)?;
                self.bindings
                    .retain(|binding| binding.namespace != namespace || binding.name != name);
                self.bindings.push(Binding {
                    namespace,
                    name: document.metadata.name,
                    role_ref: document.role_ref,
                    subjects: document.subjects.unwrap_or_default(),
                });
            }
            _ => return Err(refuse("it is no role and no binding".to_owned())),
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

/// The namespace of an object: required unless the kind is cluster-wide.
fn place(kind: &str, namespace: Option<String>) -> Result<Option<String>, String> {
    match (kind.starts_with("Cluster"), namespace) {
        (true, None) => Ok(None),
        (true, Some(_)) => Err("a cluster-wide object has no namespace; fix: remove it".to_owned()),
        (false, Some(namespace)) if !namespace.is_empty() => Ok(Some(namespace)),
        (false, _) => Err("it has no namespace; fix: write metadata.namespace".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        RbacPolicy::from_yaml(text).unwrap_err().to_string()
    }

    #[test]
    fn lists_and_other_objects_are_read() {
        let before = RbacPolicy::from_yaml("").unwrap();
        let text = "
apiVersion: v1
kind: List
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: a, namespace: b}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: b}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a, namespace: b}
rules: []
";
        let policy = RbacPolicy::from_yaml(text).unwrap();
        assert_eq!(policy.roles.len(), before.roles.len() + 1);
        assert_eq!(policy.bindings.len(), before.bindings.len());
    }

    #[test]
    fn what_could_be_misread_is_refused() {
        let object = |kind: &str, rest: &str| {
            refused(&format!(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n{rest}\n"
            ))
        };
        for (kind, rest, fault) in [
            ("Role", "metadata: {name: a}", "it has no namespace"),
            (
                "ClusterRole",
                "metadata: {name: a, namespace: b}",
                "has no namespace",
            ),
            (
                "ClusterRole",
                "metadata: {name: a}\naggregationRule: {}",
                "aggregationRule",
            ),
            (
                "ClusterRole",
                "metadata: {name: a}\nrules: [{verb: [get]}]",
                "unknown field `verb`",
            ),
            ("ClusterRole", "metadata: {}", "missing field `name`"),
            (
                "ClusterRoleBinding",
                "metadata: {name: a}",
                "missing field `roleRef`",
            ),
            (
                "ClusterRoleBinding",
                "metadata: {name: a}\nroleRef: {kind: Other, name: b}",
                "unknown variant `Other`",
            ),
            (
                "PodRole",
                "metadata: {name: a}",
                "it is no role and no binding",
            ),
        ] {
            let found = object(kind, rest);
            assert!(found.contains(fault), "{found}");
            assert!(found.contains(kind), "{found}");
        }
        assert!(refused("a: [").contains("is not YAML"));
        assert!(refused(&"#".repeat(LARGEST + 1)).contains("longer than"));
    }
}
