//! Checks by the hub's own RBAC whether a delegated caller may mint for another ServiceAccount.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::Deadline;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::authorise::Review;
use keyferry_hub::clock::Clock;
use keyferry_hub::metrics::Metrics;
use keyferry_hub::ports::{Hub, HubError};
use keyferry_hub::single_flight::SingleFlight;
use moka::sync::Cache;

use crate::authenticate::{Authentication, TokenKey};

/// How long a SubjectAccessReview is cached.
pub const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
const CAPACITY: u64 = 20_000;

type Key = (TokenKey, ServiceAccount);

/// The hub's answer about a delegated caller.
#[derive(Clone, Copy, Debug)]
pub struct Delegation {
    /// The answer.
    pub review: Review,
    /// Whether the hub was unreachable, so that an earlier answer was used.
    pub stale: bool,
}

#[derive(Clone, Copy)]
struct CachedDelegation {
    review: Review,
    fresh: Deadline,
    stale: Deadline,
}

impl CachedDelegation {
    fn now(self) -> Delegation {
        Delegation {
            review: self.review,
            stale: false,
        }
    }
}

/// Asks the hub about delegated callers.
pub struct Delegations {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    max_stale: Duration,
    known: Cache<Key, CachedDelegation>,
    calls: SingleFlight<Key, Result<CachedDelegation, HubError>>,
}

impl Delegations {
    /// Creates an empty cache of the answers of `hub`.
    pub fn new(
        hub: Arc<dyn Hub>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        max_stale: Duration,
    ) -> Self {
        let life = max_stale.max(REVIEW_LIFETIME);
        let known = Cache::builder()
            .max_capacity(CAPACITY)
            .time_to_live(life)
            .build();
        Self {
            hub,
            clock,
            metrics,
            max_stale,
            known,
            calls: SingleFlight::default(),
        }
    }

    /// Asks whether the caller may create tokens for `account`.
    ///
    /// # Errors
    /// [`Reason::HubUnreachable`] without an earlier answer that is still valid;
    /// [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn review(
        &self,
        caller: &Authentication,
        account: &ServiceAccount,
    ) -> Result<Delegation, Reason> {
        let key = (caller.key, account.clone());
        let known = self.known.get(&key);
        if let Some(known) = known.filter(|known| !known.fresh.passed(self.clock.now())) {
            return Ok(known.now());
        }
        self.ask(key, caller, known).await
    }

    async fn ask(
        &self,
        key: Key,
        caller: &Authentication,
        known: Option<CachedDelegation>,
    ) -> Result<Delegation, Reason> {
        match self
            .calls
            .join(key.clone(), || self.request(key, caller))
            .await
        {
            Ok(Ok(known)) => Ok(known.now()),
            Ok(Err(error)) if error.proves_unreachable() => match known {
                Some(known) if !known.stale.passed(self.clock.now()) => Ok(Delegation {
                    stale: true,
                    ..known.now()
                }),
                _ => Err(Reason::HubUnreachable),
            },
            Ok(Err(error)) => {
                let reason = error.review_reason();
                tracing::error!(%reason, %error, "the SubjectAccessReview failed");
                Err(reason)
            }
            Err(_) => Err(Reason::HubUnreachable),
        }
    }

    fn request(
        &self,
        key: Key,
        caller: &Authentication,
    ) -> impl Future<Output = Result<CachedDelegation, HubError>> + use<> {
        let (hub, clock, known, max_stale) = (
            Arc::clone(&self.hub),
            Arc::clone(&self.clock),
            self.known.clone(),
            self.max_stale,
        );
        let (caller, metrics) = (caller.caller.clone(), self.metrics.clone());
        async move {
            // Another review may have ended between the cache lookup and the start of this one.
            if let Some(answered) = known
                .get(&key)
                .filter(|answered| !answered.fresh.passed(clock.now()))
            {
                return Ok(answered);
            }
            let answer = hub.access_review(caller.user(), &key.1).await;
            metrics.access_review(answer.is_ok());
            let review = if answer? {
                Review::Allowed
            } else {
                Review::Refused
            };
            let now = clock.now();
            let answered = CachedDelegation {
                review,
                fresh: Deadline::after(REVIEW_LIFETIME, now),
                stale: Deadline::after(max_stale, now),
            };
            known.insert(key, answered);
            Ok(answered)
        }
    }
}

#[cfg(test)]
mod tests;
