//! The cached keys of external issuers.
//!
//! A key set is fetched when the first token needs it, and again when it is old or lacks a token's
//! key. One fetch serves all waiting requests, and invented `kid` values cause at most one fetch in
//! each pause. An issuer that does not answer delays no token whose key is known.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::ExternalIssuer;
use keyferry_api::moment::Moment;
use keyferry_api::reason::Reason;
use keyferry_keys::jwks::PublicKeySet;
use keyferry_platform::clock::Clock;
use keyferry_platform::external_issuer_documents::{
    ExternalIssuerAddress, ExternalIssuerKeys, ExternalKeysError,
};
use keyferry_platform::stale_cache::{FetchError, Lifetimes, Lookup, StaleCache};
use parking_lot::Mutex;

/// A withdrawn key is accepted as long as a set is fresh. A stale set is used only if its issuer has
/// not answered since.
const KEY_SET_LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_secs(300),
    stale: Duration::from_secs(3600),
    refused: Duration::ZERO,
};
/// How long a token whose key is in an old set waits for a new one, which may lack the key. It does
/// not wait at all while the issuer does not answer.
const KNOWN_KEY_WAIT: Duration = Duration::from_millis(500);
/// The least time between two fetches of one issuer.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);

/// The keys of all external issuers.
pub(super) struct IssuerKeys {
    source: Arc<dyn ExternalIssuerKeys>,
    clock: Arc<dyn Clock>,
    issuers: HashMap<String, Arc<ConfiguredIssuer>>,
}

struct ConfiguredIssuer {
    address: ExternalIssuerAddress,
    /// The last valid set. Each issuer has a cache of its own: one cannot evict another's keys.
    set: KeySetCache,
    state: Mutex<FetchState>,
}

type KeySetCache = StaleCache<(), Arc<PublicKeySet>, Infallible, ExternalKeysError>;

#[derive(Default)]
struct FetchState {
    next_fetch: Duration,
    /// Whether the last fetch failed, or took longer than a token waits.
    is_slow: bool,
}

impl IssuerKeys {
    pub(super) fn new(
        issuers: &[ExternalIssuer],
        source: Arc<dyn ExternalIssuerKeys>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let configured = |issuer: &ExternalIssuer| {
            let address = ExternalIssuerAddress {
                issuer: issuer.url.clone(),
                certificate_authority: issuer.certificate_authority.clone(),
            };
            let configured = ConfiguredIssuer {
                address,
                set: StaleCache::new(KEY_SET_LIFETIMES, 1, Arc::clone(&clock)),
                state: Mutex::default(),
            };
            (issuer.url.to_string(), Arc::new(configured))
        };
        Self {
            issuers: issuers.iter().map(configured).collect(),
            source,
            clock,
        }
    }

    /// Returns the keys of an issuer to verify a token that names `kid`. The set may lack that key.
    ///
    /// # Errors
    /// [`Reason::CallerKeysUnavailable`] if there is no set that may be used;
    /// [`Reason::CallerIssuerMismatch`] if the issuer is not configured.
    pub(super) async fn key_set(
        &self,
        issuer: &str,
        kid: &str,
    ) -> Result<Arc<PublicKeySet>, Reason> {
        let issuer = self
            .issuers
            .get(issuer)
            .ok_or(Reason::CallerIssuerMismatch)?;
        match issuer.set.lookup(&()) {
            Lookup::Fresh(set) if set.get(kid).is_some() => return Ok(set),
            Lookup::Stale(old) if old.get(kid).is_some() => {
                return Ok(self.refresh_known_key(issuer, old).await);
            }
            _ => self.fetch_keys(issuer).await,
        }
        issuer
            .set
            .lookup(&())
            .value()
            .ok_or(Reason::CallerKeysUnavailable)
    }

    /// Fetches the set for a token whose key is in the old one. If the issuer is slow, the old one is
    /// used, and the fetch goes on by itself.
    async fn refresh_known_key(
        &self,
        issuer: &Arc<ConfiguredIssuer>,
        old: Arc<PublicKeySet>,
    ) -> Arc<PublicKeySet> {
        let is_slow = issuer.state.lock().is_slow;
        let wait = if is_slow {
            Duration::ZERO
        } else {
            KNOWN_KEY_WAIT
        };
        if tokio::time::timeout(wait, self.fetch_keys(issuer))
            .await
            .is_err()
        {
            issuer.state.lock().is_slow = true;
            return old;
        }
        issuer.set.lookup(&()).value().unwrap_or(old)
    }

    /// Fetches the set, or waits for the fetch in progress; not at all if the last one is recent. A
    /// fetch that fails leaves the earlier set.
    async fn fetch_keys(&self, issuer: &Arc<ConfiguredIssuer>) {
        let now = self.clock.now();
        {
            let mut state = issuer.state.lock();
            if now.mono < state.next_fetch && !issuer.set.is_fetching() {
                return;
            }
            if now.mono >= state.next_fetch {
                state.next_fetch = now.mono.saturating_add(MIN_FETCH_INTERVAL);
            }
        }
        let (source, fetched) = (Arc::clone(&self.source), Arc::clone(issuer));
        let call = || async move { fetched.read_keys(&*source, now).await };
        // The set may be fresh and lack the token's key, so it is fetched all the same.
        let _ = issuer.set.refresh(&(), call).await;
    }
}

impl ConfiguredIssuer {
    /// Reads the set and caches it; its age counts from the start of the fetch.
    async fn read_keys(
        &self,
        source: &dyn ExternalIssuerKeys,
        started: Moment,
    ) -> Result<Arc<PublicKeySet>, FetchError<Infallible, ExternalKeysError>> {
        let outcome = source.fetch(&self.address).await;
        self.state.lock().is_slow = outcome.is_err();
        match outcome {
            Ok(set) => {
                let set = Arc::new(set);
                self.set.accept((), Arc::clone(&set), started, None);
                Ok(set)
            }
            Err(error) => {
                tracing::warn!(
                    reason = %Reason::CallerKeysUnavailable,
                    issuer = %self.address.issuer,
                    %error,
                    "the keys of an external issuer could not be read"
                );
                Err(FetchError::Failed(error))
            }
        }
    }
}

#[cfg(test)]
mod tests;
