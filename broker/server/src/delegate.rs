//! Checks by the hub's own RBAC whether a delegated caller may mint for another ServiceAccount.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_core::authorise::Review;
use keyferry_hub::ports::{Hub, HubError};
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::stale_cache::{FetchError, Lifetimes, StaleCache};

use crate::authenticate::{Authentication, TokenKey};

/// How long a SubjectAccessReview is cached.
const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
/// The maximum number of cached reviews.
const MAX_CACHED_REVIEWS: u64 = 20_000;

type DelegationKey = (TokenKey, ServiceAccount);
type ReviewError = FetchError<Infallible, HubError>;

/// The hub's answer about a delegated caller.
#[derive(Clone, Copy, Debug)]
pub struct Delegation {
    /// The answer.
    pub review: Review,
    /// Whether the hub was unreachable, so that an earlier answer was used.
    pub stale: bool,
}

/// Asks the hub about delegated callers.
pub struct Delegations {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    /// Both answers of the hub are values: an earlier refusal stays one while the hub does not
    /// answer.
    reviews: StaleCache<DelegationKey, Review, Infallible, HubError>,
}

impl Delegations {
    /// Creates an empty cache of the answers of `hub`.
    pub fn new(
        hub: Arc<dyn Hub>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        max_stale: Duration,
    ) -> Self {
        let lifetimes = Lifetimes {
            fresh: REVIEW_LIFETIME,
            stale: max_stale,
            refused: Duration::ZERO,
        };
        Self {
            reviews: StaleCache::new(lifetimes, MAX_CACHED_REVIEWS, Arc::clone(&clock)),
            hub,
            clock,
            metrics,
        }
    }

    /// Asks whether the caller may create tokens for `account`.
    ///
    /// # Errors
    /// [`Reason::HubUnreachable`] without an earlier answer that is still valid;
    /// [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn review_delegation(
        &self,
        caller: &Authentication,
        account: &ServiceAccount,
    ) -> Result<Delegation, Reason> {
        let key = (caller.key, account.clone());
        let request = || self.request_review(key.clone(), caller);
        let served = self
            .reviews
            .fetch_or_stale(&key, HubError::proves_unreachable, request)
            .await;
        match served {
            Ok(served) => Ok(Delegation {
                review: served.value,
                stale: served.is_stale,
            }),
            Err(FetchError::Failed(error)) => {
                let reason = error.review_reason();
                if !error.proves_unreachable() {
                    tracing::error!(%reason, %error, "the SubjectAccessReview failed");
                }
                Err(reason)
            }
            Err(FetchError::Lost) => Err(Reason::HubUnreachable),
        }
    }

    fn request_review(
        &self,
        key: DelegationKey,
        caller: &Authentication,
    ) -> impl Future<Output = Result<Review, ReviewError>> + use<> {
        let (hub, clock, metrics) = (
            Arc::clone(&self.hub),
            Arc::clone(&self.clock),
            self.metrics.clone(),
        );
        let (caller, reviews) = (caller.caller.clone(), self.reviews.clone());
        async move {
            let answer = hub.access_review(caller.user(), &key.1).await;
            metrics.access_review(answer.is_ok());
            let review = if answer.map_err(ReviewError::Failed)? {
                Review::Allowed
            } else {
                Review::Refused
            };
            reviews.accept(key, review, clock.now(), None);
            Ok(review)
        }
    }
}

#[cfg(test)]
mod tests;
