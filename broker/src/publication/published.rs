//! What is published at one time, and how it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use keyferry_core::issuer::Issuer;
use keyferry_core::jwks::PublicKeySet;
use keyferry_core::moment::Moment;

use super::Document;

/// What is published at one time.
#[derive(Debug)]
pub struct Published {
    /// The issuer that every token must have.
    pub issuer: Issuer,
    /// The keys that targets get.
    pub keys: PublicKeySet,
    /// The keys by which callers are known: those that the hub was seen to have.
    pub authenticating: PublicKeySet,
    /// The provider metadata document.
    pub metadata: Document,
    /// The key set document.
    pub jwks: Document,
    /// From when on, on the monotonic clock, tokens of a key may leave; nothing while its
    /// publication is not recorded.
    pub(super) settles: BTreeMap<String, Option<Duration>>,
}

impl Published {
    /// Whether tokens signed by `kid` may leave.
    pub fn is_settled(&self, kid: &str, now: Moment) -> bool {
        self.settles
            .get(kid)
            .is_some_and(|from| from.is_some_and(|from| now.mono >= from))
    }
}

/// Reads what is published.
#[derive(Clone, Default)]
pub struct PublicationReader {
    pub(super) current: Arc<ArcSwapOption<Published>>,
    pub(super) cut_off: Arc<AtomicBool>,
    /// Beside what is published: after the last key was revoked nothing may be published at all.
    pub(super) revoked: Arc<ArcSwap<BTreeSet<String>>>,
}

impl PublicationReader {
    /// What is published now; nothing before the first good reading.
    pub fn current(&self) -> Option<Arc<Published>> {
        self.current.load_full()
    }

    /// The same for a look that ends at once: it is not counted among those who hold it, so looks
    /// do not hinder each other.
    pub fn look(&self) -> Guard<Option<Arc<Published>>> {
        self.current.load()
    }

    /// The `kid` of every revoked key, as far as the journal was read.
    pub fn revoked(&self) -> Arc<BTreeSet<String>> {
        self.revoked.load_full()
    }

    /// For tests: a reader of these revocations.
    #[cfg(test)]
    pub(crate) fn set_revoked(&self, kids: &[&str]) {
        self.revoked
            .store(Arc::new(kids.iter().map(|&kid| kid.to_owned()).collect()));
    }

    /// Whether the last reading found nobody at the hub.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }
}
