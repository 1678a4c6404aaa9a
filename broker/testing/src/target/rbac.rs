//! Roles, bindings, and what they allow: the rules of Kubernetes' RBAC authorizer.
//!
//! Everything here is a pure function of the policy, the user and the attributes of a request. An
//! aggregated ClusterRole is not evaluated; [`super::rbac_file`] refuses it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::user_name::is_service_account;
use crate::apiserver::policy::Decision;
use crate::apiserver::request_attributes::{RequestAttributes, RequestObject, ResourcePath};
use crate::identity::UserInfo;

/// Members of this group may do everything, before any rule is read.
const MASTERS_GROUP: &str = "system:masters";
const WILDCARD: &str = "*";

/// The Roles, ClusterRoles and bindings of a target.
///
/// The policy of a file also has the rules that every cluster starts with, such as
/// `system:basic-user`.
#[derive(Clone, Debug, Default)]
pub struct RbacPolicy {
    pub(super) roles: Vec<Role>,
    pub(super) bindings: Vec<Binding>,
}

/// A Role, or a ClusterRole if it has no namespace.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) rules: Vec<PolicyRule>,
}

/// A RoleBinding, or a ClusterRoleBinding if it has no namespace.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) role_ref: RoleRef,
    pub(super) subjects: Vec<Subject>,
}

/// One rule of a role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PolicyRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

/// The role that a binding grants.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RoleRef {
    #[serde(default, rename = "apiGroup")]
    _api_group: String,
    pub(super) kind: RoleKind,
    pub(super) name: String,
}

/// The kind of a granted role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum RoleKind {
    Role,
    ClusterRole,
}

/// A user, group or ServiceAccount that a binding names.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Subject {
    kind: SubjectKind,
    #[serde(default, rename = "apiGroup")]
    _api_group: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

impl RbacPolicy {
    /// Decides whether the user may do what the attributes describe.
    pub(super) fn decide(&self, user: &UserInfo, attributes: &RequestAttributes) -> Decision {
        if user.groups.iter().any(|group| group == MASTERS_GROUP) {
            return Decision::Allowed(String::new());
        }
        let mut faults = Vec::new();
        for binding in self.bindings_in(attributes.namespace()) {
            let Some(subject) = binding.subject_for(user) else {
                continue;
            };
            match self.rules_of(binding) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allowed(format!(
                        "RBAC: allowed by {}",
                        binding.description(subject)
                    ));
                }
                Ok(_) => {}
                Err(fault) => faults.push(fault),
            }
        }
        Decision::NotAllowed(match joined(&faults).as_str() {
            "" => String::new(),
            faults => format!("RBAC: {faults}"),
        })
    }

    /// Returns every rule that a binding of the whole cluster or of the namespace gives the user, in
    /// the order in which the RBAC authorizer visits them, and what it reports of missing roles.
    pub(super) fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<&PolicyRule>, String) {
        let (mut rules, mut faults) = (Vec::new(), Vec::new());
        for binding in self.bindings_in(namespace) {
            if binding.subject_for(user).is_none() {
                continue;
            }
            match self.rules_of(binding) {
                Ok(granted) => rules.extend(granted),
                Err(fault) => faults.push(fault),
            }
        }
        (rules, joined(&faults))
    }

    /// The bindings of the whole cluster first, as the RBAC authorizer visits them, then those of
    /// the namespace.
    fn bindings_in(&self, namespace: &str) -> impl Iterator<Item = &Binding> {
        let cluster_wide = self.bindings.iter().filter(|it| it.namespace.is_none());
        let local = self.bindings.iter().filter(move |binding| {
            !namespace.is_empty() && binding.namespace.as_deref() == Some(namespace)
        });
        cluster_wide.chain(local)
    }

    fn rules_of(&self, binding: &Binding) -> Result<&[PolicyRule], String> {
        let RoleRef { kind, name, .. } = &binding.role_ref;
        let (namespace, resource) = match kind {
            RoleKind::Role => (binding.namespace.as_deref(), "role"),
            RoleKind::ClusterRole => (None, "clusterrole"),
        };
        self.roles
            .iter()
            .find(|role| role.namespace.as_deref() == namespace && role.name == *name)
            .map(|role| role.rules.as_slice())
            .ok_or_else(|| format!("{resource}.rbac.authorization.k8s.io {name:?} not found"))
    }
}

/// Several errors as Go's aggregate prints them.
fn joined(faults: &[String]) -> String {
    match faults {
        [] => String::new(),
        [fault] => fault.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl Binding {
    fn subject_for(&self, user: &UserInfo) -> Option<&Subject> {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        self.subjects
            .iter()
            .find(|subject| subject.is(user, namespace))
    }

    /// The binding in the words of the RBAC authorizer.
    fn description(&self, subject: &Subject) -> String {
        let (kind, name) = match &self.namespace {
            None => ("ClusterRoleBinding", self.name.clone()),
            Some(namespace) => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let RoleRef {
            kind: role_kind,
            name: role,
            ..
        } = &self.role_ref;
        let namespace = self.namespace.as_deref().unwrap_or_default();
        format!(
            "{kind} {name:?} of {role_kind:?} {role:?} to {}",
            subject.description(namespace)
        )
    }
}

impl Subject {
    /// Whether it is the user. A ServiceAccount without a namespace is in the binding's.
    fn is(&self, user: &UserInfo, binding_namespace: &str) -> bool {
        match self.kind {
            SubjectKind::User => user.username == self.name,
            SubjectKind::Group => user.groups.contains(&self.name),
            SubjectKind::ServiceAccount => {
                let namespace = self.namespace_or(binding_namespace);
                !namespace.is_empty() && is_service_account(&user.username, namespace, &self.name)
            }
        }
    }

    fn namespace_or<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        match self.namespace.as_str() {
            "" => binding_namespace,
            namespace => namespace,
        }
    }

    fn description(&self, binding_namespace: &str) -> String {
        match self.kind {
            SubjectKind::ServiceAccount => {
                let namespace = self.namespace_or(binding_namespace);
                format!("ServiceAccount {:?}", format!("{}/{namespace}", self.name))
            }
            kind => format!("{kind:?} {:?}", self.name),
        }
    }
}

impl PolicyRule {
    /// The rule in a SelfSubjectRulesReview, if it is about resources.
    pub(super) fn resource_rule(&self) -> Option<Value> {
        let mut rule = json!({
            "verbs": self.verbs, "apiGroups": self.api_groups, "resources": self.resources,
        });
        if !self.resource_names.is_empty() {
            rule["resourceNames"] = json!(self.resource_names);
        }
        (!self.resources.is_empty()).then_some(rule)
    }

    /// The rule in a SelfSubjectRulesReview, if it is about paths.
    pub(super) fn path_rule(&self) -> Option<Value> {
        let rule = || json!({ "verbs": self.verbs, "nonResourceURLs": self.non_resource_urls });
        (!self.non_resource_urls.is_empty()).then(rule)
    }

    fn allows(&self, attributes: &RequestAttributes) -> bool {
        let verb = self
            .verbs
            .iter()
            .any(|verb| verb == WILDCARD || *verb == attributes.verb);
        verb && match &attributes.object {
            RequestObject::Path(path) => self.allows_path(path),
            RequestObject::Resource(resource) => self.allows_resource(resource),
        }
    }

    fn allows_path(&self, path: &str) -> bool {
        self.non_resource_urls.iter().any(|url| {
            let prefix = url.strip_suffix('*').map(|url| url.trim_end_matches('*'));
            url == path || prefix.is_some_and(|prefix| path.starts_with(prefix))
        })
    }

    fn allows_resource(&self, wanted: &ResourcePath) -> bool {
        let group = self
            .api_groups
            .iter()
            .any(|group| group == WILDCARD || *group == wanted.group);
        let combined = wanted.combined();
        let resource = self.resources.iter().any(|resource| {
            let any_with_subresource = || {
                !wanted.subresource.is_empty()
                    && resource.strip_prefix("*/") == Some(wanted.subresource.as_str())
            };
            resource == WILDCARD || *resource == combined || any_with_subresource()
        });
        // A request without a name, such as a list, matches no resourceNames.
        let name = self.resource_names.is_empty() || self.resource_names.contains(&wanted.name);
        group && resource && name
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const POLICY: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: ['', apps], resources: [pods, '*/scale', deployments/status], verbs: [get, list]}
- {apiGroups: [''], resources: [configmaps], resourceNames: [one], verbs: ['*']}
- {nonResourceURLs: [/metrics, /logs/*], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: readers}
- {kind: ServiceAccount, name: without-a-namespace}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: editor, namespace: shop}
rules:
- {apiGroups: ['*'], resources: ['*'], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: editor}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: jane}
- {kind: ServiceAccount, name: app}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dangling, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: nothing}
subjects:
- {kind: User, apiGroup: rbac.authorization.k8s.io, name: joe}
";

    impl RbacPolicy {
        fn allows(&self, user: &UserInfo, attributes: &RequestAttributes) -> bool {
            matches!(self.decide(user, attributes), Decision::Allowed(_))
        }
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            username: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    fn on(
        verb: &str,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> RequestAttributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        RequestAttributes {
            verb: verb.to_owned(),
            object: RequestObject::Resource(ResourcePath {
                group: group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
        }
    }

    fn path(verb: &str, path: &str) -> RequestAttributes {
        RequestAttributes {
            verb: verb.to_owned(),
            object: RequestObject::Path(path.to_owned()),
        }
    }

    #[test]
    fn rules_match_as_in_kubernetes() {
        let policy = RbacPolicy::from_yaml(POLICY).unwrap();
        let reader = user("r", &["readers"]);
        for (attributes, allowed) in [
            (on("get", "", "pods", "shop", "a"), true),
            (on("list", "", "pods", "", ""), true),
            (on("watch", "", "pods", "", ""), false),
            (on("get", "batch", "pods", "", ""), false),
            (on("get", "", "pods/log", "shop", "a"), false),
            (on("get", "apps", "deployments/scale", "shop", "a"), true),
            (on("get", "apps", "deployments/status", "shop", "a"), true),
            (on("get", "apps", "deployments", "shop", "a"), false),
            (on("delete", "", "configmaps", "shop", "one"), true),
            (on("delete", "", "configmaps", "shop", "two"), false),
            (on("list", "", "configmaps", "shop", ""), false),
            (path("get", "/metrics"), true),
            (path("get", "/metrics/"), false),
            (path("get", "/logs/a/b"), true),
            (path("get", "/logs"), false),
            (path("head", "/metrics"), false),
        ] {
            assert_eq!(
                policy.allows(&reader, &attributes),
                allowed,
                "{attributes:?}"
            );
            assert!(
                !policy.allows(&user("r", &[]), &attributes),
                "{attributes:?}"
            );
        }
    }

    #[test]
    fn a_namespaces_binding_counts_there_alone() {
        let policy = RbacPolicy::from_yaml(POLICY).unwrap();
        let here = on("update", "apps", "deployments", "shop", "a");
        let there = on("update", "apps", "deployments", "bank", "a");
        for (name, allowed) in [
            ("jane", true),
            ("system:serviceaccount:shop:app", true),
            ("system:serviceaccount:bank:app", false),
            ("joe", false),
        ] {
            assert_eq!(policy.allows(&user(name, &[]), &here), allowed, "{name}");
            assert!(!policy.allows(&user(name, &[]), &there), "{name}");
        }
        // A cluster-wide binding has no namespace to complete a ServiceAccount with.
        let without = user("system:serviceaccount::without-a-namespace", &[]);
        assert!(!policy.allows(&without, &on("get", "", "pods", "shop", "a")));
    }

    #[test]
    fn reasons_are_those_of_the_authorizer() {
        let policy = RbacPolicy::from_yaml(POLICY).unwrap();
        let wanted = on("update", "", "pods", "shop", "a");
        let allowed = |text: &str| Decision::Allowed(text.to_owned());
        assert_eq!(
            policy.decide(&user("system:serviceaccount:shop:app", &[]), &wanted),
            allowed(
                "RBAC: allowed by RoleBinding \"editors/shop\" of Role \"editor\" to \
                 ServiceAccount \"app/shop\""
            )
        );
        assert_eq!(
            policy.decide(&user("r", &["readers"]), &path("get", "/metrics")),
            allowed(
                "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to \
                 Group \"readers\""
            )
        );
        assert_eq!(
            policy.decide(&user("joe", &[]), &wanted),
            Decision::NotAllowed(
                "RBAC: role.rbac.authorization.k8s.io \"nothing\" not found".to_owned()
            )
        );
        assert_eq!(
            policy.decide(&user("root", &["system:masters"]), &wanted),
            allowed("")
        );
        assert_eq!(
            policy.decide(&user("r", &[]), &wanted),
            Decision::NotAllowed(String::new())
        );
    }
}
