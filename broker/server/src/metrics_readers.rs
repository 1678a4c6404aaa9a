//! Decides who may read the metrics of the metrics listener: the hub reviews the reader's token, and
//! then its right to `get` the path `/metrics`.
//!
//! Both answers are cached together for seconds. While the hub does not answer, an earlier
//! permission stays valid for a while, because metrics matter most then.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use keyferry_api::config::NewCallerLimits;
use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::reason::Reason;
use keyferry_core::caller::PresentedToken;
use keyferry_hub::ports::{Hub, HubError};
use keyferry_keys::claims::ServiceAccountClaims;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::stale_cache::{FetchError, Lifetimes, Lookup, StaleCache};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{AcquireError, Semaphore};

use crate::authenticate::TokenKey;
use crate::new_callers::NewCallers;

/// The path that a reader must be allowed to `get`, whatever path the listener serves it at.
const METRICS_PATH: &str = "/metrics";
/// How long a permission is cached.
const PERMISSION_LIFETIME: Duration = Duration::from_secs(10);
/// How long a refusal is cached, to slow down a client that retries in a loop.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(5);
/// The maximum number of cached readers. A hub has few, and refused ones must not use up memory.
const MAX_CACHED_READERS: u64 = 1_000;
/// How many of the hub's 16 concurrent reviews readers may use: callers need the others.
const MAX_CONCURRENT_REVIEWS: usize = 2;
/// How many of them are for readers that the hub has not accepted recently. The other one is always
/// left to known readers, so forged tokens do not delay them.
const REVIEWS_OF_UNKNOWN: usize = 1;
/// How long a reader waits for its review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests a second of one address with tokens that the hub has not accepted recently.
const UNKNOWN_PER_ADDRESS: u32 = 5;

/// Decides who may read metrics.
pub struct MetricsReaders {
    reviewer: Arc<Reviewer>,
    hash_key: hmac::Key,
    unknown: NewCallers,
}

type ReviewError = FetchError<Reason, HubError>;

struct Reviewer {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    permissions: StaleCache<TokenKey, (), Reason, HubError>,
    reviews: Semaphore,
    reviews_of_unknown: Semaphore,
}

impl MetricsReaders {
    /// Creates an empty cache of the answers of `hub`; `hash_key` must be random and private to
    /// this process.
    pub fn new(
        hub: Arc<dyn Hub>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        hash_key: [u8; 32],
        max_stale: Duration,
    ) -> Self {
        let lifetimes = Lifetimes {
            fresh: PERMISSION_LIFETIME,
            stale: max_stale,
            refused: REFUSAL_LIFETIME,
        };
        Self {
            reviewer: Arc::new(Reviewer {
                permissions: StaleCache::new(lifetimes, MAX_CACHED_READERS, Arc::clone(&clock)),
                hub,
                clock,
                metrics,
                reviews: Semaphore::new(MAX_CONCURRENT_REVIEWS),
                reviews_of_unknown: Semaphore::new(REVIEWS_OF_UNKNOWN),
            }),
            hash_key: hmac::Key::new(hmac::HMAC_SHA256, &hash_key),
            unknown: NewCallers::new(NewCallerLimits {
                per_address: NonZeroU32::new(UNKNOWN_PER_ADDRESS),
                per_namespace: None,
            }),
        }
    }

    /// Checks that the bearer of `token` may read metrics.
    ///
    /// # Errors
    /// [`Reason::CallerRejected`] or [`Reason::MetricsForbidden`]; [`Reason::RateLimited`];
    /// [`Reason::HubUnreachable`] without an earlier permission that is still valid;
    /// [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn check_reader(
        &self,
        token: &PresentedToken<'_>,
        source: Source,
    ) -> Result<(), Reason> {
        let (key, permissions) = (self.token_key(token), &self.reviewer.permissions);
        let is_known = match permissions.lookup(&key) {
            Lookup::Fresh(()) => return Ok(()),
            // The hub accepted this token recently: its review is due again.
            Lookup::Stale(()) => true,
            Lookup::Refused(reason) => {
                self.count_unreadable(source)?;
                return Err(reason);
            }
            Lookup::Unknown => {
                self.count_unreadable(source)?;
                false
            }
        };
        let review = || Arc::clone(&self.reviewer).review_reader(key, token.to_secret(), is_known);
        match permissions.fetch_or_stale(&key, allows_stale, review).await {
            Ok(_) => Ok(()),
            Err(FetchError::Refused(reason)) => Err(reason),
            Err(FetchError::Failed(error)) => {
                let reason = error.review_reason();
                if !allows_stale(&error) {
                    tracing::error!(%reason, %error, "the review of a reader of metrics failed");
                }
                Err(reason)
            }
            Err(FetchError::Lost) => Err(Reason::HubUnreachable),
        }
    }

    /// Counts a request without a readable token towards the limit of its source.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub fn count_unreadable(&self, source: Source) -> Result<(), Reason> {
        self.unknown
            .of_source(source, self.reviewer.clock.now().mono)
    }

    fn token_key(&self, token: &PresentedToken<'_>) -> TokenKey {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.hash_key, token.expose().as_bytes()).as_ref());
        key
    }
}

/// Whether an earlier permission counts after a failed review. It does if all reviews are busy:
/// otherwise a flood of forged tokens would block a known reader.
fn allows_stale(error: &HubError) -> bool {
    error.proves_unreachable() || *error == HubError::Busy
}

impl Reviewer {
    /// Sends both reviews, in a task of their own, so that a reader that hangs up does not stop
    /// them.
    async fn review_reader(
        self: Arc<Self>,
        key: TokenKey,
        token: SecretString,
        is_known: bool,
    ) -> Result<(), ReviewError> {
        let permits = async {
            let unknown = if is_known {
                None
            } else {
                Some(self.reviews_of_unknown.acquire().await?)
            };
            Ok::<_, AcquireError>((unknown, self.reviews.acquire().await?))
        };
        let Ok(Ok(_permits)) = tokio::time::timeout(REVIEW_TIMEOUT, permits).await else {
            return Err(FetchError::Failed(HubError::Busy));
        };
        // Without an audience the hub checks for its own: a token that a caller may send to
        // Keyferry's token API is none of the hub's, and opens nothing here.
        let answer = self.hub.token_review(&token, None).await;
        self.metrics.token_review(answer.is_ok());
        let answer = answer.map_err(ReviewError::Failed)?;
        if !answer.authenticated {
            return Err(self.refuse_reader(key, Reason::CallerRejected));
        }
        let allowed = self.hub.path_review(&answer.user, METRICS_PATH).await;
        self.metrics.access_review(allowed.is_ok());
        if !allowed.map_err(ReviewError::Failed)? {
            return Err(self.refuse_reader(key, Reason::MetricsForbidden));
        }
        let now = self.clock.now();
        self.permissions
            .accept(key, (), now, Some(permission_expiry(&token, now)));
        Ok(())
    }

    fn refuse_reader(&self, key: TokenKey, reason: Reason) -> ReviewError {
        self.permissions.refuse(key, reason, self.clock.now());
        FetchError::Refused(reason)
    }
}

/// The end of the token, after which no permission is valid. The hub has just accepted the token, so
/// what it says of itself is true. Of a token that is not a ServiceAccount's, no expiry is known, so
/// its permission is never stale.
fn permission_expiry(token: &SecretString, now: Moment) -> Deadline {
    UnverifiedJwt::parse(token.expose_secret())
        .ok()
        .and_then(|jwt| ServiceAccountClaims::read(&jwt).ok())
        .map_or(Deadline::after(PERMISSION_LIFETIME, now), |claims| {
            Deadline::at(claims.registered.expires_at, now)
        })
}

#[cfg(test)]
mod tests;
