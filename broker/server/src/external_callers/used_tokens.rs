//! Remembers the tokens that were exchanged, so that each is exchanged once.
//!
//! Each replica remembers its own. A store that all replicas share would cost a write to the hub for
//! each exchange, and an outage of the hub would then stop exchanges that need nothing else of it.

use std::collections::HashMap;

use aws_lc_rs::hmac;
use jiff::Timestamp;
use keyferry_api::reason::Reason;
use keyferry_core::caller::ExternalIdentity;
use parking_lot::Mutex;

/// The most tokens that are remembered at once, about 15 MiB. Each entry of `externalIssuers` has an
/// equal share, so that the jobs of one cannot lock out those of another. Only granted requests add
/// one.
const MAX_TOKENS: usize = 400_000;
/// Expired tokens are removed when this many were added since the last time.
const CLEANUP_BATCH: usize = 1024;

/// The tokens for one use that were exchanged and have not expired.
pub(super) struct UsedTokens {
    hash_key: hmac::Key,
    /// The most tokens of one entry.
    share: usize,
    /// By the index of the entry.
    entries: Vec<Mutex<UsedOfEntry>>,
}

/// The first bytes of a keyed hash of a `jti`. The `jti` itself can be long, and without the key a
/// caller could choose two that collide.
type TokenHash = [u8; 16];

#[derive(Default)]
struct UsedOfEntry {
    /// The expiry, in seconds since 1970.
    used: HashMap<TokenHash, i64>,
    added: usize,
    /// When expired tokens were last removed, in seconds. A removal visits all tokens, so it must
    /// not run for each request while the memory is full.
    cleaned: Option<i64>,
}

impl UsedTokens {
    /// Creates an empty memory for this many entries; `hash_key` must be random and private to this
    /// process.
    pub(super) fn new(entries: usize, hash_key: &[u8; 32]) -> Self {
        Self {
            hash_key: hmac::Key::new(hmac::HMAC_SHA256, hash_key),
            share: MAX_TOKENS / entries.max(1),
            entries: (0..entries).map(|_| Mutex::default()).collect(),
        }
    }

    pub(super) fn is_used(&self, identity: &ExternalIdentity) -> bool {
        self.entry_of(identity)
            .is_some_and(|(entry, hash)| entry.lock().used.contains_key(&hash))
    }

    /// Adds a token. Of two concurrent requests with one token, only one succeeds.
    pub(super) fn add_token(
        &self,
        identity: &ExternalIdentity,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let Some((entry, hash)) = self.entry_of(identity) else {
            return match identity.single_use() {
                None => Ok(()),
                // No configuration has an entry that is missing in this memory.
                Some(_) => Err(Reason::RateLimited),
            };
        };
        let expires = identity.expires_at().as_second();
        entry
            .lock()
            .add_hash(hash, expires, now.as_second(), self.share)
    }

    fn entry_of(&self, identity: &ExternalIdentity) -> Option<(&Mutex<UsedOfEntry>, TokenHash)> {
        let id = identity.single_use()?;
        let tag = hmac::sign(&self.hash_key, id.as_bytes());
        let hash = tag.as_ref().first_chunk::<16>()?;
        Some((self.entries.get(identity.entry())?, *hash))
    }
}

impl UsedOfEntry {
    fn add_hash(
        &mut self,
        hash: TokenHash,
        expires: i64,
        now: i64,
        share: usize,
    ) -> Result<(), Reason> {
        if self.used.contains_key(&hash) {
            return Err(Reason::CallerTokenReused);
        }
        let is_due = self.added >= CLEANUP_BATCH || self.used.len() >= share;
        if is_due && self.cleaned != Some(now) {
            self.used.retain(|_, expires| *expires > now);
            self.added = 0;
            self.cleaned = Some(now);
        }
        if self.used.len() >= share {
            return Err(Reason::RateLimited);
        }
        self.added += 1;
        self.used.insert(hash, expires);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
