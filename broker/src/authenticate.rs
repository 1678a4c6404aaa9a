//! Who calls: the caller's token, reviewed by the hub, remembered for seconds, and for a little longer while the hub is away.

mod review;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use keyferry_core::caller::{CallerRules, VerifiedCaller};
use keyferry_core::reason::Reason;
use secrecy::{ExposeSecret, SecretString};

use self::review::{Failure, Known, Reviewer};
use crate::clock::Clock;
use crate::flight::Flights;
use crate::metrics::Metrics;
use crate::ports::Hub;
use crate::publication::Publisher;

/// A token's place in the caches: a keyed hash, so that no cache holds the token.
pub type TokenKey = [u8; 32];

/// A caller and how it is known.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Who.
    pub caller: Arc<VerifiedCaller>,
    /// Its token's place in the caches.
    pub key: TokenKey,
    /// Whether the hub could not be asked and an earlier answer of it stands.
    pub stale: bool,
}

/// Authenticates callers.
pub struct Authenticator {
    reviewer: Arc<Reviewer>,
    hash_key: hmac::Key,
    flights: Flights<TokenKey, Result<Arc<VerifiedCaller>, Failure>>,
}

impl Authenticator {
    /// An authenticator; `hash_key` is random and this process's own.
    pub fn new(
        hub: Arc<dyn Hub>,
        publisher: Publisher,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        hash_key: [u8; 32],
        max_stale: Duration,
    ) -> Authenticator {
        let reviewer = Arc::new(Reviewer::new(hub, publisher, clock, metrics, max_stale));
        Authenticator { reviewer, hash_key: hmac::Key::new(hmac::HMAC_SHA256, &hash_key), flights: Flights::default() }
    }

    /// Says who sent `token`.
    ///
    /// # Errors
    /// A `Caller…` reason, [`Reason::HubUnreachable`], [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn authenticate(&self, token: &SecretString, rules: &CallerRules) -> Result<Authentication, Reason> {
        let now = self.reviewer.now();
        let key = self.key(token, rules);
        let known = self.reviewer.known(&key);
        match &known {
            Some(Known::Accepted { caller, fresh, .. }) if !fresh.passed(now) => {
                return Ok(Authentication { caller: Arc::clone(caller), key, stale: false });
            }
            Some(Known::Rejected { reason, until }) if !until.passed(now) => return Err(*reason),
            _ => {}
        }
        Box::pin(self.ask(token, rules, key, known)).await
    }

    async fn ask(&self, token: &SecretString, rules: &CallerRules, key: TokenKey, known: Option<Known>) -> Result<Authentication, Reason> {
        match self.flights.join(key, || Arc::clone(&self.reviewer).review(key, token.clone(), rules.clone())).await {
            Ok(Ok(caller)) => Ok(Authentication { caller, key, stale: false }),
            Ok(Err(Failure::Rejected(reason))) => Err(reason),
            Ok(Err(Failure::Hub(error))) if error.proves_unreachable() => self.stale(key, known),
            Ok(Err(Failure::Hub(error))) => {
                let reason = error.review_reason();
                tracing::error!(%reason, %error, "the hub gives no answer to a TokenReview");
                Err(reason)
            }
            Err(_) => Err(Reason::HubUnreachable),
        }
    }

    /// An earlier answer, while the hub is proven unreachable.
    fn stale(&self, key: TokenKey, known: Option<Known>) -> Result<Authentication, Reason> {
        match known {
            Some(Known::Accepted { caller, stale, .. }) if !stale.passed(self.reviewer.now()) => {
                Ok(Authentication { caller, key, stale: true })
            }
            _ => Err(Reason::HubUnreachable),
        }
    }

    fn key(&self, token: &SecretString, rules: &CallerRules) -> TokenKey {
        let mut context = hmac::Context::with_key(&self.hash_key);
        for part in [rules.audience.as_str(), rules.issuer.as_str(), token.expose_secret()] {
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        key
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
