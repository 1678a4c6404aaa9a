//! The hub's live ServiceAccounts and Namespaces, kept current by watches.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use keyferry_core::authorise::HubView;
use keyferry_core::moment::Moment;
use keyferry_core::name::Namespace;
use keyferry_core::service_account::{ServiceAccount, Uid};

/// Which watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// ServiceAccounts of all namespaces.
    ServiceAccounts,
    /// Namespaces.
    Namespaces,
}

/// How well one watch goes.
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    listed: bool,
    failing_since: Option<Duration>,
}

/// What the watches have seen.
#[derive(Debug, Default)]
pub struct LiveObjects {
    service_accounts: RwLock<HashMap<ServiceAccount, Uid>>,
    namespaces: RwLock<HashMap<Namespace, Arc<BTreeMap<String, String>>>>,
    service_account_watch: Mutex<Health>,
    namespace_watch: Mutex<Health>,
}

impl LiveObjects {
    /// Takes in a whole list of ServiceAccounts; what is not in it is gone.
    pub fn replace_service_accounts(&self, all: HashMap<ServiceAccount, Uid>) {
        *self.service_accounts.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Takes in one ServiceAccount, or its absence.
    pub fn set_service_account(&self, account: ServiceAccount, uid: Option<Uid>) {
        let mut accounts = self.service_accounts.write().unwrap_or_else(PoisonError::into_inner);
        match uid {
            Some(uid) => accounts.insert(account, uid),
            None => accounts.remove(&account),
        };
    }

    /// Takes in a whole list of Namespaces; what is not in it is gone.
    pub fn replace_namespaces(&self, all: HashMap<Namespace, BTreeMap<String, String>>) {
        let all = all.into_iter().map(|(namespace, labels)| (namespace, Arc::new(labels))).collect();
        *self.namespaces.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Takes in one Namespace's labels, or its absence.
    pub fn set_namespace(&self, namespace: Namespace, labels: Option<BTreeMap<String, String>>) {
        let mut namespaces = self.namespaces.write().unwrap_or_else(PoisonError::into_inner);
        match labels {
            Some(labels) => namespaces.insert(namespace, Arc::new(labels)),
            None => namespaces.remove(&namespace),
        };
    }

    /// Notes that a watch goes well; `listed` once its first whole list is in.
    pub fn watch_listed(&self, watched: Watched) {
        self.with_health(watched, |health| *health = Health { listed: true, failing_since: None });
    }

    /// Notes that a watch answered.
    pub fn watch_answered(&self, watched: Watched) {
        self.with_health(watched, |health| health.failing_since = None);
    }

    /// Notes that a watch failed; the first failure counts.
    pub fn watch_failed(&self, watched: Watched, now: Moment) {
        self.with_health(watched, |health| {
            health.failing_since.get_or_insert(now.mono);
        });
    }

    /// Whether both watches have listed and neither has been failing for longer than `limit`.
    pub fn is_current(&self, limit: Duration, now: Moment) -> bool {
        [Watched::ServiceAccounts, Watched::Namespaces].into_iter().all(|watched| {
            let health = self.with_health(watched, |health| *health);
            health.listed && health.failing_since.is_none_or(|since| now.mono.saturating_sub(since) <= limit)
        })
    }

    /// Whether both watches have listed at least once.
    pub fn is_complete(&self) -> bool {
        [Watched::ServiceAccounts, Watched::Namespaces].into_iter().all(|watched| self.with_health(watched, |health| health.listed))
    }

    fn with_health<T>(&self, watched: Watched, act: impl FnOnce(&mut Health) -> T) -> T {
        let health = match watched {
            Watched::ServiceAccounts => &self.service_account_watch,
            Watched::Namespaces => &self.namespace_watch,
        };
        act(&mut health.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HubView for LiveObjects {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        self.service_accounts.read().unwrap_or_else(PoisonError::into_inner).get(account).cloned()
    }

    fn namespace_labels(&self, namespace: &Namespace) -> Option<Arc<BTreeMap<String, String>>> {
        self.namespaces.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned()
    }
}
