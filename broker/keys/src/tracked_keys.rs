//! The hub's signing keys as one process sees them.
//!
//! It combines what this process saw at the hub with the shared key journal. From both it decides
//! which keys to publish and which keys' tokens to issue.
//!
//! A key seen once at the hub is a candidate. It is published when the hub still lists it at a
//! later reading, or when the hub has just signed a token for us with it. The first set that this
//! process sees is published at once. After the activation delay a key is active, and only then are
//! tokens that it signed issued. When the hub stops listing a key, the key is withdrawn, but stays
//! published while a token that it signed may be valid. After that it is retired. A revoked key is
//! removed at once and never comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;
use keyferry_api::lifetime;
use keyferry_api::moment::Moment;

use crate::jwks::{PublicKey, PublicKeySet};
use crate::key_journal::{KeyRecord, Revocation};

mod adopt;
mod event;
mod observe;
mod write;

pub use adopt::Origin;
pub use event::KeyEvent;
pub use observe::Reading;
pub use write::Draft;

/// Maximum age of the last reading of the shared key journal at which new tokens are minted.
pub const RECORD_PATIENCE: Duration = Duration::from_secs(30);

/// Tracks which hub keys this process publishes and which of them are active.
#[derive(Clone, Debug)]
pub struct TrackedKeys {
    issuer: Issuer,
    /// How long a key must have been published before tokens that it signed are issued (the
    /// activation delay).
    activation_delay: Duration,
    /// Whether other replicas and restarts share a key journal with this process.
    shared: bool,
    /// When this process began to track keys.
    begun: Moment,
    entries: BTreeMap<String, Entry>,
    revoked: BTreeMap<String, Revocation>,
    candidates: BTreeMap<(String, String), Candidate>,
    /// The keys that the hub listed at the last reading, at any endpoint, candidates included.
    listed: BTreeMap<String, PublicKey>,
    /// When `listed` was read, on the monotonic clock.
    listed_at: Duration,
    /// Keys that this process retired and the shared journal may still contain, each with the time
    /// of retirement.
    retired: BTreeMap<String, Timestamp>,
    sequence: u64,
    /// Whether the shared journal was ever read and accepted, or found absent. Until then it is
    /// unknown which keys are revoked.
    knows_record: bool,
    /// When the shared journal was last read.
    read_at: Option<Moment>,
    /// Since when a shared journal that was there is gone or not believed, on the monotonic clock.
    lost_since: Option<Duration>,
    /// Whether the shared journal is known to have been absent, so that the first set seen is the
    /// first one published.
    nothing_before: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    record: KeyRecord,
    /// Whether the key was in the first set that this process saw.
    in_first_set: bool,
    /// How long the key had been published at `since`. Its age grows by the monotonic clock from
    /// there, so a later jump of the wall clock cannot activate the key.
    age: Duration,
    /// When `age` was taken, on the monotonic clock.
    since: Duration,
    /// Whether this process itself saw the key at the hub.
    confirmed: bool,
    /// Whether the shared journal contains the key.
    recorded: bool,
    /// Whether the key was restored from the state directory.
    restored: bool,
    /// Since when complete readings have lacked the key, on the monotonic clock.
    missing_since: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Candidate {
    key: PublicKey,
    since: Duration,
}

/// Whether tokens signed by a key may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyActivation {
    /// They may: the key is active.
    Active,
    /// They may after this time, if nothing else changes.
    After(Duration),
    /// The key is not published.
    Unpublished,
    /// The key was revoked.
    Revoked,
}

/// When the shared journal was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalReading {
    /// No other replica shares a journal with this process.
    NotShared,
    /// It was not read yet.
    Never,
    /// At this time.
    At(Moment),
}

impl JournalReading {
    /// Whether what others write is known up to `limit` before `now`.
    pub fn is_within(self, limit: Duration, now: Moment) -> bool {
        match self {
            Self::NotShared => true,
            Self::Never => false,
            Self::At(read) => {
                // The larger age of both clocks: a machine that slept has missed what others wrote.
                let wall = now.wall.duration_since(read.wall);
                let wall = Duration::try_from(wall).unwrap_or_default();
                now.mono.saturating_sub(read.mono).max(wall) <= limit
            }
        }
    }
}

impl TrackedKeys {
    /// Starts without any key.
    ///
    /// `activation_delay` is how long a key must have been published before it is active
    /// ([`keyferry_api::lifetime::activation_delay`]). If `shared` is false, no other replica shares
    /// a journal with this process. `begun` is the present time.
    pub fn new(issuer: Issuer, activation_delay: Duration, shared: bool, begun: Moment) -> Self {
        Self {
            issuer,
            activation_delay,
            shared,
            begun,
            entries: BTreeMap::new(),
            revoked: BTreeMap::new(),
            candidates: BTreeMap::new(),
            listed: BTreeMap::new(),
            listed_at: Duration::ZERO,
            retired: BTreeMap::new(),
            sequence: 0,
            knows_record: !shared,
            read_at: None,
            lost_since: None,
            nothing_before: !shared,
        }
    }

    /// The issuer of the tracked keys.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// The keys to publish to targets; `None` while none is known.
    ///
    /// The set is empty only if every known key was revoked.
    pub fn published_keys(&self, now: Moment) -> Option<PublicKeySet> {
        // Until the journal was read, it is unknown which keys are revoked. Only keys from the
        // state directory are published then.
        let known = |entry: &&Entry| self.knows_record || entry.restored;
        let ends_by = self.earlier_clock(now);
        let served = self
            .entries
            .values()
            .filter(|entry| entry.is_served(ends_by))
            .filter(known);
        match PublicKeySet::from_keys(served.map(|entry| entry.record.key.clone())) {
            Ok(set) => Some(set),
            Err(_) if self.revoked.is_empty() || !self.entries.is_empty() => None,
            Err(_) => Some(PublicKeySet::revoked_whole()),
        }
    }

    /// The keys that verify callers' tokens: only those that this process itself saw at the hub.
    pub fn authenticating_keys(&self, now: Moment) -> PublicKeySet {
        let ends_by = self.earlier_clock(now);
        let confirmed = self
            .entries
            .values()
            .filter(|entry| entry.confirmed && entry.is_served(ends_by));
        let confirmed = confirmed.map(|entry| entry.record.key.clone());
        // A candidate may verify a caller's signature too, because the hub makes the final decision
        // on every caller.
        let listed = self
            .listed
            .values()
            .filter(|key| !self.entries.contains_key(key.kid()))
            .cloned();
        PublicKeySet::from_keys(confirmed.chain(listed))
            .unwrap_or_else(|_| PublicKeySet::revoked_whole())
    }

    /// Whether tokens signed by `kid` may be issued.
    pub fn activation(&self, kid: &str, now: Moment) -> KeyActivation {
        if self.revoked.contains_key(kid) {
            return KeyActivation::Revoked;
        }
        let ends_by = self.earlier_clock(now);
        match self.entries.get(kid) {
            Some(entry) if entry.is_served(ends_by) => entry.activation(self.activation_delay, now),
            _ => KeyActivation::Unpublished,
        }
    }

    /// When the shared journal was last read.
    pub fn journal_reading(&self) -> JournalReading {
        if self.shared {
            self.read_at
                .map_or(JournalReading::Never, JournalReading::At)
        } else {
            JournalReading::NotShared
        }
    }

    /// Whether the shared journal was read recently enough to mint.
    pub fn is_current(&self, now: Moment) -> bool {
        self.journal_reading().is_within(RECORD_PATIENCE, now)
    }

    /// Whether the shared journal is known to contain `kid`.
    pub fn is_recorded(&self, kid: &str) -> bool {
        self.entries.get(kid).is_some_and(|entry| entry.recorded)
    }

    /// Whether any key is not in the shared journal yet.
    pub fn has_unrecorded(&self) -> bool {
        self.entries.values().any(|entry| !entry.recorded)
    }

    /// Notes that a token signed by `kid` was verified at `seen` and expires at `expires`.
    pub fn note_signature(&mut self, kid: &str, seen: Timestamp, expires: Timestamp) {
        if let Some(entry) = self.entries.get_mut(kid) {
            entry.record.signed_since.get_or_insert(seen);
            entry.record.signed_until = entry.record.signed_until.max(Some(expires));
        }
    }

    /// The time by which keys end and ages are counted. A wall clock that jumps ahead must not end a
    /// key whose tokens are valid, or make a new one old.
    fn earlier_clock(&self, now: Moment) -> Timestamp {
        now.wall.min(self.steady_clock(now))
    }

    /// The time that is recorded, and by which records of others are in the future. A wall clock that
    /// jumps back must not date a new key to before it was published.
    fn later_clock(&self, now: Moment) -> Timestamp {
        now.wall.max(self.steady_clock(now))
    }

    /// What the wall clock would show if it had not jumped since the start. It lacks the time that
    /// the machine slept.
    fn steady_clock(&self, now: Moment) -> Timestamp {
        let passed = now.mono.saturating_sub(self.begun.mono);
        let steady = self.begun.wall.saturating_add(passed);
        steady.unwrap_or(Timestamp::MAX)
    }

    /// The `kid` of every revoked key.
    pub fn revoked_kids(&self) -> impl Iterator<Item = &str> {
        self.revoked.keys().map(String::as_str)
    }

    /// How many published keys this process has not seen at the hub itself.
    pub fn unconfirmed_keys(&self, now: Moment) -> usize {
        let ends_by = self.earlier_clock(now);
        self.entries
            .values()
            .filter(|entry| !entry.confirmed && entry.is_served(ends_by))
            .count()
    }

    /// The journal record of each key, for display and metrics.
    pub fn records(&self) -> impl Iterator<Item = &KeyRecord> {
        self.entries.values().map(|entry| &entry.record)
    }

    /// Whether the hub listed the key at a recent reading.
    fn is_listed(&self, kid: &str, now: Moment) -> bool {
        self.listed.contains_key(kid)
            && now.mono.saturating_sub(self.listed_at) < observe::ABSENCE_BEFORE_WITHDRAWAL
    }

    fn is_revoked(&self, key: &PublicKey) -> bool {
        // Computes the thumbprint only if any key was revoked.
        !self.revoked.is_empty()
            && (self.revoked.contains_key(key.kid())
                || self
                    .revoked
                    .values()
                    .any(|revoked| revoked.thumbprint == key.thumbprint()))
    }

    fn insert_key(&mut self, key: PublicKey, in_first_set: bool, now: Moment) {
        let first =
            in_first_set && self.nothing_before && self.sequence == 0 && self.revoked.is_empty();
        self.retired.remove(key.kid());
        let record = KeyRecord {
            published_at: self.later_clock(now),
            first,
            confirmed_at: self.later_clock(now),
            signed_since: None,
            signed_until: None,
            withdrawn_at: None,
            key: key.clone(),
        };
        let entry = Entry {
            record,
            in_first_set,
            age: Duration::ZERO,
            since: now.mono,
            confirmed: true,
            recorded: !self.shared,
            restored: false,
            missing_since: None,
        };
        self.entries.insert(key.kid().to_owned(), entry);
        self.candidates.retain(|(_, kid), _| kid != key.kid());
    }
}

impl Entry {
    /// Whether the key is published at `now`.
    ///
    /// A withdrawn key stays published while a token that it signed may be valid. A key that this
    /// process never saw at the hub stays for the longest token lifetime after its last
    /// confirmation.
    fn is_served(&self, now: Timestamp) -> bool {
        let longest = |withdrawn: Timestamp| {
            withdrawn
                .saturating_add(lifetime::MAX)
                .unwrap_or(Timestamp::MAX)
        };
        let held = match (self.record.withdrawn_at, self.record.signed_until) {
            (None, _) => true,
            (Some(withdrawn), Some(until)) => now < until.min(longest(withdrawn)),
            (Some(_), None) => false,
        };
        let newest = self
            .record
            .confirmed_at
            .saturating_add(lifetime::MAX)
            .unwrap_or(Timestamp::MAX);
        held && (self.confirmed || now < newest)
    }

    fn activation(&self, activation_delay: Duration, now: Moment) -> KeyActivation {
        if !self.recorded {
            return KeyActivation::After(activation_delay);
        }
        if self.record.first {
            return KeyActivation::Active;
        }
        let age = self.age.saturating_add(now.mono.saturating_sub(self.since));
        let left = activation_delay.saturating_sub(age);
        if left.is_zero() {
            KeyActivation::Active
        } else {
            KeyActivation::After(left)
        }
    }
}

#[cfg(test)]
mod tests;
