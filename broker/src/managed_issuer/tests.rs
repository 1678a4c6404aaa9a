//! Tests of managed issuers with a fake store and a clock that the tests move.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::config::{Policy, TokenIssuer};
use keyferry_core::issuer::PublicUrl;
use keyferry_core::managed_issuer::{self, KeySet, RotationPolicy};
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;
use zeroize::Zeroizing;

use super::*;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::ports::{HubError, IssuerKeyStore, StoredKeys, StoredObject};
use crate::testing::SmallWorld;

mod documents;
mod replicas;
mod tokens;

const WAIT: Duration = Duration::from_secs(120);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Clone)]
struct Object {
    uid: u64,
    version: u64,
    document: String,
    request: Option<String>,
}

/// A store of one object with compare-and-swap.
#[derive(Default)]
struct FakeStore {
    object: Mutex<Option<Object>>,
    failure: Mutex<Option<HubError>>,
    read_only: AtomicBool,
    made: Mutex<u64>,
    written: Mutex<u64>,
    conflicts: Mutex<u64>,
}

impl FakeStore {
    fn fail(&self, error: Option<HubError>) {
        *self.failure.lock().unwrap() = error;
    }

    fn edit(&self, change: impl FnOnce(&mut Object)) {
        let mut object = self.object.lock().unwrap();
        let object = object.as_mut().unwrap();
        change(object);
        object.version += 1;
    }

    fn delete(&self) {
        *self.object.lock().unwrap() = None;
    }

    fn document(&self) -> String {
        self.object
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .document
            .clone()
    }

    fn set(&self) -> KeySet {
        managed_issuer::read(self.document().as_bytes()).unwrap()
    }

    fn counts(&self) -> (u64, u64) {
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
            let found = self
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
            Ok(found)
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
                return Err(HubError::Forbidden("update".to_owned()));
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

/// One replica's keeper and the issuers that it publishes.
struct Replica {
    keeper: Keeper,
    issuers: ManagedIssuers,
    may_write: Arc<AtomicBool>,
}

impl Replica {
    fn new(store: &Arc<FakeStore>, clock: Arc<dyn Clock>) -> Self {
        let (issuers, may_write) = (ManagedIssuers::default(), Arc::new(AtomicBool::new(true)));
        let keeper = Keeper::new(KeeperParts {
            store: Arc::<FakeStore>::clone(store),
            issuers: issuers.clone(),
            clock,
            metrics: Metrics::default(),
            public_url: PublicUrl::new("https://keyferry.example.test").unwrap(),
            rotation: RotationPolicy {
                settles_after: WAIT,
                every: MONTH,
            },
            may_write: Arc::clone(&may_write),
        });
        Self {
            keeper,
            issuers,
            may_write,
        }
    }

    fn issuer(&self) -> Arc<ManagedIssuer> {
        self.issuers.named("prod").unwrap()
    }

    fn jwks(&self) -> axum::body::Bytes {
        self.issuer().documents.as_ref().unwrap().jwks.bytes.clone()
    }

    fn publishes(&self, kid: &str) -> bool {
        self.issuer()
            .documents
            .as_ref()
            .unwrap()
            .keys
            .get(kid)
            .is_some()
    }

    fn signs(&self, clock: &dyn Clock) -> Result<String, Reason> {
        self.issuer()
            .signing_key(clock.now())
            .map(|key| key.kid().to_owned())
    }
}

/// Creates a world whose only target has a managed issuer.
async fn world() -> (SmallWorld, Arc<FakeStore>, Replica) {
    let mut world = SmallWorld::start().await;
    make_own(&mut world.policy);
    let store = Arc::new(FakeStore::default());
    let replica = Replica::new(
        &store,
        Arc::<crate::testing::FakeClock>::clone(&world.clock),
    );
    (world, store, replica)
}

fn make_own(policy: &mut Policy) {
    policy
        .targets
        .values_mut()
        .for_each(|target| target.issuer = TokenIssuer::Keyferry);
}
