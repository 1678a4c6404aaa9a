//! Turns the question round: who may do this, and by which ways.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::decision::{Fault, Way};
use crate::object::{Binding, Subject, SubjectKind};
use crate::policy::Policy;
use crate::request::Attributes;
use crate::user_name::parse_service_account;

/// Whom a binding names.
///
/// A User subject with the user name of a ServiceAccount is that ServiceAccount: the authorizer
/// compares names alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// All members of a group. RBAC does not know who they are.
    Group(String),
    /// A ServiceAccount.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Any other user.
    User(String),
}

/// Who may do something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhoCan<'a> {
    /// Everyone that a binding lets do it, with all ways. Members of
    /// [`crate::SUPERUSER_GROUP`] may do it too, without a way.
    pub principals: BTreeMap<Principal, Vec<Way<'a>>>,
    /// The bindings that count for the request, but whose role is missing.
    pub faults: Vec<Fault<'a>>,
}

impl Policy {
    /// Returns everyone who may do what the attributes describe, with every binding, role and rule
    /// that allows it.
    pub fn subjects_who_can<'a>(&'a self, attributes: &Attributes) -> WhoCan<'a> {
        let mut answer = WhoCan::default();
        // Thousands of bindings may grant one role, so each role is searched once.
        let mut allowing_rules: HashMap<*const crate::Role, Vec<usize>> = HashMap::new();
        for binding in self.bindings_in(attributes.namespace()) {
            let Some(role) = self.granted_role(binding) else {
                answer.faults.push(Fault { binding });
                continue;
            };
            let rules = allowing_rules.entry(role).or_insert_with(|| {
                let rules = role.rules.iter().enumerate();
                rules
                    .filter(|(_, rule)| rule.allows(attributes))
                    .map(|(index, _)| index)
                    .collect()
            });
            if rules.is_empty() {
                continue;
            }
            for subject in &binding.subjects {
                let Some(principal) = Principal::of(binding, subject) else {
                    continue;
                };
                let ways = answer.principals.entry(principal).or_default();
                // A binding may name one twice, as a user and as a ServiceAccount.
                if ways.last().is_none_or(|way| way.binding.id != binding.id) {
                    let by_rule = |way: &Way<'_>| rules.binary_search(&way.rule_index).is_ok();
                    ways.extend(Way::of(binding, subject, role).filter(by_rule));
                }
            }
        }
        answer
    }
}

impl Principal {
    /// The principal that a subject of a binding is; `None` if it is nobody.
    pub fn of(binding: &Binding, subject: &Subject) -> Option<Self> {
        match subject.kind {
            SubjectKind::User => Some(Self::of_user(&subject.name)),
            SubjectKind::Group => Some(Self::Group(subject.name.clone())),
            SubjectKind::ServiceAccount => {
                let namespace = subject.namespace_in(&binding.id.namespace);
                (!namespace.is_empty()).then(|| Self::ServiceAccount {
                    namespace: namespace.to_owned(),
                    name: subject.name.clone(),
                })
            }
            SubjectKind::Unsupported(_) => None,
        }
    }

    /// The principal with this user name.
    pub fn of_user(user_name: &str) -> Self {
        match parse_service_account(user_name) {
            Some((namespace, name)) => Self::ServiceAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            None => Self::User(user_name.to_owned()),
        }
    }
}

/// `Group NAME`, `ServiceAccount NAMESPACE/NAME` or `User NAME`.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "Group {name}"),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "ServiceAccount {namespace}/{name}")
            }
            Self::User(name) => write!(f, "User {name}"),
        }
    }
}
