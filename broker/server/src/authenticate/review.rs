//! Reviews a token: all the work beyond a cache lookup, done once for all concurrent callers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::reason::Reason;
use keyferry_core::caller::{self, CallerRules, VerifiedCaller};
use keyferry_hub::ports::{Hub, HubError};
use keyferry_hub::tenant_limit::TenantLimit;
use keyferry_issuer::publication::Publisher;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::stale_cache::{FetchError, Lifetimes, Lookup, StaleCache};
use secrecy::{ExposeSecret, SecretString};

use super::token_key::TokenKey;
use crate::new_callers::NewCallers;

/// How long an accepted TokenReview is cached.
const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
/// How long a rejection by the hub is cached, to slow down a client that retries in a loop.
const REJECTION_LIFETIME: Duration = Duration::from_secs(5);
/// How long a failure of the hub is cached for the token that met it.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// The maximum number of cached callers.
const MAX_CACHED_CALLERS: u64 = 20_000;

/// Why a review accepted no caller.
pub(super) type ReviewError = FetchError<Reason, HubError>;

/// Reviews tokens.
pub(super) struct Reviewer {
    hub: Arc<dyn Hub>,
    publisher: Publisher,
    pub(super) clock: Arc<dyn Clock>,
    metrics: Metrics,
    pub(super) reviews: StaleCache<TokenKey, VerifiedCaller, Reason, HubError>,
    /// A failure has a cache of its own, so that it does not replace an earlier review.
    failures: StaleCache<TokenKey, Infallible, HubError>,
    tenant_limit: TenantLimit,
    pub(super) new_callers: NewCallers,
}

impl Reviewer {
    pub(super) fn new(
        hub: Arc<dyn Hub>,
        publisher: Publisher,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        max_stale: Duration,
        new_callers: NewCallers,
    ) -> Self {
        let lifetimes = Lifetimes {
            fresh: REVIEW_LIFETIME,
            stale: max_stale,
            refused: REJECTION_LIFETIME,
        };
        Self {
            reviews: StaleCache::new(lifetimes, MAX_CACHED_CALLERS, Arc::clone(&clock)),
            failures: StaleCache::new(
                Lifetimes::of_refusals(FAILURE_LIFETIME),
                MAX_CACHED_CALLERS,
                Arc::clone(&clock),
            ),
            hub,
            publisher,
            clock,
            metrics,
            tenant_limit: TenantLimit::default(),
            new_callers,
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Reviews a token. `is_known` says whether the hub accepted it recently.
    pub(super) async fn review_token(
        self: Arc<Self>,
        key: TokenKey,
        token: SecretString,
        rules: CallerRules,
        is_known: bool,
    ) -> Result<VerifiedCaller, ReviewError> {
        let claims = caller::read_caller_token(token.expose_secret(), &rules, self.now().wall)
            .map_err(ReviewError::Refused)?;
        self.check_signature(&token, is_known)
            .await
            .map_err(ReviewError::Refused)?;
        if let Lookup::Refused(error) = self.failures.lookup(&key) {
            return Err(FetchError::Failed(error));
        }
        // The signature is verified, so the hub stated this namespace, not the caller.
        let namespace = &claims.identity.account.namespace;
        if !is_known {
            self.new_callers
                .of_namespace(namespace, self.now().mono)
                .map_err(ReviewError::Refused)?;
        }
        let permit = self.tenant_limit.take_permit(namespace).await;
        let _tenant_permit = permit.ok_or(ReviewError::Failed(HubError::Busy))?;
        let _new_caller_permit = if is_known {
            None
        } else {
            let permit = self.new_callers.review_permit().await;
            Some(permit.ok_or(ReviewError::Failed(HubError::Busy))?)
        };
        let answer = self.hub.token_review(&token, Some(&rules.audience)).await;
        self.metrics.token_review(answer.is_ok());
        let answer = answer.map_err(|error| self.note_failure(key, error))?;
        match caller::accept_caller(&claims, answer, &rules) {
            Ok(caller) => {
                let now = self.now();
                let expiry = Deadline::at(caller.expires_at(), now);
                self.reviews.accept(key, caller.clone(), now, Some(expiry));
                Ok(caller)
            }
            Err(reason) => {
                self.reviews.refuse(key, reason, self.now());
                Err(FetchError::Refused(reason))
            }
        }
    }

    /// Refuses tokens that the hub cannot have signed, so that forged tokens cost it no
    /// TokenReview. The hub still decides on the others.
    ///
    /// The token of a new caller is checked on other threads than known callers' requests, so that
    /// forged signatures take none of their time.
    async fn check_signature(&self, token: &SecretString, is_known: bool) -> Result<(), Reason> {
        let mut published = self
            .publisher
            .reader()
            .current()
            .ok_or(Reason::HubUnreachable)?;
        let is_published = {
            let jwt =
                UnverifiedJwt::parse(token.expose_secret()).map_err(|_| Reason::CallerMalformed)?;
            published
                .authenticating
                .get(jwt.kid().ok_or(Reason::CallerMalformed)?)
                .is_some()
        };
        if !is_published {
            // The key may be a new one of the hub, so its documents are reloaded; a rate limit
            // keeps invented `kid` values from causing more reloads.
            self.publisher.refresh_for_unknown_key(self.now()).await?;
            published = self
                .publisher
                .reader()
                .current()
                .ok_or(Reason::HubUnreachable)?;
        }
        let token = token.clone();
        let check = move || {
            let jwt =
                UnverifiedJwt::parse(token.expose_secret()).map_err(|_| Reason::CallerMalformed)?;
            verify::verify_signature(&jwt, &published.authenticating)
                .map(|_| ())
                .map_err(|_| Reason::CallerRejected)
        };
        if is_known {
            check()
        } else {
            self.new_callers.run_check(check).await
        }
    }

    /// An admin can fix Keyferry's missing right at any time, so that failure is not cached; all
    /// others are, for a moment.
    fn note_failure(&self, key: TokenKey, error: HubError) -> ReviewError {
        if !matches!(error, HubError::Forbidden(_) | HubError::Unauthenticated(_)) {
            self.failures.refuse(key, error.clone(), self.now());
        }
        FetchError::Failed(error)
    }
}
