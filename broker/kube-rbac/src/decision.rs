//! Decides one request, and says what allowed it.

use std::collections::HashSet;
use std::fmt;

use keyferry_go_formats::quote::quote;

use crate::object::{Binding, Role, RoleKind, Subject, SubjectKind};
use crate::policy::Policy;
use crate::request::{Attributes, User};
use crate::rule::PolicyRule;

/// Members of this group may do everything, before any rule is read.
pub const SUPERUSER_GROUP: &str = "system:masters";

/// What the authorizer decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// The user is a member of [`SUPERUSER_GROUP`].
    Superuser,
    /// A rule allows the request.
    Allowed(Way<'a>),
    /// No rule allows it. Each binding whose role is missing is a fault.
    Denied {
        /// What the authorizer reports.
        faults: Vec<Fault<'a>>,
    },
}

/// One way to a right: a binding, its subject, the role and the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// The subject of the binding.
    pub subject: &'a Subject,
    /// The role that the binding grants.
    pub role: &'a Role,
    /// The index of the rule in the role, from 0.
    pub rule_index: usize,
    /// The rule.
    pub rule: &'a PolicyRule,
}

/// A binding of the user that grants nothing, because its role cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault<'a> {
    /// The binding.
    pub binding: &'a Binding,
}

/// Everything that bindings give a user in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedRules<'a> {
    /// Each rule with the binding that gives it, in the order of the authorizer.
    pub ways: Vec<Way<'a>>,
    /// The bindings whose role is missing.
    pub faults: Vec<Fault<'a>>,
}

impl Policy {
    /// Decides whether the user may do what the attributes describe.
    ///
    /// An apiserver visits bindings in no particular order, so its reason may name another one of
    /// the [`Self::ways`].
    pub fn decide<'a>(&'a self, user: &User, attributes: &Attributes) -> Decision<'a> {
        if is_superuser(user) {
            return Decision::Superuser;
        }
        let mut faults = Vec::new();
        for (binding, subject) in self.bindings_of(user, attributes.namespace()) {
            let Some(role) = self.granted_role(binding) else {
                faults.push(Fault { binding });
                continue;
            };
            let mut ways = Way::of(binding, subject, role);
            if let Some(way) = ways.find(|way| way.rule.allows(attributes)) {
                return Decision::Allowed(way);
            }
        }
        Decision::Denied { faults }
    }

    /// Every binding and rule that allows the request, the cluster-wide bindings first. It is empty
    /// for a member of [`SUPERUSER_GROUP`] that no rule allows it either.
    pub fn ways<'a>(&'a self, user: &User, attributes: &Attributes) -> Vec<Way<'a>> {
        let mut granted = self.rules_of(user, attributes.namespace());
        granted.ways.retain(|way| way.rule.allows(attributes));
        granted.ways
    }

    /// Everything that cluster-wide bindings and those of the namespace give the user. An empty
    /// namespace is none.
    pub fn rules_of<'a>(&'a self, user: &User, namespace: &str) -> GrantedRules<'a> {
        let mut granted = GrantedRules::default();
        for (binding, subject) in self.bindings_of(user, namespace) {
            match self.granted_role(binding) {
                None => granted.faults.push(Fault { binding }),
                Some(role) => granted.ways.extend(Way::of(binding, subject, role)),
            }
        }
        granted
    }
}

/// Whether the user is a member of [`SUPERUSER_GROUP`].
pub(crate) fn is_superuser(user: &User) -> bool {
    user.groups.iter().any(|group| group == SUPERUSER_GROUP)
}

impl<'a> Decision<'a> {
    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        !matches!(self, Self::Denied { .. })
    }

    /// The rule that allows it.
    pub fn way(&self) -> Option<Way<'a>> {
        match self {
            Self::Allowed(way) => Some(*way),
            Self::Superuser | Self::Denied { .. } => None,
        }
    }

    /// The `reason` of an access review, in the words of the authorizer; empty if it has none.
    pub fn reason(&self) -> String {
        match self {
            Self::Superuser => String::new(),
            Self::Allowed(way) => format!("RBAC: allowed by {}", way.in_words_of_the_authorizer()),
            Self::Denied { faults } => match Fault::joined(faults).as_str() {
                "" => String::new(),
                faults => format!("RBAC: {faults}"),
            },
        }
    }
}

impl<'a> Way<'a> {
    /// A way by each rule of the role.
    pub(crate) fn of(
        binding: &'a Binding,
        subject: &'a Subject,
        role: &'a Role,
    ) -> impl Iterator<Item = Self> {
        let rules = role.rules.iter().enumerate();
        rules.map(move |(rule_index, rule)| Self {
            binding,
            subject,
            role,
            rule_index,
            rule,
        })
    }

    /// The binding in the words of the authorizer, which it has after `RBAC: allowed by`.
    pub fn in_words_of_the_authorizer(&self) -> String {
        let Binding { id, role_ref, .. } = self.binding;
        let full_name = match id.namespace.as_str() {
            "" => id.name.clone(),
            namespace => format!("{}/{namespace}", id.name),
        };
        format!(
            "{} {} of {} {} to {}",
            id.kind,
            quote(&full_name),
            role_ref.kind.name(),
            quote(&role_ref.name),
            self.subject_in_words()
        )
    }

    fn subject_in_words(&self) -> String {
        let Subject { kind, name, .. } = self.subject;
        let full_name = match kind {
            SubjectKind::ServiceAccount => {
                let namespace = self.subject.namespace_in(&self.binding.id.namespace);
                format!("{name}/{namespace}")
            }
            _ => name.clone(),
        };
        format!("{} {}", kind.name(), quote(&full_name))
    }
}

/// `RoleBinding NAMESPACE/NAME → ClusterRole NAME, rule INDEX`, with the index from 0.
impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (binding, role) = (&self.binding.id, &self.role.id);
        write!(f, "{binding} → {role}, rule {}", self.rule_index)
    }
}

impl Fault<'_> {
    /// Several faults as Go prints an aggregate: one of each, in brackets if there are several.
    pub fn joined(faults: &[Self]) -> String {
        let mut printed = HashSet::new();
        let distinct: Vec<String> = faults
            .iter()
            .map(ToString::to_string)
            .filter(|fault| printed.insert(fault.clone()))
            .collect();
        match distinct.as_slice() {
            [fault] => fault.clone(),
            [] => String::new(),
            several => format!("[{}]", several.join(", ")),
        }
    }
}

/// The fault in the words of the authorizer.
impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = quote(&self.binding.role_ref.name);
        let resource = match &self.binding.role_ref.kind {
            RoleKind::Role => "role",
            RoleKind::ClusterRole => "clusterrole",
            RoleKind::Unsupported(kind) => {
                return write!(f, "unsupported role reference kind: {}", quote(kind));
            }
        };
        write!(f, "{resource}.rbac.authorization.k8s.io {name} not found")
    }
}
