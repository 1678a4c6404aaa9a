//! The ServiceAccounts of the hub: those that were read, and those that other objects name.

use std::collections::{BTreeMap, BTreeSet};
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
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    /// Why it is not known to exist.
    pub(crate) doubt: Option<Doubt>,
}

/// An account, by its place in the list.
pub(crate) type AccountIndex = usize;

/// Some accounts, without naming each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AccountSet {
    One(AccountIndex),
    Namespace(Rc<str>),
    All,
}

/// All accounts, sorted by namespace and name.
#[derive(Debug)]
pub(crate) struct Accounts {
    all: Vec<Account>,
    by_name: BTreeMap<(String, String), AccountIndex>,
    by_namespace: BTreeMap<Rc<str>, Vec<AccountIndex>>,
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
            by_name: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
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
                namespace,
                name,
            });
        }
        accounts
    }

    fn push(&mut self, account: Account) {
        let index = self.all.len();
        let key = (account.namespace.clone(), account.name.clone());
        self.by_name.insert(key, index);
        let namespace = Rc::from(account.namespace.as_str());
        self.by_namespace.entry(namespace).or_default().push(index);
        let same_name = self.by_short_name.entry(account.name.clone()).or_default();
        same_name.push(index);
        self.all.push(account);
    }

    pub(crate) fn get(&self, index: AccountIndex) -> Option<&Account> {
        self.all.get(index)
    }

    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<AccountIndex> {
        let key = (namespace.to_owned(), name.to_owned());
        self.by_name.get(&key).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AccountIndex, &Account)> {
        self.all.iter().enumerate()
    }

    pub(crate) fn of_set(&self, set: &AccountSet) -> Vec<AccountIndex> {
        match set {
            AccountSet::One(index) => vec![*index],
            AccountSet::Namespace(namespace) => self
                .by_namespace
                .get(namespace)
                .cloned()
                .unwrap_or_default(),
            AccountSet::All => (0..self.all.len()).collect(),
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
    pub(crate) fn in_scope(scope: Scope<'_>) -> AccountSet {
        match scope {
            Scope::Namespace(namespace) => AccountSet::Namespace(namespace.into()),
            _ => AccountSet::All,
        }
    }
}
