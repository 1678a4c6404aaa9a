//! Checks whether an admission policy of `examples/admission-policies` is on the hub as shipped,
//! and bound to everything.
//!
//! Without `keyferry-author`, anyone with the right to write a TargetAccess can mint through it.
//! Without `keyferry-pairing`, anyone with the right to create tokens can mint for every target.
//! Without `keyferry-labels`, anyone with the right to edit a namespace can make a selector match
//! it. The meaning of each of the others is in its constant below.
//!
//! An object of the right name proves nothing: validations can be emptied, conditions added,
//! namespaces excluded. So the whole spec is compared, and every unknown field counts as a gap. Two
//! lists of a policy belong to each hub: `hubAudiences`, which must contain every audience that the
//! hub is known to have, and `callerAudience`.
//!
//! No object shows these two gaps: an apiserver that runs without its ValidatingAdmissionPolicy
//! plugin, and accesses that were written while a policy was missing.

mod compare;
mod fill;

use std::collections::BTreeSet;

pub use self::compare::AdmissionPolicyGap;
pub use self::fill::{FillError, MintableAudiences, fill_manifests};

/// A shipped policy and one of its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// The name of the binding.
    name: &'static str,
    policy_name: &'static str,
    policy: &'static str,
    binding: &'static str,
    meaning: &'static str,
}

impl AdmissionPolicy {
    /// A policy whose binding has the same name and is in the same file.
    const fn with_manifest(
        name: &'static str,
        manifest: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            name,
            policy_name: name,
            policy: manifest,
            binding: manifest,
            meaning,
        }
    }

    /// The name of the binding. It equals the policy's name, unless the policy has a second
    /// binding.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The name of the policy.
    pub fn policy_name(&self) -> &'static str {
        self.policy_name
    }

    /// What is possible without this policy, as a text for people.
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }
}

const PAIRING_MANIFEST: &str = include_str!("../../../examples/admission-policies/pairing.yaml");
const PAIRING_BINDINGS: &str =
    include_str!("../../../examples/admission-policies/pairing-binding.yaml");
const SELF_MANIFEST: &str = include_str!("../../../examples/admission-policies/self.yaml");

/// Requires that the author of a TargetAccess may mint for its ServiceAccount.
pub const AUTHOR_POLICY: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-author",
    include_str!("../../../examples/admission-policies/author.yaml"),
    "no token is written to an object",
);

/// Allows a target's audience only in tokens of its grants, regardless of who mints them.
pub const PAIRING_POLICY: AdmissionPolicy = AdmissionPolicy {
    name: "keyferry-pairing",
    policy_name: "keyferry-pairing",
    policy: PAIRING_MANIFEST,
    binding: PAIRING_BINDINGS,
    meaning: "anyone who may create tokens may mint for the targets' audiences",
};

/// The same for namespaces that their admin closed; it also refuses while the AudiencePairing is
/// missing.
pub const PAIRING_CLOSED: AdmissionPolicy = AdmissionPolicy {
    name: "keyferry-pairing-closed",
    meaning: "namespaces labelled access.keyferry.dev/closed are open while the AudiencePairing is \
        missing",
    ..PAIRING_POLICY
};

/// Restricts changes of the labels by which a TargetCluster selects namespaces to users with the
/// verb for it.
pub const LABELS_POLICY: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-labels",
    include_str!("../../../examples/admission-policies/labels.yaml"),
    "anyone who may edit a namespace may make a namespaceSelector match it",
);

/// Forbids a TargetCluster to use an audience of the hub; any other audience needs the verb
/// `claim`.
pub const AUDIENCE_POLICY: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-audience",
    include_str!("../../../examples/admission-policies/audience.yaml"),
    "anyone who may create TargetClusters may take an audience that others on the hub need",
);

/// Allows redirecting a target's tokens only with the verb `retarget`.
pub const RETARGET_POLICY: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-retarget",
    include_str!("../../../examples/admission-policies/retarget.yaml"),
    "anyone who may edit a TargetCluster may redirect its tokens",
);

/// Limits what Keyferry's own account may request from the hub.
pub const OWN_ACCOUNT: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-self",
    SELF_MANIFEST,
    "Keyferry's own account may ask for credentials of the hub, where RBAC lets it mint",
);

/// Limits which Secrets Keyferry's own account may write.
pub const OWN_SECRETS: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-self-secrets",
    SELF_MANIFEST,
    "Keyferry's own account may write Secrets that the hub fills with a token that does not end",
);

/// Limits which objects Keyferry's own account may change and delete.
pub const OWN_DELIVERIES: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-self-deliveries",
    SELF_MANIFEST,
    "Keyferry's own account may overwrite every Secret and ConfigMap where it is bound",
);

/// Limits what Keyferry's own account may change of TargetClusters and TargetAccesses.
pub const OWN_TARGETS: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-self-targets",
    SELF_MANIFEST,
    "Keyferry's own account may change a TargetAccess, and have a TargetCluster deleted",
);

/// Limits which certificates Keyferry's own account may request.
pub const OWN_CERTIFICATES: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-self-certificates",
    SELF_MANIFEST,
    "Keyferry's own account may ask any signer for a certificate of any life",
);

/// Prevents the deletion of the AudiencePairing and of its definition.
pub const KEPT_POLICY: AdmissionPolicy = AdmissionPolicy::with_manifest(
    "keyferry-kept",
    include_str!("../../../examples/admission-policies/kept.yaml"),
    "the AudiencePairing and its definition can be deleted, and then keyferry-pairing \
     restricts no caller",
);

/// All shipped admission policies.
pub const ALL_POLICIES: [AdmissionPolicy; 12] = [
    AUTHOR_POLICY,
    PAIRING_POLICY,
    PAIRING_CLOSED,
    LABELS_POLICY,
    AUDIENCE_POLICY,
    RETARGET_POLICY,
    OWN_ACCOUNT,
    OWN_SECRETS,
    OWN_CERTIFICATES,
    OWN_DELIVERIES,
    OWN_TARGETS,
    KEPT_POLICY,
];

/// The values that each hub sets in the shipped manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSite {
    /// Keyferry's own namespace.
    pub namespace: String,
    /// The name of its ServiceAccount without any rights in that namespace.
    pub canary: String,
    /// The username under which the hub knows Keyferry.
    pub username: String,
    /// The audience of tokens for Keyferry itself.
    pub caller_audience: String,
    /// The audiences that the hub is known to accept, and its issuer.
    pub hub_audiences: BTreeSet<String>,
}

impl HubSite {
    /// The values in the shipped manifests, for a hub of which nothing is known.
    pub fn of_shipped_manifests() -> Self {
        Self {
            namespace: fill::SHIPPED_NAMESPACE.to_owned(),
            canary: fill::SHIPPED_CANARY.to_owned(),
            username: fill::SHIPPED_USERNAME.to_owned(),
            caller_audience: fill::CALLER_AUDIENCE.to_owned(),
            hub_audiences: BTreeSet::new(),
        }
    }
}
