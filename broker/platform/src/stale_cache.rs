//! A bounded cache of what a source says of a key: fresh, stale or refused.
//!
//! A fresh value is used at once. A stale one is used only while its source does not answer. A
//! refusal replaces the value before it, so an outage after a refusal revives nothing. Concurrent
//! fetches of one key share one call.
//!
//! An entry ends by the injected clock, and by whichever of its two clocks is first. The map's own
//! clock only frees memory.

use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::{Deadline, Moment};
use moka::sync::Cache;

use crate::clock::Clock;
use crate::single_flight::{SharedCallLost, SingleFlight};

/// How long an entry may stay in memory after its last deadline.
const RETENTION_AFTER_EXPIRY: Duration = Duration::from_secs(5);

/// How long the answers of a source are used.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// How long a value is used without asking again.
    pub fresh: Duration,
    /// How long a value may be used while the source does not answer.
    pub stale: Duration,
    /// How long a refusal is used without asking again.
    pub refused: Duration,
}

impl Lifetimes {
    /// The lifetimes of a cache that has refusals alone.
    pub fn of_refusals(refused: Duration) -> Self {
        Self {
            fresh: Duration::ZERO,
            stale: Duration::ZERO,
            refused,
        }
    }
}

/// What is cached of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<V, R = Infallible> {
    /// A value to use at once.
    Fresh(V),
    /// A value to use only while the source does not answer.
    Stale(V),
    /// A refusal to use at once.
    Refused(R),
    /// Nothing that may still be used.
    Unknown,
}

impl<V, R> Lookup<V, R> {
    /// The value, fresh or stale.
    pub fn value(self) -> Option<V> {
        match self {
            Self::Fresh(value) | Self::Stale(value) => Some(value),
            Self::Refused(_) | Self::Unknown => None,
        }
    }
}

/// Why a fetch brought no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError<R, F> {
    /// The source refused.
    Refused(R),
    /// The source gave no answer.
    Failed(F),
    /// The task of the fetch panicked or was cancelled.
    Lost,
}

impl<R, F> From<SharedCallLost> for FetchError<R, F> {
    fn from(_: SharedCallLost) -> Self {
        Self::Lost
    }
}

/// A value, and whether it is an earlier one because the source did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served<V> {
    /// The value.
    pub value: V,
    /// Whether the source did not answer, so that an earlier value is used.
    pub is_stale: bool,
}

#[derive(Clone)]
enum Entry<V, R> {
    Accepted {
        value: V,
        fresh: Deadline,
        stale: Deadline,
    },
    Refused {
        refusal: R,
        until: Deadline,
    },
}

/// A cache from `K` to values `V` or refusals `R` of a source whose calls can fail with `F`. A clone
/// shares the entries and the calls of its original.
#[derive(Clone)]
pub struct StaleCache<K, V, R = Infallible, F = Infallible> {
    clock: Arc<dyn Clock>,
    lifetimes: Lifetimes,
    entries: Cache<K, Entry<V, R>>,
    fetches: SingleFlight<K, Result<V, FetchError<R, F>>>,
}

impl<K, V, R, F> StaleCache<K, V, R, F>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    R: Clone + Send + Sync + 'static,
    F: Clone + Send + Sync + 'static,
{
    /// Creates an empty cache of at most `capacity` entries.
    pub fn new(lifetimes: Lifetimes, capacity: u64, clock: Arc<dyn Clock>) -> Self {
        let longest = lifetimes.fresh.max(lifetimes.stale).max(lifetimes.refused);
        Self {
            clock,
            lifetimes,
            entries: Cache::builder()
                .max_capacity(capacity)
                .time_to_live(longest.saturating_add(RETENTION_AFTER_EXPIRY))
                .build(),
            fetches: SingleFlight::default(),
        }
    }

    /// Returns what is cached of a key now.
    pub fn lookup(&self, key: &K) -> Lookup<V, R> {
        let Some(entry) = self.entries.get(key) else {
            return Lookup::Unknown;
        };
        let now = self.clock.now();
        match entry {
            Entry::Accepted { value, fresh, .. } if !fresh.passed(now) => Lookup::Fresh(value),
            Entry::Accepted { value, stale, .. } if !stale.passed(now) => Lookup::Stale(value),
            Entry::Refused { refusal, until } if !until.passed(now) => Lookup::Refused(refusal),
            Entry::Accepted { .. } | Entry::Refused { .. } => Lookup::Unknown,
        }
    }

    /// Returns the last refusal, however old, as long as it is in memory: for a caller to whom an old
    /// refusal is safer than none.
    pub fn last_refusal(&self, key: &K) -> Option<R> {
        match self.entries.get(key)? {
            Entry::Refused { refusal, .. } => Some(refusal),
            Entry::Accepted { .. } => None,
        }
    }

    /// Caches a value, whose lifetimes count from `from` and end at `expiry` at the latest.
    pub fn accept(&self, key: K, value: V, from: Moment, expiry: Option<Deadline>) {
        let until = |lifetime| {
            let end = Deadline::after(lifetime, from);
            match expiry {
                Some(expiry) if expiry.left(from) < end.left(from) => expiry,
                _ => end,
            }
        };
        let entry = Entry::Accepted {
            value,
            fresh: until(self.lifetimes.fresh),
            stale: until(self.lifetimes.stale),
        };
        self.entries.insert(key, entry);
    }

    /// Caches a refusal, whose lifetime counts from `from`. It ends the value before it.
    pub fn refuse(&self, key: K, refusal: R, from: Moment) {
        let until = Deadline::after(self.lifetimes.refused, from);
        self.entries.insert(key, Entry::Refused { refusal, until });
    }

    /// Returns the value or refusal that may be used at once; without one, waits for a fetch.
    ///
    /// The fetch caches its answer by [`Self::accept`] or [`Self::refuse`]; any other answer is not
    /// cached. It runs in its own task, so a caller that hangs up does not stop it.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn fetch<C>(&self, key: &K, call: impl FnOnce() -> C) -> Result<V, FetchError<R, F>>
    where
        C: Future<Output = Result<V, FetchError<R, F>>> + Send + 'static,
    {
        if let Some(answer) = self.current_answer(key) {
            return answer;
        }
        let checked_call = || {
            let (this, key, call) = (self.clone(), key.clone(), call());
            async move {
                // Another fetch may have ended between the lookup and the start of this one.
                match this.current_answer(&key) {
                    Some(answer) => answer,
                    None => call.await,
                }
            }
        };
        self.refresh(key, checked_call).await
    }

    /// Like [`Self::fetch`], and uses a stale value after a failure for which `allows_stale` holds.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn fetch_or_stale<C>(
        &self,
        key: &K,
        allows_stale: impl FnOnce(&F) -> bool,
        call: impl FnOnce() -> C,
    ) -> Result<Served<V>, FetchError<R, F>>
    where
        C: Future<Output = Result<V, FetchError<R, F>>> + Send + 'static,
    {
        let (value, is_stale) = match self.fetch(key, call).await {
            Ok(value) => (value, false),
            Err(FetchError::Failed(failure)) if allows_stale(&failure) => {
                let earlier = self.lookup(key).value();
                (earlier.ok_or(FetchError::Failed(failure))?, true)
            }
            Err(error) => return Err(error),
        };
        Ok(Served { value, is_stale })
    }

    /// Waits for a fetch even if a fresh value is cached.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn refresh<C>(&self, key: &K, call: impl FnOnce() -> C) -> Result<V, FetchError<R, F>>
    where
        C: Future<Output = Result<V, FetchError<R, F>>> + Send + 'static,
    {
        self.fetches.join(key.clone(), call).await?
    }

    /// Whether any fetch is in progress.
    pub fn is_fetching(&self) -> bool {
        !self.fetches.is_empty()
    }

    fn current_answer(&self, key: &K) -> Option<Result<V, FetchError<R, F>>> {
        match self.lookup(key) {
            Lookup::Fresh(value) => Some(Ok(value)),
            Lookup::Refused(refusal) => Some(Err(FetchError::Refused(refusal))),
            Lookup::Stale(_) | Lookup::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests;
