//! The cache of minted tokens: bounded in size, with a deadline per token and a limit per
//! namespace.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::lifetime;
use keyferry_api::moment::Moment;
use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_core::authorise::Grant;
use keyferry_keys::bound_token::BoundToken;
use parking_lot::{Mutex, MutexGuard};

use super::counted_cache::{CacheLimits, CountedCache, OfNamespace};
use super::gate::Gate;
use crate::publication::Published;

/// How many tokens are cached, in all and of one namespace.
const LIMITS: CacheLimits = CacheLimits {
    all: 50_000,
    per_namespace: 1_000,
    lifetime: lifetime::MAX,
};
/// How long after a renewal attempt the next one may start.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// The cache key of a token. It does not name the hub: there is one per process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MintKey {
    identity: ServiceAccountIdentity,
    audience: Audience,
    lifetime: Duration,
    issuer: Issuer,
    /// The stored object of a managed issuer's keys: tokens signed by the keys of a deleted object
    /// are not issued.
    key_set: Option<Arc<str>>,
}

impl MintKey {
    pub(super) fn of(grant: &Grant, issuer: Issuer, key_set: Option<Arc<str>>) -> Self {
        let pair = grant.pair();
        Self {
            identity: pair.service_account().clone(),
            audience: pair.audience().clone(),
            lifetime: pair.lifetime(),
            issuer,
            key_set,
        }
    }
}

impl OfNamespace for MintKey {
    fn namespace(&self) -> &Namespace {
        &self.identity.account.namespace
    }
}

/// A cached token with its grant and its time of renewal.
pub(super) struct CachedToken {
    token: Arc<BoundToken>,
    grant: Grant,
    refresh_after: Duration,
    last_used: AtomicU64,
    last_tried: AtomicU64,
}

impl CachedToken {
    pub(super) fn new(
        token: Arc<BoundToken>,
        grant: Grant,
        activation_delay: Duration,
        jitter: f64,
        now: Moment,
    ) -> Self {
        let (refresh_after, seconds) = (
            lifetime::refresh_after(token.lifetime(), activation_delay, jitter),
            now.mono.as_secs(),
        );
        Self {
            token,
            grant,
            refresh_after,
            last_used: AtomicU64::new(seconds),
            last_tried: AtomicU64::new(seconds),
        }
    }
}

#[derive(Clone)]
pub(super) struct CachedTokens {
    tokens: CountedCache<MintKey, CachedToken>,
    /// Tokens whose key is not active yet.
    waiting: Arc<Mutex<HashMap<MintKey, CachedToken>>>,
}

impl Default for CachedTokens {
    fn default() -> Self {
        Self {
            tokens: CountedCache::new(LIMITS),
            waiting: Arc::default(),
        }
    }
}

impl CachedTokens {
    /// Returns a cached token with at least `min_ttl` left whose signing key is active and not
    /// revoked.
    pub(super) fn get(
        &self,
        key: &MintKey,
        min_ttl: Duration,
        now: Moment,
        gate: &Gate<'_>,
    ) -> Option<Arc<BoundToken>> {
        let entry = self
            .tokens
            .get(key)
            .filter(|entry| gate.may_issue(&entry.token, now))?;
        // A hub may shorten the lifetimes of its tokens. A new token would then miss `min_ttl` too,
        // so a token in the first half of its life is returned regardless.
        let is_young = entry.token.age(now) < entry.token.lifetime() / 2;
        if entry.token.remaining_lifetime(now)? < min_ttl && !is_young {
            return None;
        }
        entry.last_used.store(now.mono.as_secs(), Ordering::Relaxed);
        Some(Arc::clone(&entry.token))
    }

    /// Checks that the key's namespace may cache this token.
    pub(super) fn check_room(&self, key: &MintKey) -> Result<(), Reason> {
        if self.tokens.has_room(key) {
            Ok(())
        } else {
            Err(Reason::TenantLimitReached)
        }
    }

    /// Stores a token until its key is active.
    pub(super) fn hold_until_active(&self, key: MintKey, entry: CachedToken) {
        self.lock_waiting().insert(key, entry);
    }

    /// Returns the `kid` that signed the waiting token of `key`.
    pub(super) fn waiting_kid(&self, key: &MintKey) -> Option<String> {
        self.lock_waiting()
            .get(key)
            .map(|entry| entry.token.kid().to_owned())
    }

    /// Caches the waiting tokens whose keys are active now. Drops those that have expired or whose
    /// keys are no longer published.
    pub(super) fn promote(&self, now: Moment, published: &Published) {
        let mut waiting = self.lock_waiting();
        waiting.retain(|_, entry| {
            published.keys.get(entry.token.kid()).is_some()
                && entry.token.remaining_lifetime(now).is_some()
        });
        let active: Vec<MintKey> = waiting
            .iter()
            .filter(|(_, entry)| published.is_active(entry.token.kid(), now))
            .map(|(key, _)| key.clone())
            .collect();
        let active: Vec<(MintKey, CachedToken)> = active
            .into_iter()
            .filter_map(|key| waiting.remove_entry(&key))
            .collect();
        drop(waiting);
        for (key, entry) in active {
            self.insert(key, entry);
        }
    }

    fn lock_waiting(&self) -> MutexGuard<'_, HashMap<MintKey, CachedToken>> {
        self.waiting.lock()
    }

    /// Caches a token, and replaces an earlier one of the same key.
    pub(super) fn insert(&self, key: MintKey, entry: CachedToken) {
        self.tokens.insert(key, |before| {
            // A renewal keeps the time of last use: only callers keep a token in the cache.
            if let Some(before) = before {
                let last_used = before.last_used.load(Ordering::Relaxed);
                entry.last_used.store(last_used, Ordering::Relaxed);
            }
            entry
        });
    }

    /// Returns the tokens to renew now, and drops expired ones. A token that was not used within
    /// its last lifetime is not renewed.
    pub(super) fn due_renewals(&self, now: Moment) -> Vec<(MintKey, Grant)> {
        let seconds = now.mono.as_secs();
        let mut due = Vec::new();
        for (key, entry) in self.tokens.iter() {
            let idle = seconds.saturating_sub(entry.last_used.load(Ordering::Relaxed));
            let is_retry_due = seconds.saturating_sub(entry.last_tried.load(Ordering::Relaxed))
                >= MIN_RENEWAL_INTERVAL.as_secs();
            let is_old = entry.token.age(now) >= entry.refresh_after;
            if entry.token.remaining_lifetime(now).is_none() {
                self.tokens.remove(&key);
            } else if is_old
                && is_retry_due
                && !self.lock_waiting().contains_key(&*key)
                && idle <= entry.token.lifetime().as_secs()
            {
                entry.last_tried.store(seconds, Ordering::Relaxed);
                due.push((key.as_ref().clone(), entry.grant.clone()));
            }
        }
        due
    }

    pub(super) fn remove(&self, key: &MintKey) {
        self.lock_waiting().remove(key);
        self.tokens.remove(key);
    }

    pub(super) fn len(&self) -> u64 {
        self.tokens.len()
    }
}
