//! Who calls: the caller's token, reviewed by the hub, remembered for seconds, and for a little longer while the hub is away.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use keyferry_core::caller::{self, CallerRules, VerifiedCaller};
use keyferry_core::jwt::UnverifiedJwt;
use keyferry_core::moment::{Deadline, Moment};
use keyferry_core::reason::Reason;
use keyferry_core::verify;
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};

use crate::clock::Clock;
use crate::flight::Flights;
use crate::metrics::Metrics;
use crate::ports::{Hub, HubError};
use crate::publication::Publisher;
use crate::turns::Turns;

/// How long a TokenReview stands.
pub const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
/// How long a rejection stands: enough to take the force out of a loop.
const REJECTION_LIFETIME: Duration = Duration::from_secs(5);
/// Callers remembered at most.
const CAPACITY: u64 = 20_000;

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

#[derive(Clone)]
enum Known {
    Accepted { caller: Arc<VerifiedCaller>, fresh: Deadline, stale: Deadline },
    Rejected { reason: Reason, until: Deadline },
}

/// Authenticates callers.
pub struct Authenticator {
    hub: Arc<dyn Hub>,
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    hash_key: hmac::Key,
    max_stale: Duration,
    known: Cache<TokenKey, Known>,
    turns: Arc<Turns>,
    flights: Flights<TokenKey, Result<Arc<VerifiedCaller>, Failure>>,
}

#[derive(Clone, Debug)]
enum Failure {
    Rejected(Reason),
    Hub(HubError),
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
        Authenticator {
            hub,
            publisher,
            clock,
            metrics,
            hash_key: hmac::Key::new(hmac::HMAC_SHA256, &hash_key),
            max_stale,
            known: Cache::builder().max_capacity(CAPACITY).time_to_live(max_stale.max(REVIEW_LIFETIME) + REJECTION_LIFETIME).build(),
            turns: Arc::default(),
            flights: Flights::default(),
        }
    }

    /// Says who sent `token`.
    ///
    /// # Errors
    /// A `Caller…` reason, [`Reason::HubUnreachable`], [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn authenticate(&self, token: &SecretString, rules: &CallerRules) -> Result<Authentication, Reason> {
        let now = self.clock.now();
        let key = self.key(token, rules);
        let known = self.known.get(&key);
        match &known {
            Some(Known::Accepted { caller, fresh, .. }) if !fresh.passed(now) => {
                return Ok(Authentication { caller: Arc::clone(caller), key, stale: false });
            }
            Some(Known::Rejected { reason, until }) if !until.passed(now) => return Err(*reason),
            _ => {}
        }
        caller::read(token.expose_secret(), rules, now.wall)?;
        self.check_signature(token).await?;
        match self.flights.join(key, || self.review(key, token.clone(), rules.clone())).await {
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

    /// Refuses what the hub cannot have signed, so that made-up tokens cost it no TokenReview. The hub still has the last word.
    async fn check_signature(&self, token: &SecretString) -> Result<(), Reason> {
        let jwt = UnverifiedJwt::parse(token.expose_secret()).map_err(|_| Reason::CallerMalformed)?;
        let mut published = self.publisher.reader().current().ok_or(Reason::HubUnreachable)?;
        let kid = jwt.kid().ok_or(Reason::CallerMalformed)?;
        if published.keys.get(kid).is_none() {
            // Perhaps a new key of the hub, so its documents are read again; made-up kids do not make that happen more often.
            self.publisher.refresh_for_unknown_key(self.clock.now()).await?;
            published = self.publisher.reader().current().ok_or(Reason::HubUnreachable)?;
        }
        verify::verify(&jwt, &published.keys).map(|_| ()).map_err(|_| Reason::CallerRejected)
    }

    /// Asks the hub, in a task of its own.
    fn review(
        &self,
        key: TokenKey,
        token: SecretString,
        rules: CallerRules,
    ) -> impl Future<Output = Result<Arc<VerifiedCaller>, Failure>> + use<> {
        let (hub, clock, known, max_stale) = (Arc::clone(&self.hub), Arc::clone(&self.clock), self.known.clone(), self.max_stale);
        let (metrics, turns) = (self.metrics.clone(), Arc::clone(&self.turns));
        async move {
            // Another review of the token may have ended between the look at what is known and the start of this one.
            match known.get(&key) {
                Some(Known::Accepted { caller, fresh, .. }) if !fresh.passed(clock.now()) => return Ok(caller),
                Some(Known::Rejected { reason, until }) if !until.passed(clock.now()) => return Err(Failure::Rejected(reason)),
                _ => {}
            }
            let claims = caller::read(token.expose_secret(), &rules, clock.now().wall).map_err(Failure::Rejected)?;
            // The signature is checked already, so the namespace is the hub's word, not the caller's.
            let turn = turns.take(&claims.identity.account.namespace).await;
            let Some(_turn) = turn else { return Err(Failure::Hub(HubError::Busy)) };
            let answer = hub.token_review(&token, Some(&rules.audience)).await;
            metrics.token_review(answer.is_ok());
            let now = clock.now();
            match caller::accept(&claims, answer.map_err(Failure::Hub)?, &rules) {
                Ok(caller) => {
                    let caller = Arc::new(caller);
                    let expiry = Deadline::at(caller.expires_at(), now);
                    let fresh = earlier(Deadline::after(REVIEW_LIFETIME, now), expiry, now);
                    let stale = earlier(Deadline::after(max_stale, now), expiry, now);
                    known.insert(key, Known::Accepted { caller: Arc::clone(&caller), fresh, stale });
                    Ok(caller)
                }
                Err(reason) => {
                    known.insert(key, Known::Rejected { reason, until: Deadline::after(REJECTION_LIFETIME, now) });
                    Err(Failure::Rejected(reason))
                }
            }
        }
    }

    /// An earlier answer, while the hub is proven unreachable.
    fn stale(&self, key: TokenKey, known: Option<Known>) -> Result<Authentication, Reason> {
        match known {
            Some(Known::Accepted { caller, stale, .. }) if !stale.passed(self.clock.now()) => {
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

fn earlier(one: Deadline, other: Deadline, now: Moment) -> Deadline {
    if one.left(now) <= other.left(now) { one } else { other }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
