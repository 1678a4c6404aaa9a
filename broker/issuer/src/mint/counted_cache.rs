//! A bounded cache that counts its entries by namespace, so that a tenant cannot evict the entries of
//! others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::name::Namespace;
use moka::notification::RemovalCause;
use moka::sync::Cache;
use parking_lot::Mutex;

/// A key that belongs to a namespace.
pub(super) trait OfNamespace: Eq + Hash + Send + Sync + 'static {
    /// Returns the namespace that its entry counts for.
    fn namespace(&self) -> &Namespace;
}

/// How many entries a cache may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    /// In all.
    pub(super) all: u64,
    /// Of one namespace.
    pub(super) per_namespace: usize,
    /// How long an entry may stay.
    pub(super) lifetime: Duration,
}

/// The cache. A clone shares the entries of its original.
pub(super) struct CountedCache<K, V> {
    entries: Cache<K, Arc<V>>,
    per_namespace: usize,
    counts: Arc<Counts>,
    /// Held while an entry is added or removed: whether it was there decides whether it counts. It is
    /// not the lock of the counts, which the cache takes when it evicts an entry meanwhile.
    changes: Arc<Mutex<()>>,
}

/// The number of entries of each namespace that has any.
#[derive(Default)]
struct Counts(Mutex<HashMap<Namespace, usize>>);

impl<K, V> Clone for CountedCache<K, V> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            per_namespace: self.per_namespace,
            counts: Arc::clone(&self.counts),
            changes: Arc::clone(&self.changes),
        }
    }
}

impl<K: OfNamespace, V: Send + Sync + 'static> CountedCache<K, V> {
    /// Creates an empty cache.
    pub(super) fn new(limits: CacheLimits) -> Self {
        let counts: Arc<Counts> = Arc::default();
        let counts_of_removed = Arc::clone(&counts);
        let listener = move |key: Arc<K>, _: Arc<V>, cause: RemovalCause| {
            if cause != RemovalCause::Replaced {
                counts_of_removed.subtract_one(key.namespace());
            }
        };
        let entries = Cache::builder()
            .max_capacity(limits.all)
            .time_to_live(limits.lifetime)
            .eviction_listener(listener)
            .build();
        Self {
            entries,
            per_namespace: limits.per_namespace,
            counts,
            changes: Arc::default(),
        }
    }

    /// Returns the entry of `key`.
    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.entries.get(key)
    }

    /// Whether the key's namespace may have this entry: it has it already, or has room for one more.
    pub(super) fn has_room(&self, key: &K) -> bool {
        self.entries.contains_key(key) || self.count_of(key.namespace()) < self.per_namespace
    }

    /// Adds what `value` makes of the entry before it.
    pub(super) fn insert(&self, key: K, value: impl FnOnce(Option<Arc<V>>) -> V) {
        let _change = self.changes.lock();
        let before = self.entries.get(&key);
        if before.is_none() {
            self.counts.add_one(key.namespace());
        }
        self.entries.insert(key, Arc::new(value(before)));
    }

    /// Removes the entry of `key`.
    pub(super) fn remove(&self, key: &K) {
        let _change = self.changes.lock();
        self.entries.invalidate(key);
    }

    /// Visits the entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Arc<K>, Arc<V>)> {
        self.entries.iter()
    }

    /// Returns about how many entries there are.
    pub(super) fn len(&self) -> u64 {
        self.entries.entry_count()
    }

    /// Returns how many entries count for a namespace.
    pub(super) fn count_of(&self, namespace: &Namespace) -> usize {
        self.counts.0.lock().get(namespace).copied().unwrap_or(0)
    }
}

impl Counts {
    fn add_one(&self, namespace: &Namespace) {
        *self.0.lock().entry(namespace.clone()).or_default() += 1;
    }

    fn subtract_one(&self, namespace: &Namespace) {
        let mut counts = self.0.lock();
        match counts.get_mut(namespace) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(namespace)),
        }
    }
}
