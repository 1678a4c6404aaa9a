//! Which role the users of the hub are bound to at the target, where, and what such a role gives
//! away beyond its name.

use keyferry_api::name::{NameError, Namespace, RoleName};
use serde_json::Value;

use crate::command_error::CommandError;

/// A ClusterRole to bind, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The name of the ClusterRole at the target.
    pub(crate) role: String,
    /// Where it is bound.
    pub(crate) scope: BindingScope,
}

/// Where a role is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BindingScope {
    /// In these namespaces of the target.
    Namespaces(Vec<Namespace>),
    /// In the whole cluster.
    ClusterWide,
}

/// A ClusterRole to bind to the group of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleBinding {
    /// The role of the hub.
    pub(super) role: RoleName,
    /// What is bound to its users, and where.
    pub(super) binding: Binding,
}

/// The argument is not `ROLE=CLUSTERROLE` or `ROLE=CLUSTERROLE@NAMESPACE`.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum RoleBindingError {
    #[error("write ROLE=CLUSTERROLE, like view=view, or ROLE=CLUSTERROLE@NAMESPACE")]
    Form,
    #[error("the role {0}")]
    Role(NameError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

pub(super) fn role_binding(text: &str) -> Result<RoleBinding, RoleBindingError> {
    let (role, bound) = text.split_once('=').ok_or(RoleBindingError::Form)?;
    let (cluster_role, scope) = match bound.rsplit_once('@') {
        Some((cluster_role, name)) => (
            cluster_role,
            BindingScope::Namespaces(vec![namespace(name)?]),
        ),
        None => (bound, BindingScope::ClusterWide),
    };
    if cluster_role.is_empty() {
        return Err(RoleBindingError::Form);
    }
    Ok(RoleBinding {
        role: RoleName::new(role).map_err(RoleBindingError::Role)?,
        binding: Binding {
            role: cluster_role.to_owned(),
            scope,
        },
    })
}

/// The argument is not the name of a namespace.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the namespace {0}")]
pub(super) struct NamespaceError(#[from] NameError);

pub(super) fn namespace(text: &str) -> Result<Namespace, NamespaceError> {
    Ok(Namespace::new(text)?)
}

impl Binding {
    /// Reads the flags. A role is never bound in the whole cluster unless the user says so.
    ///
    /// # Errors
    /// The flags do not say where to bind.
    pub(super) fn of(
        role: Option<&str>,
        namespaces: &[Namespace],
        cluster_wide: bool,
    ) -> Result<Option<Self>, CommandError> {
        let Some(role) = role else {
            return Ok(None);
        };
        let scope = match (namespaces, cluster_wide) {
            ([], true) => BindingScope::ClusterWide,
            ([], false) => {
                return Err(CommandError::with_fix(
                    format!("--bind {role} does not say where to bind"),
                    "add --bind-namespace NAMESPACE for each namespace of the target; or \
                     --bind-cluster-wide, which gives the role in the whole cluster",
                ));
            }
            (namespaces, _) => BindingScope::Namespaces(namespaces.to_vec()),
        };
        Ok(Some(Self {
            role: role.to_owned(),
            scope,
        }))
    }

    /// Warns of the powers of the role. `None` if it has none of them.
    pub(crate) fn warning(&self, powers: &[String]) -> Option<String> {
        if powers.is_empty() {
            return None;
        }
        let (role, powers) = (&self.role, powers.join(", "));
        Some(match &self.scope {
            BindingScope::ClusterWide => format!(
                "warning: ClusterRole {role} is bound in the whole cluster and may {powers}: by \
                 that, these users can take over every namespace, and often the cluster; \
                 --bind-namespace limits it"
            ),
            BindingScope::Namespaces(namespaces) => {
                let names: Vec<&str> = namespaces.iter().map(Namespace::as_str).collect();
                format!(
                    "warning: ClusterRole {role} may {powers} in {}: by that, these users can act \
                     as every ServiceAccount there",
                    names.join(", ")
                )
            }
        })
    }
}

/// Returns the powers of a role that Kubernetes ships; empty for any other role.
pub(crate) fn powers_of_shipped_role(role: &str) -> Vec<String> {
    let edit = ["impersonate ServiceAccounts", "read Secrets"];
    let powers: &[&str] = match role {
        "edit" => &edit,
        "admin" => &[
            edit[0],
            edit[1],
            "bind and write Roles that hold what it holds",
        ],
        "cluster-admin" => &["do everything"],
        _ => &[],
    };
    powers.iter().map(|power| (*power).to_owned()).collect()
}

/// Returns what a role's rules allow that leads to more rights than the role itself has.
pub(crate) fn powers_of(rules: &[Value]) -> Vec<String> {
    let has = |rule: &Value, field: &str, wanted: &[&str]| {
        let texts = rule.get(field).and_then(Value::as_array);
        texts
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|text| text == "*" || wanted.contains(&text))
    };
    let verb = |rule: &Value, wanted: &str| {
        let verbs = rule.get("verbs").and_then(Value::as_array);
        verbs
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|text| text == "*" || text == wanted || text.starts_with(&format!("{wanted}:")))
    };
    let rbac = |rule: &Value| {
        let roles = ["roles", "clusterroles"];
        has(rule, "apiGroups", &["rbac.authorization.k8s.io"]) && has(rule, "resources", &roles)
    };
    let core = |rule: &Value, resource: &str| {
        has(rule, "apiGroups", &[""]) && has(rule, "resources", &[resource])
    };
    let users = ["users", "groups", "serviceaccounts", "uids", "nodes"];
    let groups = ["", "authentication.k8s.io"];
    let impersonates = |rule: &Value| {
        verb(rule, "impersonate")
            && has(rule, "apiGroups", &groups)
            && has(rule, "resources", &users)
    };
    let reads = |rule: &Value| {
        core(rule, "secrets") && ["get", "list", "watch"].iter().any(|one| verb(rule, one))
    };
    let mints = |rule: &Value| core(rule, "serviceaccounts/token") && verb(rule, "create");
    let any = |test: &dyn Fn(&Value) -> bool| rules.iter().any(test);
    [
        (any(&impersonates), "impersonate"),
        (
            any(&|rule| rbac(rule) && verb(rule, "escalate")),
            "escalate roles",
        ),
        (any(&|rule| rbac(rule) && verb(rule, "bind")), "bind roles"),
        (any(&reads), "read Secrets"),
        (any(&mints), "create tokens of ServiceAccounts"),
    ]
    .into_iter()
    .filter(|(holds, _)| *holds)
    .map(|(_, power)| power.to_owned())
    .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    fn apps() -> Vec<Namespace> {
        vec![Namespace::new("apps").unwrap()]
    }

    #[test]
    fn a_role_is_bound_in_the_whole_cluster_only_if_the_user_says_so() {
        let error = Binding::of(Some("edit"), &[], false).unwrap_err();
        let fix = error.fix.unwrap();
        assert_snapshot!(
            "a-role-without-a-place",
            format!("{}\nfix: {fix}", error.problem)
        );
        let wide = Binding::of(Some("edit"), &[], true).unwrap().unwrap();
        assert_eq!(wide.scope, BindingScope::ClusterWide);
        let narrow = Binding::of(Some("edit"), &apps(), false).unwrap().unwrap();
        assert_eq!(narrow.scope, BindingScope::Namespaces(apps()));
        assert_eq!(Binding::of(None, &[], false).unwrap(), None);
        let warnings = [wide, narrow.clone()]
            .map(|binding| binding.warning(&powers_of_shipped_role("edit")).unwrap());
        assert_snapshot!("warnings-about-a-role", warnings.join("\n\n"));
        assert_eq!(narrow.warning(&powers_of_shipped_role("view")), None);
    }

    #[test]
    fn powers_are_found_in_the_rules_of_any_role() {
        let rule = |group: &str, resource: &str, verb: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
        let rbac = "rbac.authorization.k8s.io";
        for (rule, power) in [
            (rule("", "serviceaccounts", "impersonate"), "impersonate"),
            (
                rule(
                    "authentication.k8s.io",
                    "serviceaccounts",
                    "impersonate:serviceaccount",
                ),
                "impersonate",
            ),
            (rule(rbac, "clusterroles", "escalate"), "escalate roles"),
            (rule(rbac, "roles", "bind"), "bind roles"),
            (rule("", "secrets", "list"), "read Secrets"),
            (
                rule("", "serviceaccounts/token", "create"),
                "create tokens of ServiceAccounts",
            ),
        ] {
            assert_eq!(powers_of(&[rule]), [power]);
        }
        assert_eq!(powers_of(&[rule("*", "*", "*")]).len(), 5);
        for harmless in [
            rule("", "pods", "*"),
            rule("apps", "*", "get"),
            rule("", "secrets", "create"),
            rule("", "serviceaccounts", "get"),
            json!({ "nonResourceURLs": ["*"], "verbs": ["*"] }),
        ] {
            assert_eq!(powers_of(&[harmless]), [""; 0]);
        }
    }
}
