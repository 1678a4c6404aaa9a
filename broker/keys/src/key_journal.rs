//! The key journal: what every replica and every restart must know about the hub's keys.
//!
//! It records when each key was published, which keys may still be needed, and which must never
//! come back.
//!
//! The journal is stored in one Secret, which replicas change by compare-and-swap, and in a state
//! directory. Write access to the published keys would allow an attacker to be any user at every
//! target. The journal is therefore sealed, and one without a valid seal only raises an alarm.

use std::collections::BTreeMap;

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;

use crate::jwks::PublicKey;

mod seal;
mod stored;

pub use seal::{SealKey, SealKeyError};
pub use stored::{JournalError, MAX_JOURNAL_BYTES};

/// The keys of one issuer and the revocations, as all replicas share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyJournal {
    /// The issuer of the keys.
    pub issuer: Issuer,
    /// Incremented by every write. A lower number than one seen before means that an older journal
    /// was put back.
    pub sequence: u64,
    /// The keys by `kid`.
    pub keys: BTreeMap<String, KeyRecord>,
    /// Keys that must not come back, by `kid`.
    pub revoked: BTreeMap<String, Revocation>,
}

/// What the journal records about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key. Its bytes are pinned to its `kid` for as long as the journal contains it.
    pub key: PublicKey,
    /// When every replica could know that the key is published: the time of the write that added
    /// it.
    pub published_at: Timestamp,
    /// Whether the key was in the first set ever published. Such a key is active at once, because
    /// no verifier has cached an older set.
    pub first: bool,
    /// When a replica last saw the key at the hub, accurate to an hour.
    pub confirmed_at: Timestamp,
    /// When a replica first verified a token signed with the key; `None` if there was none.
    pub signed_since: Option<Timestamp>,
    /// The latest expiry among the tokens signed with the key that were verified here; `None` if
    /// there was none.
    pub signed_until: Option<Timestamp>,
    /// Since when no endpoint of the hub lists the key.
    pub withdrawn_at: Option<Timestamp>,
}

/// A key that was revoked by hand and never comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The RFC 7638 thumbprint, so that the key cannot come back under another `kid` either.
    pub thumbprint: String,
    /// When the key was revoked.
    pub at: Timestamp,
}

impl KeyJournal {
    /// Makes a journal without keys.
    pub fn empty(issuer: Issuer) -> Self {
        Self {
            issuer,
            sequence: 0,
            keys: BTreeMap::new(),
            revoked: BTreeMap::new(),
        }
    }

    /// A copy of the journal with `kid` revoked for ever. `None` if it contains neither a key nor a
    /// revocation with that `kid`.
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
