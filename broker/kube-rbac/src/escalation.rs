//! The checks against escalation: who may grant rights by writing roles and bindings.
//!
//! They come after the authorizer has allowed the write itself, which [`Policy::decide`] answers.

use crate::decision::{Fault, Way, is_superuser};
use crate::object::{Binding, ObjectKind, Role};
use crate::policy::Policy;
use crate::request::{Attributes, ResourceRequest, User};
use crate::rule::{PolicyRule, WILDCARD};
use crate::rule_coverage::{Coverage, rules_cover};

const GROUP: &str = "rbac.authorization.k8s.io";

/// How a role is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleWrite {
    /// By POST, whose request names no object: a right to `escalate` that is limited to names does
    /// not count.
    Create,
    /// By PUT, PATCH or apply, whose path has the name.
    Update,
}

/// Whether a write that grants rights is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EscalationDecision<'a> {
    /// The user is a member of [`crate::SUPERUSER_GROUP`].
    Superuser,
    /// The user may `escalate` or `bind` the role.
    ByVerb(Way<'a>),
    /// The user has every right that is granted.
    ByCoverage,
    /// The apiserver refuses the write.
    Refused(EscalationRefusal<'a>),
    /// The rules are too many to compare.
    Undetermined,
}

/// Why an apiserver refuses a write that grants rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EscalationRefusal<'a> {
    /// The user lacks these rights, one verb on one resource each.
    RightsMissing(Vec<PolicyRule>),
    /// The role of the binding does not exist.
    RoleMissing(Fault<'a>),
}

impl EscalationDecision<'_> {
    /// Whether the apiserver allows it.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Superuser | Self::ByVerb(_) | Self::ByCoverage)
    }
}

impl Policy {
    /// Decides whether the user may write a Role or ClusterRole with these contents.
    ///
    /// The rules that count are those of the new object. To set an aggregationRule, or to change
    /// an object that has one, the user must have all rights there are; `replaces` is that object.
    pub fn may_write_role<'a>(
        &'a self,
        user: &User,
        role: &Role,
        write: RoleWrite,
        replaces: Option<&Role>,
    ) -> EscalationDecision<'a> {
        if is_superuser(user) {
            return EscalationDecision::Superuser;
        }
        let name = match write {
            RoleWrite::Create => "",
            RoleWrite::Update => role.id.name.as_str(),
        };
        let namespace = role.id.namespace.as_str();
        let request = role_request(role.id.kind, namespace, name);
        let escalate = Attributes::resource("escalate", request);
        if let Some(way) = self.decide(user, &escalate).way() {
            return EscalationDecision::ByVerb(way);
        }
        let is_aggregated = |role: &Role| {
            let rule = role.aggregation.as_ref();
            rule.is_some_and(|rule| !rule.cluster_role_selectors.is_empty())
        };
        let covered = self.covered_by(user, namespace, &role.rules);
        if !covered.is_allowed() || !(is_aggregated(role) || replaces.is_some_and(is_aggregated)) {
            return covered;
        }
        self.covered_by(user, namespace, &all_rights())
    }

    /// Decides whether the user may write the binding, which is a ClusterRoleBinding if it has no
    /// namespace. Its role need not exist for one who may `bind` it.
    pub fn may_bind<'a>(&'a self, user: &User, binding: &'a Binding) -> EscalationDecision<'a> {
        if is_superuser(user) {
            return EscalationDecision::Superuser;
        }
        let kind = match binding.role_ref.kind {
            crate::RoleKind::Role => ObjectKind::Role,
            crate::RoleKind::ClusterRole => ObjectKind::ClusterRole,
            crate::RoleKind::Unsupported(_) => {
                let fault = Fault { binding };
                return EscalationDecision::Refused(EscalationRefusal::RoleMissing(fault));
            }
        };
        let namespace = binding.id.namespace.as_str();
        // The right to bind is looked for where the binding is, also for a ClusterRole.
        let request = role_request(kind, namespace, &binding.role_ref.name);
        if let Some(way) = self
            .decide(user, &Attributes::resource("bind", request))
            .way()
        {
            return EscalationDecision::ByVerb(way);
        }
        match self.granted_role(binding) {
            Some(role) => self.covered_by(user, namespace, &role.rules),
            None => {
                let fault = Fault { binding };
                EscalationDecision::Refused(EscalationRefusal::RoleMissing(fault))
            }
        }
    }

    fn covered_by(
        &self,
        user: &User,
        namespace: &str,
        wanted: &[PolicyRule],
    ) -> EscalationDecision<'static> {
        let owned = self.rules_of(user, namespace);
        match rules_cover(owned.ways.iter().map(|way| way.rule), wanted) {
            Coverage::Covered => EscalationDecision::ByCoverage,
            Coverage::Missing(rules) => {
                EscalationDecision::Refused(EscalationRefusal::RightsMissing(rules))
            }
            Coverage::Undetermined => EscalationDecision::Undetermined,
        }
    }
}

fn role_request(kind: ObjectKind, namespace: &str, name: &str) -> ResourceRequest {
    let resource = match kind {
        ObjectKind::Role => "roles",
        _ => "clusterroles",
    };
    ResourceRequest {
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..ResourceRequest::default()
    }
}

/// The rights of `cluster-admin`.
fn all_rights() -> [PolicyRule; 2] {
    let all = || vec![WILDCARD.to_owned()];
    [
        PolicyRule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..PolicyRule::default()
        },
        PolicyRule {
            verbs: all(),
            non_resource_urls: all(),
            ..PolicyRule::default()
        },
    ]
}
