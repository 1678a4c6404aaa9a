//! Remembers the tokens that were exchanged, so that each is exchanged once.
//!
//! Each replica remembers its own. A store that all replicas share would cost a write to the hub for
//! each exchange, and an outage of the hub would then stop exchanges that need nothing else of it.

use std::collections::HashMap;

use jiff::Timestamp;
use keyferry_api::reason::Reason;
use keyferry_core::caller::ExternalIdentity;
use parking_lot::Mutex;

/// The most tokens that are remembered at once, about 20 MiB. Only granted requests add one.
const MOST: usize = 100_000;
/// Expired tokens are removed when this many were added since the last time.
const BATCH: usize = 1024;

/// The tokens for one use that were exchanged and have not expired.
#[derive(Default)]
pub(super) struct UsedTokens(Mutex<State>);

#[derive(Default)]
struct State {
    /// The expiry by issuer and `jti`.
    used: HashMap<(String, String), Timestamp>,
    added: usize,
}

impl UsedTokens {
    pub(super) fn has(&self, identity: &ExternalIdentity) -> bool {
        id(identity).is_some_and(|id| self.0.lock().used.contains_key(&id))
    }

    /// Adds a token. Of two concurrent requests with one token, only one succeeds.
    pub(super) fn add(&self, identity: &ExternalIdentity, now: Timestamp) -> Result<(), Reason> {
        self.add_within(MOST, identity, now)
    }

    fn add_within(
        &self,
        most: usize,
        identity: &ExternalIdentity,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let Some(id) = id(identity) else {
            return Ok(());
        };
        let mut state = self.0.lock();
        if state.used.contains_key(&id) {
            return Err(Reason::CallerTokenReused);
        }
        if state.added >= BATCH || state.used.len() >= most {
            state.used.retain(|_, expires| *expires > now);
            state.added = 0;
        }
        if state.used.len() >= most {
            return Err(Reason::RateLimited);
        }
        state.added += 1;
        state.used.insert(id, identity.expires_at());
        Ok(())
    }
}

fn id(identity: &ExternalIdentity) -> Option<(String, String)> {
    let id = identity.single_use()?;
    Some((identity.issuer().to_string(), id.to_owned()))
}

#[cfg(test)]
mod tests;
