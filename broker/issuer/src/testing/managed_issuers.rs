//! One replica of managed issuers, with a fake store that two replicas can share.

#![allow(
    clippy::unwrap_used,
    reason = "a world that cannot be built fails its test"
)]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::config::{Policy, TokenIssuer};
use keyferry_api::issuer::PublicUrl;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_hub::ports::{HubError, IssuerKeyStore, StoredKeys, StoredObject};
use keyferry_keys::managed_issuer::{self, KeySet, RotationPolicy};
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use zeroize::Zeroizing;

use super::{FakeClock, SmallWorld};
use crate::managed_issuer::{
    KeySetMaintainer, KeySetMaintainerParts, ManagedIssuer, ManagedIssuers,
};

/// The activation delay of keys in these tests.
pub const WAIT: Duration = Duration::from_secs(120);
/// The rotation interval in these tests.
pub const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// The stored object.
#[derive(Clone)]
pub struct Object {
    /// Its UID.
    pub uid: u64,
    /// Its resourceVersion.
    pub version: u64,
    /// The stored key set.
    pub document: String,
    /// The annotation that requests a rotation.
    pub request: Option<String>,
}

/// A store of one object with compare-and-swap.
#[derive(Default)]
pub struct FakeStore {
    /// The object, if it exists.
    pub object: Mutex<Option<Object>>,
    /// The error of every read.
    pub failure: Mutex<Option<HubError>>,
    /// Whether writes are forbidden.
    pub read_only: AtomicBool,
    /// The number of creations.
    pub made: Mutex<u64>,
    /// The number of successful writes.
    pub written: Mutex<u64>,
    /// The number of refused writes.
    pub conflicts: Mutex<u64>,
}

impl FakeStore {
    /// Makes every read fail like this.
    pub fn fail(&self, error: Option<HubError>) {
        *self.failure.lock().unwrap() = error;
    }

    /// Changes the object, as another writer would.
    pub fn edit(&self, change: impl FnOnce(&mut Object)) {
        let mut object = self.object.lock().unwrap();
        let object = object.as_mut().unwrap();
        change(object);
        object.version += 1;
    }

    /// Deletes the object.
    pub fn delete(&self) {
        *self.object.lock().unwrap() = None;
    }

    /// The stored text.
    pub fn document(&self) -> String {
        self.object
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .document
            .clone()
    }

    /// The stored key set.
    pub fn set(&self) -> KeySet {
        managed_issuer::read_key_set(self.document().as_bytes()).unwrap()
    }

    /// The numbers of writes and of conflicts.
    pub fn counts(&self) -> (u64, u64) {
        (
            *self.written.lock().unwrap(),
            *self.conflicts.lock().unwrap(),
        )
    }
}

impl IssuerKeyStore for FakeStore {
    fn read<'a>(
        &'a self,
        _: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredKeys>, HubError>> {
        Box::pin(async move {
            if let Some(error) = self.failure.lock().unwrap().clone() {
                return Err(error);
            }
            let stored_keys = self
                .object
                .lock()
                .unwrap()
                .clone()
                .map(|object| StoredKeys {
                    object: StoredObject {
                        uid: object.uid.to_string(),
                        rest: object.version.into(),
                    },
                    document: (!object.document.is_empty())
                        .then(|| Zeroizing::new(object.document.into_bytes())),
                    rotation_request: object.request,
                });
            // Another replica may write between this answer and the write that depends on it.
            tokio::task::yield_now().await;
            Ok(stored_keys)
        })
    }

    fn write<'a>(
        &'a self,
        _: &'a ObjectName,
        document: &'a str,
        replaces: Option<&'a StoredObject>,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(async move {
            if self.read_only.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(HubError::Forbidden("update".into()));
            }
            let mut object = self.object.lock().unwrap();
            let present = object
                .as_ref()
                .map(|object| (object.uid.to_string(), object.version));
            let expected =
                replaces.map(|object| (object.uid.clone(), object.rest.as_u64().unwrap()));
            if present != expected {
                *self.conflicts.lock().unwrap() += 1;
                return Err(HubError::Conflict("another was first".to_owned()));
            }
            *self.written.lock().unwrap() += 1;
            let (uid, request) = match &*object {
                Some(object) => (object.uid, object.request.clone()),
                None => {
                    *self.made.lock().unwrap() += 1;
                    (*self.made.lock().unwrap(), None)
                }
            };
            *object = Some(Object {
                uid,
                version: present.map_or(1, |(_, version)| version + 1),
                document: document.to_owned(),
                request,
            });
            Ok(())
        })
    }
}

/// One replica's maintainer and the issuers that it publishes.
pub struct Replica {
    /// Reloads the key set.
    pub maintainer: KeySetMaintainer,
    /// What the replica publishes.
    pub issuers: ManagedIssuers,
    /// Whether this replica leads.
    pub may_write: Arc<AtomicBool>,
}

impl Replica {
    /// Creates a replica that leads.
    pub fn new(store: &Arc<FakeStore>, clock: Arc<dyn Clock>) -> Self {
        let (issuers, may_write) = (ManagedIssuers::default(), Arc::new(AtomicBool::new(true)));
        let maintainer = KeySetMaintainer::new(KeySetMaintainerParts {
            store: Arc::<FakeStore>::clone(store),
            issuers: issuers.clone(),
            clock,
            metrics: Metrics::default(),
            public_url: PublicUrl::new("https://keyferry.example.test").unwrap(),
            rotation: RotationPolicy {
                active_after: WAIT,
                every: MONTH,
            },
            may_write: Arc::clone(&may_write),
        });
        Self {
            maintainer,
            issuers,
            may_write,
        }
    }

    /// The issuer of the only target.
    pub fn issuer(&self) -> Arc<ManagedIssuer> {
        self.issuers.find_by_name("prod").unwrap()
    }

    /// The published key set, as bytes.
    pub fn jwks(&self) -> bytes::Bytes {
        self.issuer().documents.as_ref().unwrap().jwks.bytes.clone()
    }

    /// Whether the published key set has this key.
    pub fn publishes(&self, kid: &str) -> bool {
        self.issuer()
            .documents
            .as_ref()
            .unwrap()
            .keys
            .get(kid)
            .is_some()
    }

    /// The key that would sign now.
    pub fn signs(&self, clock: &dyn Clock) -> Result<String, Reason> {
        self.issuer()
            .signing_key(clock.now())
            .map(|key| key.kid().to_owned())
    }
}

/// Creates a world whose only target has a managed issuer.
pub async fn start_managed_world() -> (SmallWorld, Arc<FakeStore>, Replica) {
    let mut world = SmallWorld::start().await;
    make_own(&mut world.policy);
    let store = Arc::new(FakeStore::default());
    let replica = Replica::new(&store, Arc::<FakeClock>::clone(&world.clock));
    (world, store, replica)
}

/// Gives every target a managed issuer.
pub fn make_own(policy: &mut Policy) {
    policy
        .targets
        .values_mut()
        .for_each(|target| target.issuer = TokenIssuer::Keyferry);
}
