//! The hub's live ServiceAccounts and Namespaces, kept current by watches, and the health of every
//! watch.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keyferry_api::config::ObjectSource;
use keyferry_api::moment::Moment;
use keyferry_api::name::Namespace;
use keyferry_api::service_account::{ServiceAccount, Uid};
use keyferry_core::authorise::HubView;
use keyferry_core::delivery::OtherFluxCredential;
use parking_lot::{Mutex, RwLock};

use crate::watch_health::{WatchHealth, WatchState};

type Labels = Arc<BTreeMap<String, String>>;

/// A watch on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// ServiceAccounts of all namespaces.
    ServiceAccounts,
    /// Namespaces.
    Namespaces,
    /// TargetClusters, if they are objects on the hub.
    TargetClusters,
    /// TargetAccesses of all namespaces, if they are objects on the hub.
    TargetAccesses,
}

impl Watched {
    /// The watches that decisions need in every configuration.
    const ALWAYS_WATCHED: [Self; 2] = [Self::ServiceAccounts, Self::Namespaces];

    /// Its name in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ServiceAccounts => "ServiceAccounts",
            Self::Namespaces => "Namespaces",
            Self::TargetClusters => "TargetClusters",
            Self::TargetAccesses => "TargetAccesses",
        }
    }
}

/// The ServiceAccounts and Namespaces that the watches have seen.
#[derive(Debug)]
pub struct LiveObjects {
    service_accounts: RwLock<HashMap<ServiceAccount, Uid>>,
    /// Only of the ServiceAccounts whose annotations name one.
    flux_credentials: RwLock<HashMap<ServiceAccount, OtherFluxCredential>>,
    namespaces: RwLock<HashMap<Namespace, Labels>>,
    watches: Mutex<BTreeMap<Watched, WatchState>>,
    /// The combined health of the watches, which requests read without a lock.
    health: ArcSwap<WatchState>,
}

impl Default for LiveObjects {
    fn default() -> Self {
        Self::for_source(ObjectSource::File)
    }
}

impl LiveObjects {
    /// Creates an empty view. If the configuration's objects are on the hub, their watches must be
    /// healthy too.
    pub fn for_source(source: ObjectSource) -> Self {
        let objects: &[Watched] = match source {
            ObjectSource::File => &[],
            ObjectSource::CustomResources => &[Watched::TargetClusters, Watched::TargetAccesses],
        };
        let watches = Watched::ALWAYS_WATCHED
            .iter()
            .chain(objects)
            .map(|watched| (*watched, WatchState::default()))
            .collect();
        Self {
            service_accounts: RwLock::default(),
            flux_credentials: RwLock::default(),
            namespaces: RwLock::default(),
            watches: Mutex::new(watches),
            health: ArcSwap::default(),
        }
    }

    /// Replaces all ServiceAccounts by a complete list.
    pub fn replace_service_accounts(&self, all: HashMap<ServiceAccount, Uid>) {
        *self.service_accounts.write() = all;
    }

    /// Stores one ServiceAccount, or removes it.
    pub fn set_service_account(&self, account: ServiceAccount, uid: Option<Uid>) {
        let mut service_accounts = self.service_accounts.write();
        match uid {
            Some(uid) => service_accounts.insert(account, uid),
            None => service_accounts.remove(&account),
        };
    }

    /// Replaces all annotations by which Flux gets another credential, by a complete list.
    pub fn replace_flux_credentials(&self, all: HashMap<ServiceAccount, OtherFluxCredential>) {
        *self.flux_credentials.write() = all;
    }

    /// Stores the annotation of one ServiceAccount by which Flux gets another credential, or that
    /// it has none.
    pub fn set_flux_credential(
        &self,
        account: &ServiceAccount,
        credential: Option<OtherFluxCredential>,
    ) {
        let mut credentials = self.flux_credentials.write();
        match credential {
            Some(credential) => credentials.insert(account.clone(), credential),
            None => credentials.remove(account),
        };
    }

    /// The annotation by which Flux may get another credential than a token of the hub for the
    /// ServiceAccount.
    pub fn flux_credential(&self, account: &ServiceAccount) -> Option<OtherFluxCredential> {
        self.flux_credentials.read().get(account).cloned()
    }

    /// Replaces all Namespaces by a complete list.
    pub fn replace_namespaces(&self, all: HashMap<Namespace, BTreeMap<String, String>>) {
        *self.namespaces.write() = all
            .into_iter()
            .map(|(namespace, labels)| (namespace, Arc::new(labels)))
            .collect();
    }

    /// Stores one Namespace's labels, or removes the Namespace.
    pub fn set_namespace(&self, namespace: Namespace, labels: Option<BTreeMap<String, String>>) {
        let mut namespaces = self.namespaces.write();
        match labels {
            Some(labels) => namespaces.insert(namespace, Arc::new(labels)),
            None => namespaces.remove(&namespace),
        };
    }

    /// Notes that a watch has its first complete list and works.
    pub fn watch_listed(&self, watched: Watched) {
        self.with_health(watched, |health| *health = WatchState::WORKING_STATE);
    }

    /// Notes that a watch answered.
    pub fn watch_answered(&self, watched: Watched) {
        self.with_health(watched, WatchState::note_answer);
    }

    /// Notes that a watch failed; the first failure counts.
    pub fn watch_failed(&self, watched: Watched, now: Moment) {
        self.with_health(watched, |health| health.note_failure(now));
    }

    /// Whether every watch has listed and none has been failing for longer than `limit`.
    pub fn is_current(&self, limit: Duration, now: Moment) -> bool {
        self.health.load().is_current(limit, now)
    }

    /// Whether every watch has listed at least once.
    pub fn is_complete(&self) -> bool {
        self.health.load().listed
    }

    fn with_health(&self, watched: Watched, act: impl FnOnce(&mut WatchState)) {
        let mut watches = self.watches.lock();
        act(watches.entry(watched).or_default());
        let listed = watches.values().all(|health| health.listed);
        let failing_since = watches
            .values()
            .filter_map(|health| health.failing_since)
            .min();
        // Stored under the lock, so that an older state never replaces a newer one.
        self.health.store(Arc::new(WatchState {
            listed,
            failing_since,
        }));
    }
}

impl HubView for LiveObjects {
    fn service_account(&self, account: &ServiceAccount) -> Option<Uid> {
        self.service_accounts.read().get(account).cloned()
    }

    fn namespace_labels(&self, namespace: &Namespace) -> Option<Arc<BTreeMap<String, String>>> {
        self.namespaces.read().get(namespace).cloned()
    }
}

/// One of the watches that all decisions need.
pub(crate) struct LiveWatch<'a> {
    pub(crate) live: &'a LiveObjects,
    pub(crate) watched: Watched,
}

impl WatchHealth for LiveWatch<'_> {
    fn name(&self) -> &'static str {
        self.watched.as_str()
    }

    fn note_listed(&self) {
        self.live.watch_listed(self.watched);
    }

    fn note_answer(&self) {
        self.live.watch_answered(self.watched);
    }

    fn note_failure(&self, now: Moment) {
        self.live.watch_failed(self.watched, now);
    }
}
