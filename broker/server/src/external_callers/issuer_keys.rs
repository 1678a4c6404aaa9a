//! The cached keys of external issuers.
//!
//! A key set is fetched when the first token needs it, and again when it is old or lacks a token's
//! key. One fetch serves all waiting requests, and invented `kid` values cause at most one fetch in
//! each pause.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::ExternalIssuer;
use keyferry_api::reason::Reason;
use keyferry_hub::clock::Clock;
use keyferry_hub::external_issuer_documents::{ExternalIssuerAddress, ExternalIssuerKeys};
use keyferry_hub::single_flight::SingleFlight;
use keyferry_keys::jwks::PublicKeySet;
use parking_lot::Mutex;

/// The age from which a set is fetched again: a withdrawn key is accepted this long.
const FRESH: Duration = Duration::from_secs(300);
/// The age from which a set is not used, if its issuer has not answered since.
const STALE: Duration = Duration::from_secs(3600);
/// The least time between two fetches of one issuer.
const PAUSE: Duration = Duration::from_secs(10);

/// The keys of all external issuers.
pub(super) struct IssuerKeys {
    source: Arc<dyn ExternalIssuerKeys>,
    clock: Arc<dyn Clock>,
    issuers: HashMap<String, Arc<KnownIssuer>>,
}

struct KnownIssuer {
    address: ExternalIssuerAddress,
    fetches: SingleFlight<(), ()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last valid set, and when its fetch began.
    set: Option<(Arc<PublicKeySet>, Duration)>,
    next_fetch: Duration,
}

impl KnownIssuer {
    /// The set, if it is younger than `limit`.
    fn set(&self, limit: Duration, now: Duration) -> Option<Arc<PublicKeySet>> {
        let state = self.state.lock();
        let (set, at) = state.set.as_ref()?;
        (now.saturating_sub(*at) < limit).then(|| Arc::clone(set))
    }
}

impl IssuerKeys {
    pub(super) fn new(
        issuers: &[ExternalIssuer],
        source: Arc<dyn ExternalIssuerKeys>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let known = |issuer: &ExternalIssuer| {
            let address = ExternalIssuerAddress {
                issuer: issuer.url.clone(),
                certificate_authority: issuer.certificate_authority.clone(),
            };
            let known = KnownIssuer {
                address,
                fetches: SingleFlight::default(),
                state: Mutex::default(),
            };
            (issuer.url.to_string(), Arc::new(known))
        };
        Self {
            source,
            clock,
            issuers: issuers.iter().map(known).collect(),
        }
    }

    /// Returns the keys of an issuer to verify a token that names `kid`. The set may lack that key.
    ///
    /// # Errors
    /// [`Reason::CallerKeysUnavailable`] if there is no set that may be used;
    /// [`Reason::CallerIssuerMismatch`] if the issuer is not configured.
    pub(super) async fn of(&self, issuer: &str, kid: &str) -> Result<Arc<PublicKeySet>, Reason> {
        let known = self
            .issuers
            .get(issuer)
            .ok_or(Reason::CallerIssuerMismatch)?;
        let now = self.clock.now().mono;
        if let Some(set) = known.set(FRESH, now)
            && set.get(kid).is_some()
        {
            return Ok(set);
        }
        self.fetch(known, now).await;
        known
            .set(STALE, self.clock.now().mono)
            .ok_or(Reason::CallerKeysUnavailable)
    }

    /// Fetches the set, or waits for the fetch in progress; not at all in the pause after one.
    async fn fetch(&self, known: &Arc<KnownIssuer>, now: Duration) {
        {
            let mut state = known.state.lock();
            if now < state.next_fetch && known.fetches.is_empty() {
                return;
            }
            if now >= state.next_fetch {
                state.next_fetch = now.saturating_add(PAUSE);
            }
        }
        let (source, fetched) = (Arc::clone(&self.source), Arc::clone(known));
        // A fetch whose task was lost leaves the earlier set.
        let _ = known
            .fetches
            .join((), || async move {
                match source.fetch(&fetched.address).await {
                    Ok(set) => fetched.state.lock().set = Some((Arc::new(set), now)),
                    Err(error) => tracing::warn!(
                        reason = %Reason::CallerKeysUnavailable,
                        issuer = %fetched.address.issuer,
                        %error,
                        "the keys of an external issuer could not be read"
                    ),
                }
            })
            .await;
    }
}

#[cfg(test)]
mod tests;
