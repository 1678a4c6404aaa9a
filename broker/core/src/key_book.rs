//! One process's view of the hub's keys: what it saw itself, what the shared record says, and what
//! follows for publishing and for issuing.
//!
//! Seen at the hub, a key becomes a candidate; seen again, or vouched for by a token that the hub
//! just minted for us, it is published; published long enough, it is settled, and only then do
//! tokens that it signed leave; withdrawn by the hub, it is held while a token that it signed may
//! live; then it is retired. Revoked, it goes at once and never comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::issuer::Issuer;
use crate::jwks::{PublicKey, PublicKeySet};
use crate::key_journal::{KeyRecord, Revocation};
use crate::lifetime;
use crate::moment::Moment;

mod adopt;
mod event;
mod observe;
mod write;

pub use adopt::Origin;
pub use event::KeyEvent;
pub use observe::Reading;
pub use write::Draft;

/// How old the last reading of the shared record may be for new tokens to be minted.
pub const RECORD_PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Clone, Debug)]
pub struct KeyBook {
    issuer: Issuer,
    /// How long a key must have been published before tokens that it signed leave.
    settle: Duration,
    /// Whether other replicas and restarts share a record with this process.
    shared: bool,
    entries: BTreeMap<String, Entry>,
    revoked: BTreeMap<String, Revocation>,
    candidates: BTreeMap<(String, String), Candidate>,
    /// What the hub listed at the last look, at any endpoint, candidates included.
    listed: BTreeMap<String, PublicKey>,
    /// When that was, on the monotonic clock.
    listed_at: Duration,
    /// Keys that this process retired and the shared record may still hold, each with the time.
    retired: BTreeMap<String, Timestamp>,
    sequence: u64,
    /// Whether the shared record was ever read and believed, or found absent: before, nobody knows
    /// what is revoked.
    knows_record: bool,
    /// When the shared record was last read.
    read_at: Option<Moment>,
    /// Whether the shared record is known to have been absent, so that the first set seen is the
    /// first one published.
    nothing_before: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    record: KeyRecord,
    /// Whether it was in the first set that this process saw.
    in_first_set: bool,
    /// How old the publication was at `since`, so that a wall clock that jumps later settles
    /// nothing.
    age: Duration,
    /// On the monotonic clock.
    since: Duration,
    /// Whether this process saw it at the hub itself.
    confirmed: bool,
    /// Whether the shared record holds it.
    recorded: bool,
    /// Whether it came from the state directory.
    restored: bool,
    /// Since when complete readings lack it, on the monotonic clock.
    missing_since: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Candidate {
    key: PublicKey,
    since: Duration,
}

/// Whether tokens of a key may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// They may.
    Settled,
    /// They may after this time, if all goes on as it does.
    After(Duration),
    /// The key is not published.
    Unpublished,
    /// The key was revoked.
    Revoked,
}

impl KeyBook {
    /// A book without keys. `settle` is 30 s and the soak; without a shared record this process is
    /// alone.
    pub fn new(issuer: Issuer, settle: Duration, shared: bool) -> Self {
        Self {
            issuer,
            settle,
            shared,
            entries: BTreeMap::new(),
            revoked: BTreeMap::new(),
            candidates: BTreeMap::new(),
            listed: BTreeMap::new(),
            listed_at: Duration::ZERO,
            retired: BTreeMap::new(),
            sequence: 0,
            knows_record: !shared,
            read_at: None,
            nothing_before: !shared,
        }
    }

    /// The issuer whose keys they are.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// The keys that targets get; nothing as long as none is known. The set is empty only where all
    /// that there was is revoked.
    pub fn served(&self, now: Moment) -> Option<PublicKeySet> {
        // Before the record was read it is not known what is revoked.
        let known = |entry: &&Entry| self.knows_record || entry.restored;
        let served = self
            .entries
            .values()
            .filter(|entry| entry.is_served(now.wall))
            .filter(known);
        match PublicKeySet::from_keys(served.map(|entry| entry.record.key.clone())) {
            Ok(set) => Some(set),
            Err(_) if self.revoked.is_empty() || !self.entries.is_empty() => None,
            Err(_) => Some(PublicKeySet::revoked_whole()),
        }
    }

    /// The keys by which callers are known: those that the hub was seen to have by this process
    /// itself.
    pub fn authenticating(&self, now: Moment) -> PublicKeySet {
        let confirmed = self
            .entries
            .values()
            .filter(|entry| entry.confirmed && entry.is_served(now.wall));
        let confirmed = confirmed.map(|entry| entry.record.key.clone());
        // A candidate may be known already, as a token's signer and no more: the hub has the last
        // word on every caller.
        let listed = self
            .listed
            .values()
            .filter(|key| !self.entries.contains_key(key.kid()))
            .cloned();
        PublicKeySet::from_keys(confirmed.chain(listed))
            .unwrap_or_else(|_| PublicKeySet::revoked_whole())
    }

    /// Whether tokens signed by `kid` may leave.
    pub fn settling(&self, kid: &str, now: Moment) -> Settling {
        if self.revoked.contains_key(kid) {
            return Settling::Revoked;
        }
        match self.entries.get(kid) {
            Some(entry) if entry.is_served(now.wall) => entry.settling(self.settle, now),
            _ => Settling::Unpublished,
        }
    }

    /// Whether the shared record was read lately enough to mint.
    pub fn is_current(&self, now: Moment) -> bool {
        // By both clocks: a machine that slept has missed what others wrote.
        let recent = |read: Moment| {
            let wall = Duration::try_from(now.wall.duration_since(read.wall)).unwrap_or_default();
            now.mono.saturating_sub(read.mono).max(wall) <= RECORD_PATIENCE
        };
        !self.shared || self.read_at.is_some_and(recent)
    }

    /// Whether the shared record is known to hold `kid`.
    pub fn is_recorded(&self, kid: &str) -> bool {
        self.entries.get(kid).is_some_and(|entry| entry.recorded)
    }

    /// Whether a key waits for the shared record to take it in.
    pub fn has_unrecorded(&self) -> bool {
        self.entries.values().any(|entry| !entry.recorded)
    }

    /// Notes that a token signed by `kid` was verified at `seen` and expires at `expires`.
    pub fn signed(&mut self, kid: &str, seen: Timestamp, expires: Timestamp) {
        if let Some(entry) = self.entries.get_mut(kid) {
            entry.record.signed_since.get_or_insert(seen);
            entry.record.signed_until = entry.record.signed_until.max(Some(expires));
        }
    }

    /// The `kid` of every revoked key.
    pub fn revoked(&self) -> impl Iterator<Item = &str> {
        self.revoked.keys().map(String::as_str)
    }

    /// How many keys are served that the hub has not shown to this process.
    pub fn unconfirmed(&self, now: Moment) -> usize {
        self.entries
            .values()
            .filter(|entry| !entry.confirmed && entry.is_served(now.wall))
            .count()
    }

    /// What is known of each key, for people and metrics.
    pub fn records(&self) -> impl Iterator<Item = &KeyRecord> {
        self.entries.values().map(|entry| &entry.record)
    }

    /// Whether the hub lists it, by a look that was not long ago.
    fn is_listed(&self, kid: &str, now: Moment) -> bool {
        self.listed.contains_key(kid) && now.mono.saturating_sub(self.listed_at) < observe::ABSENCE
    }

    fn is_revoked(&self, key: &PublicKey) -> bool {
        // The thumbprint is worked out only where something was revoked.
        !self.revoked.is_empty()
            && (self.revoked.contains_key(key.kid())
                || self
                    .revoked
                    .values()
                    .any(|revoked| revoked.thumbprint == key.thumbprint()))
    }

    fn insert(&mut self, key: PublicKey, in_first_set: bool, now: Moment) {
        let first =
            in_first_set && self.nothing_before && self.sequence == 0 && self.revoked.is_empty();
        self.retired.remove(key.kid());
        let record = KeyRecord {
            published_at: now.wall,
            first,
            confirmed_at: now.wall,
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
    /// A withdrawn key is held while a token that it signed may live; one that this process never
    /// saw at the hub is kept no longer than a token lives.
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

    fn settling(&self, settle: Duration, now: Moment) -> Settling {
        if !self.recorded {
            return Settling::After(settle);
        }
        if self.record.first {
            return Settling::Settled;
        }
        let age = self.age.saturating_add(now.mono.saturating_sub(self.since));
        let left = settle.saturating_sub(age);
        if left.is_zero() {
            Settling::Settled
        } else {
            Settling::After(left)
        }
    }
}

#[cfg(test)]
mod tests;
