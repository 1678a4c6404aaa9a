//! A user name and groups, as an authorizer sees them.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use keyferry_kube_rbac::{SUPERUSER_GROUP, node_name, service_account_groups};

use crate::subject::Subject;

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
pub(crate) const NODES: &str = "system:nodes";

/// Who sends a request. The name is empty for a member of a group of whom nothing else is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Actor {
    pub(crate) user: String,
    pub(crate) groups: BTreeSet<String>,
}

impl Actor {
    pub(crate) fn service_account(namespace: &str, name: &str) -> Self {
        let mut groups: BTreeSet<String> = service_account_groups(namespace).into_iter().collect();
        groups.insert(AUTHENTICATED.to_owned());
        Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups,
        }
    }

    pub(crate) fn of_subject(subject: &Subject) -> Self {
        match subject {
            Subject::ServiceAccount(namespace, name) => Self::service_account(namespace, name),
            Subject::User(name) => Self::user(name, []),
            Subject::Group(name) => {
                let of_accounts = name
                    .starts_with("system:serviceaccounts:")
                    .then(|| "system:serviceaccounts".to_owned());
                Self::user("", of_accounts.into_iter().chain([name.clone()]))
            }
        }
    }

    /// The user of this name, which may be a ServiceAccount.
    pub(crate) fn user_named(name: &str) -> Self {
        Self::of_subject(&Subject::of_user(name))
    }

    /// A user with these groups, and the one that the apiserver adds.
    pub(crate) fn user(name: &str, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: BTreeSet<String> = groups.into_iter().collect();
        let is_anonymous = name == ANONYMOUS || groups.contains(UNAUTHENTICATED);
        let added = if is_anonymous {
            UNAUTHENTICATED
        } else {
            AUTHENTICATED
        };
        groups.insert(added.to_owned());
        Self {
            user: name.to_owned(),
            groups,
        }
    }

    pub(crate) fn is_superuser(&self) -> bool {
        self.groups.contains(SUPERUSER_GROUP)
    }

    /// Whether the Node authorizer may allow it more than RBAC does.
    pub(crate) fn is_node(&self) -> bool {
        self.groups.contains(NODES) || node_name(&self.user).is_some()
    }
}

/// The actors that a search met, each once.
#[derive(Debug, Default)]
pub(crate) struct MetActors(RefCell<HashSet<Rc<Actor>>>);

/// An actor that a search met. Two of one search are equal only if they are the same, so they are compared and
/// hashed without being read.
#[derive(Clone, Debug)]
pub(crate) struct MetActor(Rc<Actor>);

impl MetActors {
    pub(crate) fn meet(&self, actor: Actor) -> MetActor {
        let mut met = self.0.borrow_mut();
        if let Some(known) = met.get(&actor) {
            return MetActor(Rc::clone(known));
        }
        let actor = Rc::new(actor);
        met.insert(Rc::clone(&actor));
        MetActor(actor)
    }
}

impl MetActor {
    /// For what outlives the search.
    pub(crate) fn shared(&self) -> Rc<Actor> {
        Rc::clone(&self.0)
    }
}

impl Deref for MetActor {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.0
    }
}

impl PartialEq for MetActor {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MetActor {}

impl Hash for MetActor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Rc::as_ptr(&self.0).hash(state);
    }
}

impl PartialOrd for MetActor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By what they are, so that an order does not depend on who was met first.
impl Ord for MetActor {
    fn cmp(&self, other: &Self) -> Ordering {
        match self == other {
            true => Ordering::Equal,
            false => self.0.cmp(&other.0),
        }
    }
}
