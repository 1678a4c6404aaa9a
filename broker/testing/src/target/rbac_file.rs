//! Reads an [`RbacPolicy`] from YAML.

use keyferry_kube_rbac::{AggregationFault, ReadError, Reading, read_objects};
use serde_json::Value;

use super::rbac::RbacPolicy;

/// The roles and bindings that every cluster starts with, as far as the target answers for them.
const BOOTSTRAP: &str = include_str!("bootstrap-rbac.yaml");
/// Lets every authenticated user read everything.
const EVERY_USER_MAY_READ: &str = include_str!("every-user-may-read.yaml");
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
    #[error(transparent)]
    Object(#[from] ReadError),
    /// The rules of aggregated ClusterRoles cannot be computed.
    #[error("reading RBAC objects: {0}")]
    Aggregation(#[from] AggregationFault),
}

impl RbacPolicy {
    /// Reads the Roles, ClusterRoles and bindings of a YAML text with any number of documents, and
    /// adds the ones that every cluster starts with. Objects of other API groups are skipped: they
    /// grant nothing. An aggregated ClusterRole gets the rules that a controller would write.
    ///
    /// # Errors
    /// [`RbacError`]: the text is too long or no YAML, or an RBAC object is not valid.
    pub fn from_yaml(text: &str) -> Result<Self, RbacError> {
        Self::default().with(BOOTSTRAP)?.with(text)
    }

    /// Returns the policy with the objects of a further text. They replace those of the same name.
    pub(super) fn with(&self, text: &str) -> Result<Self, RbacError> {
        if text.len() > LARGEST {
            return Err(RbacError::TooLong);
        }
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|error| RbacError::Yaml(error.without_snippet().to_string()))?;
        let mut policy = self.clone();
        for document in documents {
            for object in read_objects(document, Reading::Strict)? {
                policy.objects.insert(object);
            }
        }
        policy.objects.aggregate()?;
        Ok(policy)
    }

    /// The policy of a target without a file: every authenticated user may read everything.
    pub(super) fn every_user_may_read() -> Result<Self, RbacError> {
        Self::from_yaml(EVERY_USER_MAY_READ)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_kube_rbac::{Attributes, ResourceRequest};

    use super::*;
    use crate::apiserver::policy::Decision;
    use crate::identity::UserInfo;

    fn refused(text: &str) -> String {
        RbacPolicy::from_yaml(text).unwrap_err().to_string()
    }

    #[test]
    fn lists_and_other_objects_are_read() {
        let before = RbacPolicy::from_yaml("").unwrap().objects;
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
        let policy = RbacPolicy::from_yaml(text).unwrap().objects;
        assert_eq!(policy.roles().count(), before.roles().count() + 1);
        assert_eq!(policy.bindings().count(), before.bindings().count());
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

    #[test]
    fn an_aggregated_cluster_role_has_the_rules_of_those_it_selects() {
        let text = |verb: &str| {
            format!(
                "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: all}}
aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{part: 'yes'}}}}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: part, labels: {{part: 'yes'}}}}
rules: [{{apiGroups: [''], resources: [pods], verbs: [{verb}]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: all}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}}]
"
            )
        };
        let jane = UserInfo {
            username: "jane".to_owned(),
            ..UserInfo::default()
        };
        let allows = |policy: &RbacPolicy, verb: &str| {
            let pods = ResourceRequest {
                resource: "pods".to_owned(),
                ..ResourceRequest::default()
            };
            let decision = policy.decide(&jane, &Attributes::resource(verb, pods));
            matches!(decision, Decision::Allowed(_))
        };
        let policy = RbacPolicy::from_yaml(&text("get")).unwrap();
        assert!(allows(&policy, "get") && !allows(&policy, "list"));
        let policy = policy.with(&text("list")).unwrap();
        assert!(allows(&policy, "list") && !allows(&policy, "get"));
    }
}
