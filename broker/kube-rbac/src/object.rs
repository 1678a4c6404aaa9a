//! Roles, bindings, and how they are named.

use std::collections::BTreeMap;
use std::fmt;

use crate::label_selector::LabelSelector;
use crate::rule::PolicyRule;

/// The kind of an RBAC object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A Role of a namespace.
    Role,
    /// A ClusterRole.
    ClusterRole,
    /// A RoleBinding of a namespace.
    RoleBinding,
    /// A ClusterRoleBinding.
    ClusterRoleBinding,
}

/// Names one RBAC object of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace; empty for a cluster-wide kind.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A Role, a ClusterRole or a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RbacObject {
    /// A Role or a ClusterRole.
    Role(Role),
    /// A RoleBinding or a ClusterRoleBinding.
    Binding(Binding),
}

/// A Role or a ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Which one it is.
    pub id: ObjectId,
    /// The labels, by which aggregated ClusterRoles select.
    pub labels: BTreeMap<String, String>,
    /// The stored rules, in their order. Answers name a rule by its index here.
    pub rules: Vec<PolicyRule>,
    /// Says whose rules a controller gathers here; only a ClusterRole has it.
    pub aggregation: Option<AggregationRule>,
    /// Who wrote the rules.
    pub rules_owner: RulesOwner,
}

/// Who wrote the rules of a role, by its `managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RulesOwner {
    /// The controller that fills aggregated ClusterRoles, and nothing else.
    Controller,
    /// Somebody else, perhaps beside the controller.
    Other,
    /// The object has no `managedFields`: `kubectl get` leaves them out.
    #[default]
    Unknown,
}

/// Says whose rules an aggregated ClusterRole has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AggregationRule {
    /// A ClusterRole that any of these selects gives its rules.
    pub cluster_role_selectors: Vec<LabelSelector>,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Which one it is.
    pub id: ObjectId,
    /// The role that it grants.
    pub role_ref: RoleRef,
    /// Who gets it.
    pub subjects: Vec<Subject>,
}

/// The role that a binding grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// Its kind.
    pub kind: RoleKind,
    /// Its name. A Role is in the namespace of the binding.
    pub name: String,
}

/// The kind of a granted role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// A Role of the binding's namespace.
    Role,
    /// A ClusterRole.
    ClusterRole,
    /// Another kind, which grants nothing.
    Unsupported(String),
}

/// Who gets the role of a binding.
///
/// The authorizer compares kind, name and namespace; it never reads a subject's `apiGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its kind.
    pub kind: SubjectKind,
    /// Its name.
    pub name: String,
    /// The namespace of a ServiceAccount; if it is empty, that of the RoleBinding counts.
    pub namespace: String,
}

/// The kind of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// A user, by name.
    User,
    /// All members of a group.
    Group,
    /// A ServiceAccount.
    ServiceAccount,
    /// Another kind, which is nobody.
    Unsupported(String),
}

impl ObjectKind {
    /// The name in an object's `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// Whether its objects have a namespace.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Role | Self::RoleBinding)
    }

    /// The kind with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [
            Self::Role,
            Self::ClusterRole,
            Self::RoleBinding,
            Self::ClusterRoleBinding,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ObjectId {
    /// Names an object of a namespace.
    pub fn namespaced(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Names a cluster-wide object.
    pub fn cluster_wide(kind: ObjectKind, name: &str) -> Self {
        Self::namespaced(kind, "", name)
    }
}

/// `RoleBinding NAMESPACE/NAME`, or `ClusterRole NAME`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

impl RbacObject {
    /// Which object it is.
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Role(role) => &role.id,
            Self::Binding(binding) => &binding.id,
        }
    }
}

impl RoleKind {
    /// The name in `roleRef.kind`.
    pub fn name(&self) -> &str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::Unsupported(kind) => kind,
        }
    }
}

impl SubjectKind {
    /// The name in a subject's `kind`.
    pub fn name(&self) -> &str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
            Self::ServiceAccount => "ServiceAccount",
            Self::Unsupported(kind) => kind,
        }
    }
}

impl Subject {
    /// The namespace of a ServiceAccount in a binding of this namespace; empty if none is given.
    pub fn namespace_in<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        match self.namespace.as_str() {
            "" => binding_namespace,
            namespace => namespace,
        }
    }
}
