//! A snapshot of the published keys and documents, and its reader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Moment;
use keyferry_keys::jwks::PublicKeySet;
use keyferry_keys::tracked_keys::JournalReading;

use super::Document;

/// A snapshot of the published keys and documents.
#[derive(Debug)]
pub struct Published {
    /// The issuer that every token must have.
    pub issuer: Issuer,
    /// The keys that targets get.
    pub keys: PublicKeySet,
    /// The keys that verify callers' tokens: those that were seen at the hub.
    pub authenticating: PublicKeySet,
    /// The provider metadata document.
    pub metadata: Document,
    /// The key set document.
    pub jwks: Document,
    /// When each key becomes active, by the monotonic clock; `None` while its publication is not
    /// recorded.
    pub(super) activations: BTreeMap<String, Option<Duration>>,
    /// When the key journal was last read, and with it the revoked keys.
    pub(super) journal: JournalReading,
}

impl Published {
    /// Whether the key `kid` is active, so that its tokens may be issued.
    pub fn is_active(&self, kid: &str, now: Moment) -> bool {
        self.activations
            .get(kid)
            .is_some_and(|from| from.is_some_and(|from| now.mono >= from))
    }

    /// Whether revocations are known up to `limit` before `now`.
    pub fn knows_revocations(&self, limit: Duration, now: Moment) -> bool {
        self.journal.is_within(limit, now)
    }
}

/// Reads the published snapshot.
#[derive(Clone, Default)]
pub struct PublicationReader {
    pub(super) current: Arc<ArcSwapOption<Published>>,
    pub(super) cut_off: Arc<AtomicBool>,
    /// Stored outside the snapshot: after the last key was revoked there may be no snapshot.
    pub(super) revoked: Arc<ArcSwap<BTreeSet<String>>>,
}

impl PublicationReader {
    /// Returns what is published now; `None` before the first successful reading.
    pub fn current(&self) -> Option<Arc<Published>> {
        self.current.load_full()
    }

    /// Borrows what is published now, briefly. This changes no reference count, so that concurrent
    /// readers do not contend.
    pub fn borrow_current(&self) -> Guard<Option<Arc<Published>>> {
        self.current.load()
    }

    /// Returns the `kid` of every revoked key, as of the last reading of the key journal.
    pub fn revoked_kids(&self) -> Arc<BTreeSet<String>> {
        self.revoked.load_full()
    }

    /// Sets the revoked keys, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_revoked(&self, kids: &[&str]) {
        self.revoked
            .store(Arc::new(kids.iter().map(|&kid| kid.to_owned()).collect()));
    }

    /// Whether no endpoint of the hub answered the last reading.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }
}
