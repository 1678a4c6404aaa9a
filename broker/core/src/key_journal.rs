//! What is recorded of the hub's keys, so that every replica and every restart knows since when
//! each was published, which may still be needed, and which must never come back.
//!
//! The record lies in one Secret that replicas change by compare-and-swap, and in a state
//! directory. Who can write what we publish can be anyone at every target, so it is sealed: bytes
//! without the seal are read for nothing but an alarm.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::issuer::Issuer;
use crate::jwks::PublicKey;

mod seal;
mod stored;

pub use seal::{SealKey, SealKeyError};
pub use stored::{JournalError, MAX_JOURNAL_BYTES};

/// The record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyJournal {
    /// The issuer whose keys they are.
    pub issuer: Issuer,
    /// Raised by every write: a lower one than was seen before is an older record put back.
    pub sequence: u64,
    /// The keys by `kid`.
    pub keys: BTreeMap<String, KeyRecord>,
    /// Keys that must not come back, by `kid`.
    pub revoked: BTreeMap<String, Revocation>,
}

/// What is recorded of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key. Its bytes are pinned to its `kid` for as long as the record holds it.
    pub key: PublicKey,
    /// When every replica could know that it is published: the time of the write that brought it
    /// in.
    pub published_at: Timestamp,
    /// Whether it was in the first set ever published. Such a key is settled: no verifier holds an
    /// older set.
    pub first: bool,
    /// When a replica last saw it at the hub, to the hour.
    pub confirmed_at: Timestamp,
    /// When a replica first verified a token signed with it; none if there was none.
    pub signed_since: Option<Timestamp>,
    /// The latest expiry among the tokens signed with it that were verified here; none if there was
    /// none.
    pub signed_until: Option<Timestamp>,
    /// Since when no endpoint of the hub lists it.
    pub withdrawn_at: Option<Timestamp>,
}

/// A key that was withdrawn by hand, for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Its RFC 7638 thumbprint: it may not come back under another `kid` either.
    pub thumbprint: String,
    /// When.
    pub at: Timestamp,
}

impl KeyJournal {
    /// A record without keys.
    pub fn empty(issuer: Issuer) -> Self {
        Self {
            issuer,
            sequence: 0,
            keys: BTreeMap::new(),
            revoked: BTreeMap::new(),
        }
    }

    /// The record with `kid` withdrawn for ever; nothing if neither a key nor a revocation of that
    /// name is there.
    #[must_use]
    pub fn with_revoked(&self, kid: &str, at: Timestamp) -> Option<Self> {
        let mut journal = self.clone();
        if !journal.revoked.contains_key(kid) {
            let record = journal.keys.remove(kid)?;
            journal.revoked.insert(
                kid.to_owned(),
                Revocation {
                    thumbprint: record.key.thumbprint(),
                    at,
                },
            );
        }
        journal.keys.remove(kid);
        journal.sequence = journal.sequence.saturating_add(1);
        Some(journal)
    }
}

#[cfg(test)]
mod tests;
