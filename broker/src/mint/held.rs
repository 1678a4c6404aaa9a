//! The tokens that are held: bounded, each with its own deadline, each namespace with its own share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keyferry_core::authorise::Grant;
use keyferry_core::bound_token::BoundToken;
use keyferry_core::lifetime;
use keyferry_core::moment::Moment;
use keyferry_core::name::Namespace;
use keyferry_core::reason::Reason;
use moka::notification::RemovalCause;
use moka::sync::Cache;

use super::MintKey;

/// Tokens held at most.
const CAPACITY: u64 = 50_000;
/// Tokens held for one namespace at most: one tenant must not push out the others'.
const PER_NAMESPACE: usize = 1_000;
/// How long after a failed renewal the next one is tried.
const RETRY: Duration = Duration::from_secs(10);

struct Held {
    token: Arc<BoundToken>,
    grant: Grant,
    refresh_after: Duration,
    last_used: AtomicU64,
    last_tried: AtomicU64,
}

/// See the module.
#[derive(Clone)]
pub(super) struct HeldTokens {
    tokens: Cache<MintKey, Arc<Held>>,
    per_namespace: Arc<Mutex<HashMap<Namespace, usize>>>,
}

impl Default for HeldTokens {
    fn default() -> HeldTokens {
        let per_namespace: Arc<Mutex<HashMap<Namespace, usize>>> = Arc::default();
        let counts = Arc::clone(&per_namespace);
        let listener = move |key: Arc<MintKey>, _: Arc<Held>, cause: RemovalCause| {
            if cause != RemovalCause::Replaced {
                forget_one(&counts, &key.identity.account.namespace);
            }
        };
        let tokens = Cache::builder().max_capacity(CAPACITY).time_to_live(lifetime::MAX).eviction_listener(listener).build();
        HeldTokens { tokens, per_namespace }
    }
}

impl HeldTokens {
    /// A token with at least `min_ttl` to use.
    pub(super) fn get(&self, key: &MintKey, min_ttl: Duration, now: Moment) -> Option<Arc<BoundToken>> {
        let held = self.tokens.get(key)?;
        // A hub may shorten what it mints. Then a new token would not live as long as asked for either, and is not asked for.
        let young = held.token.age(now) < held.token.lifetime() / 2;
        if held.token.usable(now)? < min_ttl && !young {
            return None;
        }
        held.last_used.store(now.mono.as_secs(), Ordering::Relaxed);
        Some(Arc::clone(&held.token))
    }

    /// Whether one more token can be held for the key's namespace.
    pub(super) fn check_room(&self, key: &MintKey) -> Result<(), Reason> {
        // Looked up before the lock is taken: the cache may call the eviction listener, which takes it too.
        let held = self.tokens.contains_key(key);
        let counts = self.per_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        let full = counts.get(&key.identity.account.namespace).is_some_and(|count| *count >= PER_NAMESPACE);
        if full && !held { Err(Reason::TenantLimitReached) } else { Ok(()) }
    }

    /// Holds a token, in the place of an earlier one of the same key.
    pub(super) fn insert(&self, key: MintKey, token: Arc<BoundToken>, grant: Grant, jitter: f64, now: Moment) {
        if !self.tokens.contains_key(&key) {
            let mut counts = self.per_namespace.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(key.identity.account.namespace.clone()).or_default() += 1;
        }
        let refresh_after = lifetime::refresh_after(token.lifetime(), jitter);
        let seconds = now.mono.as_secs();
        // A renewal inherits the last use: only callers keep a token alive.
        let last_used = self.tokens.get(&key).map_or(seconds, |before| before.last_used.load(Ordering::Relaxed));
        let held = Held { token, grant, refresh_after, last_used: AtomicU64::new(last_used), last_tried: AtomicU64::new(seconds) };
        self.tokens.insert(key, Arc::new(held));
    }

    /// What is to be renewed now. What has ended, or was not used within its last lifetime, is let go of.
    pub(super) fn due(&self, now: Moment) -> Vec<(MintKey, Grant)> {
        let seconds = now.mono.as_secs();
        let mut due = Vec::new();
        for (key, held) in &self.tokens {
            let idle = seconds.saturating_sub(held.last_used.load(Ordering::Relaxed));
            let waited = seconds.saturating_sub(held.last_tried.load(Ordering::Relaxed)) >= RETRY.as_secs();
            let old = held.token.age(now) >= held.refresh_after;
            if held.token.usable(now).is_none() {
                self.remove(&key);
            } else if old && waited && idle <= held.token.lifetime().as_secs() {
                held.last_tried.store(seconds, Ordering::Relaxed);
                due.push((key.as_ref().clone(), held.grant.clone()));
            }
        }
        due
    }

    pub(super) fn remove(&self, key: &MintKey) {
        self.tokens.invalidate(key);
    }

    pub(super) fn len(&self) -> u64 {
        self.tokens.entry_count()
    }
}

fn forget_one(counts: &Mutex<HashMap<Namespace, usize>>, namespace: &Namespace) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = counts.get_mut(namespace) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(namespace);
        }
    }
}
