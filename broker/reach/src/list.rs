//! The lists that answers depend on, and which of them were read whole.

use std::collections::{BTreeMap, BTreeSet};

/// A list of objects of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// ClusterRoles.
    ClusterRoles,
    /// ClusterRoleBindings.
    ClusterRoleBindings,
    /// Roles.
    Roles,
    /// RoleBindings.
    RoleBindings,
    /// ServiceAccounts.
    ServiceAccounts,
    /// Namespaces.
    Namespaces,
    /// Pods.
    Pods,
    /// Secrets, of which only names and types are read.
    Secrets,
    /// TargetClusters.
    TargetClusters,
    /// TargetAccesses.
    TargetAccesses,
    /// AudiencePairings.
    AudiencePairings,
    /// ValidatingAdmissionPolicies.
    AdmissionPolicies,
    /// ValidatingAdmissionPolicyBindings.
    AdmissionPolicyBindings,
    /// CustomResourceDefinitions, of which only names are read.
    Definitions,
}

impl ListKind {
    /// Every list of a hub.
    pub const ALL: [Self; 14] = [
        Self::ClusterRoles,
        Self::ClusterRoleBindings,
        Self::Roles,
        Self::RoleBindings,
        Self::ServiceAccounts,
        Self::Namespaces,
        Self::Pods,
        Self::Secrets,
        Self::TargetClusters,
        Self::TargetAccesses,
        Self::AudiencePairings,
        Self::AdmissionPolicies,
        Self::AdmissionPolicyBindings,
        Self::Definitions,
    ];

    /// The lists of RBAC, which are read of targets too.
    pub const RBAC: [Self; 4] = [
        Self::ClusterRoles,
        Self::ClusterRoleBindings,
        Self::Roles,
        Self::RoleBindings,
    ];

    /// The resource in the plural, as `kubectl get` takes it, and as a file is named.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ClusterRoles => "clusterroles",
            Self::ClusterRoleBindings => "clusterrolebindings",
            Self::Roles => "roles",
            Self::RoleBindings => "rolebindings",
            Self::ServiceAccounts => "serviceaccounts",
            Self::Namespaces => "namespaces",
            Self::Pods => "pods",
            Self::Secrets => "secrets",
            Self::TargetClusters => "targetclusters",
            Self::TargetAccesses => "targetaccesses",
            Self::AudiencePairings => "audiencepairings",
            Self::AdmissionPolicies => "validatingadmissionpolicies",
            Self::AdmissionPolicyBindings => "validatingadmissionpolicybindings",
            Self::Definitions => "customresourcedefinitions",
        }
    }

    /// The kind of its objects.
    pub fn object_kind(self) -> &'static str {
        match self {
            Self::ClusterRoles => "ClusterRole",
            Self::ClusterRoleBindings => "ClusterRoleBinding",
            Self::Roles => "Role",
            Self::RoleBindings => "RoleBinding",
            Self::ServiceAccounts => "ServiceAccount",
            Self::Namespaces => "Namespace",
            Self::Pods => "Pod",
            Self::Secrets => "Secret",
            Self::TargetClusters => "TargetCluster",
            Self::TargetAccesses => "TargetAccess",
            Self::AudiencePairings => "AudiencePairing",
            Self::AdmissionPolicies => "ValidatingAdmissionPolicy",
            Self::AdmissionPolicyBindings => "ValidatingAdmissionPolicyBinding",
            Self::Definitions => "CustomResourceDefinition",
        }
    }

    /// The `apiVersion` of its objects, which is the only one that is judged.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::ClusterRoles | Self::ClusterRoleBindings | Self::Roles | Self::RoleBindings => {
                "rbac.authorization.k8s.io/v1"
            }
            Self::ServiceAccounts | Self::Namespaces | Self::Pods | Self::Secrets => "v1",
            Self::TargetClusters | Self::TargetAccesses | Self::AudiencePairings => {
                "keyferry.dev/v1alpha1"
            }
            Self::AdmissionPolicies | Self::AdmissionPolicyBindings => {
                "admissionregistration.k8s.io/v1"
            }
            Self::Definitions => "apiextensions.k8s.io/v1",
        }
    }

    /// The path of the list at an apiserver, or of its part in one namespace.
    pub fn path(self, namespace: Option<&str>) -> String {
        let (version, resource) = (self.api_version(), self.resource());
        let root = if version == "v1" { "api" } else { "apis" };
        match namespace {
            Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{resource}"),
            None => format!("/{root}/{version}/{resource}"),
        }
    }

    /// Whether its objects have a namespace.
    pub fn is_namespaced(self) -> bool {
        matches!(
            self,
            Self::Roles
                | Self::RoleBindings
                | Self::ServiceAccounts
                | Self::Pods
                | Self::Secrets
                | Self::TargetAccesses
        )
    }

    /// The list that an object of this kind and `apiVersion` belongs to; `None` for a kind that no
    /// answer depends on, such as one of the same name in another API group.
    ///
    /// # Errors
    /// The `apiVersion` that is judged: the object's own is another one of the same group.
    pub fn of_object(kind: &str, version: &str) -> Result<Option<Self>, &'static str> {
        let group = |version: &str| version.rsplit_once('/').map(|(group, _)| group.to_owned());
        let mut kinds = Self::ALL.into_iter();
        let list = kinds
            .find(|list| list.object_kind() == kind && group(list.api_version()) == group(version));
        match list {
            Some(list) if list.api_version() != version => Err(list.api_version()),
            list => Ok(list),
        }
    }

    /// The list that a resource in the plural names.
    pub fn named(resource: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.resource() == resource)
    }
}

/// Which lists of one cluster were read whole, or whole in some namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists(BTreeMap<ListKind, Coverage>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Coverage {
    is_whole: bool,
    namespaces: BTreeSet<String>,
}

impl Lists {
    /// Notes that a list was read whole.
    pub fn note_whole(&mut self, kind: ListKind) {
        self.0.entry(kind).or_default().is_whole = true;
    }

    /// Notes that the part of a list in one namespace was read whole.
    pub fn note_namespace(&mut self, kind: ListKind, namespace: &str) {
        let coverage = self.0.entry(kind).or_default();
        coverage.namespaces.insert(namespace.to_owned());
    }

    /// Notes that a list was not read whole after all.
    pub fn forget(&mut self, kind: ListKind) {
        self.0.remove(&kind);
    }

    /// Whether an object that is not in the list does not exist.
    pub fn is_whole(&self, kind: ListKind) -> bool {
        self.0.get(&kind).is_some_and(|coverage| coverage.is_whole)
    }

    /// As [`Self::is_whole`], for the objects of one namespace.
    pub fn is_whole_in(&self, kind: ListKind, namespace: &str) -> bool {
        self.0
            .get(&kind)
            .is_some_and(|coverage| coverage.is_whole || coverage.namespaces.contains(namespace))
    }
}
