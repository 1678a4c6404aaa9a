//! The ServiceAccounts of the hub: those that were read, and those that other objects name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use keyferry_api::config::Policy;

use crate::cluster_rights::ClusterRights;
use crate::doubt::Doubt;
use crate::granted::Scope;
use crate::list::ListKind;
use crate::world::Hub;

/// A ServiceAccount that exists, or may.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) namespace: Rc<str>,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    /// Why it is not known to exist.
    pub(crate) doubt: Option<Doubt>,
}

/// An account, by its place in the list.
pub(crate) type AccountIndex = usize;

/// Some accounts, without naming each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AccountSet {
    One(AccountIndex),
    /// Those of one namespace, which are beside one another: from the first to before the second.
    Namespace(AccountIndex, AccountIndex),
    All,
}

impl AccountSet {
    pub(crate) fn has(self, account: AccountIndex) -> bool {
        match self {
            Self::One(own) => own == account,
            Self::Namespace(first, end) => (first..end).contains(&account),
            Self::All => true,
        }
    }
}

/// All accounts, sorted by namespace and name.
#[derive(Debug)]
pub(crate) struct Accounts {
    all: Vec<Account>,
    by_short_name: BTreeMap<String, Vec<AccountIndex>>,
}

impl Account {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Accounts {
    pub(crate) fn new(hub: &Hub, policy: &Policy, rights: &ClusterRights<'_>) -> Self {
        let mut names: BTreeSet<(String, String)> = hub.accounts.keys().cloned().collect();
        let owned = |(namespace, name): (&str, &str)| (namespace.to_owned(), name.to_owned());
        let is_unread =
            |namespace: &str| !hub.lists.is_whole_in(ListKind::ServiceAccounts, namespace);
        let of_bindings = rights.accounts.iter().copied().map(owned);
        let of_pairs = hub.pairs.iter().flat_map(|pairs| pairs.values().flatten());
        let of_pairs = of_pairs.filter_map(|pair| pair.split_once('/')).map(owned);
        let of_accesses = policy.accesses.values().flat_map(|access| {
            let namespace = access.name.namespace.as_str();
            let names = access.callers.iter().chain([&access.service_account]);
            names.map(move |name| owned((namespace, name.as_str())))
        });
        let of_pods = hub
            .pods
            .iter()
            .map(|pod| owned((&pod.namespace, &pod.account)));
        let others = of_bindings
            .chain(of_pairs)
            .chain(of_accesses)
            .chain(of_pods);
        names.extend(others.filter(|(namespace, _)| is_unread(namespace)));
        let mut accounts = Self {
            all: Vec::with_capacity(names.len()),
            by_short_name: BTreeMap::new(),
        };
        for (namespace, name) in names {
            let known = hub.accounts.get(&(namespace.clone(), name.clone()));
            accounts.push(Account {
                uid: known.cloned().flatten(),
                doubt: match known {
                    Some(_) => None,
                    None => Some(Doubt::list_in(ListKind::ServiceAccounts, &namespace)),
                },
                namespace: accounts.shared_namespace(&namespace),
                name,
            });
        }
        accounts
    }

    fn push(&mut self, account: Account) {
        let same_name = self.by_short_name.entry(account.name.clone()).or_default();
        same_name.push(self.all.len());
        self.all.push(account);
    }

    /// The namespace of the account that is added next: that of the last one, if it is the same.
    fn shared_namespace(&self, namespace: &str) -> Rc<str> {
        match self.all.last() {
            Some(last) if *last.namespace == *namespace => Rc::clone(&last.namespace),
            _ => namespace.into(),
        }
    }

    pub(crate) fn get(&self, index: AccountIndex) -> Option<&Account> {
        self.all.get(index)
    }

    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<AccountIndex> {
        let key = (namespace, name);
        let name_of = |account: &Account| (&*account.namespace, account.name.as_str()).cmp(&key);
        self.all.binary_search_by(name_of).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AccountIndex, &Account)> {
        self.all.iter().enumerate()
    }

    pub(crate) fn of_set(&self, set: AccountSet) -> Range<AccountIndex> {
        match set {
            AccountSet::One(index) => index..index + 1,
            AccountSet::Namespace(first, end) => first..end,
            AccountSet::All => 0..self.all.len(),
        }
    }

    /// The accounts of a scope with this name.
    pub(crate) fn named(&self, scope: Scope<'_>, name: &str) -> Vec<AccountIndex> {
        match scope {
            Scope::Namespace(namespace) => self.find(namespace, name).into_iter().collect(),
            _ => self.by_short_name.get(name).cloned().unwrap_or_default(),
        }
    }

    /// All accounts of a scope.
    pub(crate) fn in_scope(&self, scope: Scope<'_>) -> AccountSet {
        let Scope::Namespace(namespace) = scope else {
            return AccountSet::All;
        };
        let first = (self.all).partition_point(|account| &*account.namespace < namespace);
        let end = (self.all).partition_point(|account| &*account.namespace <= namespace);
        AccountSet::Namespace(first, end)
    }
}
