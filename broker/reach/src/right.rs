//! The rights that open doors, and which of them a rule grants.

use std::sync::LazyLock;

use keyferry_kube_rbac::{Attributes, PolicyRule, RequestTarget, ResourceRequest};

/// A right that opens a door, or a part of one. Each has several requests, any of which does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Mint,
    RunPod,
    EditWorkload,
    EnterPod,
    MayEnterPod,
    NodeProxy,
    MayNodeProxy,
    ReadSecret,
    CreateSecret,
    EditSecret,
    ImpersonateUser,
    ImpersonateGroup,
    ImpersonateAccount,
    ImpersonateConstrained,
    BindClusterRole,
    BindRole,
    EscalateClusterRole,
    EscalateRole,
    CreateRoleBinding,
    EditRoleBinding,
    CreateClusterRoleBinding,
    EditClusterRoleBinding,
    CreateRole,
    EditRole,
    CreateClusterRole,
    EditClusterRole,
    UseController,
    WriteTargetCluster,
    ChangeTargetCluster,
    Retarget,
    ClaimAudience,
    WriteTargetAccess,
    WriteNamespace,
    LabelAccess,
    ChangePolicies,
    ChangeBindings,
    WritePairs,
    DeletePairs,
    Intercept,
    ApproveSigner,
    RequestCertificate,
    UpdateApproval,
}

const ALL: [Right; 42] = [
    Right::Mint,
    Right::RunPod,
    Right::EditWorkload,
    Right::EnterPod,
    Right::MayEnterPod,
    Right::NodeProxy,
    Right::MayNodeProxy,
    Right::ReadSecret,
    Right::CreateSecret,
    Right::EditSecret,
    Right::ImpersonateUser,
    Right::ImpersonateGroup,
    Right::ImpersonateAccount,
    Right::ImpersonateConstrained,
    Right::BindClusterRole,
    Right::BindRole,
    Right::EscalateClusterRole,
    Right::EscalateRole,
    Right::CreateRoleBinding,
    Right::EditRoleBinding,
    Right::CreateClusterRoleBinding,
    Right::EditClusterRoleBinding,
    Right::CreateRole,
    Right::EditRole,
    Right::CreateClusterRole,
    Right::EditClusterRole,
    Right::UseController,
    Right::WriteTargetCluster,
    Right::ChangeTargetCluster,
    Right::Retarget,
    Right::ClaimAudience,
    Right::WriteTargetAccess,
    Right::WriteNamespace,
    Right::LabelAccess,
    Right::ChangePolicies,
    Right::ChangeBindings,
    Right::WritePairs,
    Right::DeletePairs,
    Right::Intercept,
    Right::ApproveSigner,
    Right::RequestCertificate,
    Right::UpdateApproval,
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const DELETE: &[&str] = &["delete", "deletecollection"];
const TAKE: &[&str] = &["update", "patch", "delete", "deletecollection"];
const CHANGE: &[&str] = &["update", "patch"];
const WRITE: &[&str] = &["create", "update", "patch"];

/// Verbs, API group and `RESOURCE[/SUBRESOURCE]`.
type Requests = &'static [(&'static [&'static str], &'static str, &'static str)];

impl Right {
    fn requests(self) -> Requests {
        match self {
            Self::Mint => &[(&["create"], "", "serviceaccounts/token")],
            Self::RunPod => RUNNING_CREATES,
            Self::EditWorkload => WORKLOAD_CHANGES,
            Self::EnterPod => &[
                (&["create"], "", "pods/exec"),
                (CHANGE, "", "pods/ephemeralcontainers"),
                (CHANGE, "", "pods"),
            ],
            // Whether get is enough depends on the hub's release, and what an attached process
            // gives depends on the process.
            Self::MayEnterPod => &[
                (&["get"], "", "pods/exec"),
                (&["get", "create"], "", "pods/attach"),
            ],
            Self::NodeProxy => &[(&["create"], "", "nodes/proxy")],
            Self::MayNodeProxy => &[(&["get"], "", "nodes/proxy")],
            Self::ReadSecret => &[(&["get", "list", "watch"], "", "secrets")],
            Self::CreateSecret => &[(&["create"], "", "secrets")],
            Self::EditSecret => &[(CHANGE, "", "secrets")],
            Self::ImpersonateUser => &[(&["impersonate"], "", "users")],
            Self::ImpersonateGroup => &[(&["impersonate"], "", "groups")],
            Self::ImpersonateAccount => &[(&["impersonate"], "", "serviceaccounts")],
            Self::ImpersonateConstrained => CONSTRAINED_IMPERSONATION,
            Self::BindClusterRole => &[(&["bind"], RBAC, "clusterroles")],
            Self::BindRole => &[(&["bind"], RBAC, "roles")],
            Self::EscalateClusterRole => &[(&["escalate"], RBAC, "clusterroles")],
            Self::EscalateRole => &[(&["escalate"], RBAC, "roles")],
            Self::CreateRoleBinding => &[(&["create"], RBAC, "rolebindings")],
            Self::EditRoleBinding => &[(CHANGE, RBAC, "rolebindings")],
            Self::CreateClusterRoleBinding => &[(&["create"], RBAC, "clusterrolebindings")],
            Self::EditClusterRoleBinding => &[(CHANGE, RBAC, "clusterrolebindings")],
            Self::CreateRole => &[(&["create"], RBAC, "roles")],
            Self::EditRole => &[(CHANGE, RBAC, "roles")],
            Self::CreateClusterRole => &[(&["create"], RBAC, "clusterroles")],
            Self::EditClusterRole => &[(CHANGE, RBAC, "clusterroles")],
            Self::UseController => USED_BY_CONTROLLERS,
            Self::WriteTargetCluster => &[(WRITE, "keyferry.dev", "targetclusters")],
            Self::ChangeTargetCluster => &[(CHANGE, "keyferry.dev", "targetclusters")],
            Self::Retarget => &[(&["retarget"], "keyferry.dev", "targetclusters")],
            Self::ClaimAudience => &[(&["claim"], "keyferry.dev", "audiences")],
            Self::WriteTargetAccess => &[(WRITE, "keyferry.dev", "targetaccesses")],
            Self::WriteNamespace => &[
                (WRITE, "", "namespaces"),
                (CHANGE, "", "namespaces/status"),
                (CHANGE, "", "namespaces/finalize"),
            ],
            Self::LabelAccess => &[(&["label-access"], "", "namespaces")],
            Self::ChangePolicies => &[(TAKE, ADMISSION, "validatingadmissionpolicies")],
            Self::ChangeBindings => &[(TAKE, ADMISSION, "validatingadmissionpolicybindings")],
            Self::WritePairs => &[(WRITE, "keyferry.dev", "audiencepairings")],
            Self::DeletePairs => &[
                (DELETE, "keyferry.dev", "audiencepairings"),
                (DELETE, "apiextensions.k8s.io", "customresourcedefinitions"),
            ],
            Self::Intercept => INTERCEPTING_WRITES,
            Self::ApproveSigner => &[(&["approve"], CERTIFICATES, "signers")],
            Self::RequestCertificate => {
                &[(&["create"], CERTIFICATES, "certificatesigningrequests")]
            }
            Self::UpdateApproval => {
                &[(CHANGE, CERTIFICATES, "certificatesigningrequests/approval")]
            }
        }
    }

    fn bit(self) -> u64 {
        1 << (self as u32)
    }
}

/// The first of the two checks of a request that impersonates by the modes of 1.36.
const CONSTRAINED_IMPERSONATION: Requests = &[
    (&["impersonate:user-info"], "authentication.k8s.io", "users"),
    (
        &["impersonate:user-info"],
        "authentication.k8s.io",
        "groups",
    ),
    (
        &["impersonate:serviceaccount"],
        "authentication.k8s.io",
        "serviceaccounts",
    ),
    (
        &["impersonate:arbitrary-node", "impersonate:associated-node"],
        "authentication.k8s.io",
        "nodes",
    ),
];

/// What makes a Pod.
const RUNNING_CREATES: Requests = &[
    (&["create"], "", "pods"),
    (&["create"], "apps", "deployments"),
    (&["create"], "apps", "statefulsets"),
    (&["create"], "apps", "daemonsets"),
    (&["create"], "apps", "replicasets"),
    (&["create"], "", "replicationcontrollers"),
    (&["create"], "batch", "jobs"),
    (&["create"], "batch", "cronjobs"),
];

/// What changes the Pods that a workload makes.
const WORKLOAD_CHANGES: Requests = &[
    (CHANGE, "apps", "deployments"),
    (CHANGE, "apps", "statefulsets"),
    (CHANGE, "apps", "daemonsets"),
    (CHANGE, "apps", "replicasets"),
    (CHANGE, "", "replicationcontrollers"),
    (CHANGE, "batch", "jobs"),
    (CHANGE, "batch", "cronjobs"),
];

/// What controllers of other projects read to apply objects with a credential of their own.
const USED_BY_CONTROLLERS: Requests = &[
    (WRITE, "kustomize.toolkit.fluxcd.io", "kustomizations"),
    (WRITE, "helm.toolkit.fluxcd.io", "helmreleases"),
    (WRITE, "source.toolkit.fluxcd.io", "gitrepositories"),
    (WRITE, "source.toolkit.fluxcd.io", "ocirepositories"),
    (WRITE, "source.toolkit.fluxcd.io", "buckets"),
    (WRITE, "source.toolkit.fluxcd.io", "helmrepositories"),
    (WRITE, "source.toolkit.fluxcd.io", "helmcharts"),
    (WRITE, "source.toolkit.fluxcd.io", "externalartifacts"),
    (WRITE, "fluxcd.controlplane.io", "resourcesets"),
    (WRITE, "fluxcd.controlplane.io", "resourcesetinputproviders"),
    (WRITE, "fluxcd.controlplane.io", "fluxinstances"),
    (WRITE, "argoproj.io", "applications"),
    (WRITE, "argoproj.io", "applicationsets"),
    (WRITE, "argoproj.io", "appprojects"),
];

/// The definitions of the objects that a rule allows to write, of those that a controller acts on.
pub(crate) fn controller_definitions(rule: &PolicyRule) -> impl Iterator<Item = String> {
    let objects = USED_BY_CONTROLLERS.iter();
    let written = objects.filter(move |(verbs, group, resource)| {
        let mut requests = verbs.iter().map(|verb| request_of(verb, group, resource));
        let name = rule.resource_names.first().map_or("", String::as_str);
        requests.any(|request| rule.allows(&named(&request, name)))
    });
    written.map(|(_, group, resource)| format!("{resource}.{group}"))
}

/// What changes the requests of others, or sees the Secrets that they write: also the conversion of
/// a definition's objects.
const INTERCEPTING_WRITES: Requests = &[
    (WRITE, ADMISSION, "mutatingadmissionpolicies"),
    (WRITE, ADMISSION, "mutatingadmissionpolicybindings"),
    (WRITE, ADMISSION, "mutatingwebhookconfigurations"),
    (WRITE, ADMISSION, "validatingwebhookconfigurations"),
    (WRITE, "apiextensions.k8s.io", "customresourcedefinitions"),
];

fn request_of(verb: &str, group: &str, resource: &str) -> Attributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes::resource(
        verb,
        ResourceRequest {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            ..ResourceRequest::default()
        },
    )
}

static REQUESTS: LazyLock<Vec<(u64, Vec<Attributes>)>> = LazyLock::new(|| {
    ALL.iter()
        .map(|right| {
            let all = right
                .requests()
                .iter()
                .flat_map(|(verbs, group, resource)| {
                    verbs
                        .iter()
                        .map(move |verb| request_of(verb, group, resource))
                });
            (right.bit(), all.collect())
        })
        .collect()
});

/// Every request that opens a door, without a namespace and a name.
pub(crate) fn door_requests() -> impl Iterator<Item = &'static Attributes> {
    REQUESTS.iter().flat_map(|(_, requests)| requests)
}

/// The same request about objects of a namespace, or about one of a name.
pub(crate) fn request_about(request: &Attributes, namespace: &str, name: &str) -> Attributes {
    let mut request = named(request, name);
    if let RequestTarget::Resource(resource) = &mut request.target {
        namespace.clone_into(&mut resource.namespace);
    }
    request
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RightSet(u64);

impl RightSet {
    pub(crate) fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The rights that a rule grants, at least for the names to which it is limited.
    pub(crate) fn of_rule(rule: &PolicyRule) -> Self {
        if rule.resources.is_empty() || rule.verbs.is_empty() {
            return Self::default();
        }
        let name = rule.resource_names.first();
        let allows = |attributes: &Attributes| match name {
            None => rule.allows(attributes),
            Some(name) => rule.allows(&named(attributes, name)),
        };
        let granted = REQUESTS
            .iter()
            .filter(|(_, requests)| requests.iter().any(allows));
        Self(granted.fold(0, |bits, (bit, _)| bits | bit))
    }
}

fn named(attributes: &Attributes, name: &str) -> Attributes {
    let mut attributes = attributes.clone();
    if let RequestTarget::Resource(request) = &mut attributes.target {
        name.clone_into(&mut request.name);
    }
    attributes
}

/// The names to which a rule limits its rights.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names<'a> {
    Any,
    Only(&'a [String]),
}

impl<'a> Names<'a> {
    pub(crate) fn of_rule(rule: &'a PolicyRule) -> Self {
        if rule.resource_names.is_empty() {
            Self::Any
        } else {
            Self::Only(&rule.resource_names)
        }
    }

    pub(crate) fn allow(self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => names.iter().any(|own| own == name),
        }
    }

    /// Whether a request without a name is allowed, such as a create.
    pub(crate) fn allow_unnamed(self) -> bool {
        self.allow("")
    }
}
