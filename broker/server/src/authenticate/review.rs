//! Reviews a token: all the work beyond a cache lookup, done once for all concurrent callers.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::reason::Reason;
use keyferry_core::caller::{self, CallerRules, VerifiedCaller};
use keyferry_hub::clock::Clock;
use keyferry_hub::metrics::Metrics;
use keyferry_hub::ports::{Hub, HubError};
use keyferry_hub::tenant_limit::TenantLimit;
use keyferry_issuer::publication::Publisher;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify;
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};

use super::TokenKey;
use crate::new_callers::NewCallers;

/// How long an accepted TokenReview is cached.
const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
/// How long a rejection by the hub is cached, to slow down a client that retries in a loop.
const REJECTION_LIFETIME: Duration = Duration::from_secs(5);
/// How long a failure of the hub is cached for the token that met it.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// The maximum number of cached callers.
const CAPACITY: u64 = 20_000;

/// The cached result of a token's review.
#[derive(Clone)]
pub(super) enum CachedReview {
    Accepted {
        caller: VerifiedCaller,
        fresh: Deadline,
        stale: Deadline,
    },
    Rejected {
        reason: Reason,
        until: Deadline,
    },
}

/// Why a review accepted no caller.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Rejected(Reason),
    Hub(HubError),
}

/// Reviews tokens.
pub(super) struct Reviewer {
    hub: Arc<dyn Hub>,
    publisher: Publisher,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    max_stale: Duration,
    known: Cache<TokenKey, CachedReview>,
    failures: Cache<TokenKey, (HubError, Deadline)>,
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
        let life = max_stale.max(REVIEW_LIFETIME) + REJECTION_LIFETIME;
        let known = Cache::builder()
            .max_capacity(CAPACITY)
            .time_to_live(life)
            .build();
        let failures = Cache::builder()
            .max_capacity(CAPACITY)
            .time_to_live(FAILURE_LIFETIME * 2)
            .build();
        Self {
            hub,
            publisher,
            clock,
            metrics,
            max_stale,
            known,
            failures,
            tenant_limit: TenantLimit::default(),
            new_callers,
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn known(&self, key: &TokenKey) -> Option<CachedReview> {
        self.known.get(key)
    }

    /// Reviews a token, in its own task, so that a caller that hangs up does not stop it.
    pub(super) async fn review(
        self: Arc<Self>,
        key: TokenKey,
        token: SecretString,
        rules: CallerRules,
    ) -> Result<VerifiedCaller, Failure> {
        // Another review of the token may have ended between the cache lookup and the start of this
        // one.
        let is_new = match self.known.get(&key) {
            Some(CachedReview::Accepted { caller, fresh, .. }) if !fresh.passed(self.now()) => {
                return Ok(caller);
            }
            Some(CachedReview::Rejected { reason, until }) if !until.passed(self.now()) => {
                return Err(Failure::Rejected(reason));
            }
            Some(CachedReview::Accepted { stale, .. }) => stale.passed(self.now()),
            _ => true,
        };
        let claims = caller::read(token.expose_secret(), &rules, self.now().wall)
            .map_err(Failure::Rejected)?;
        self.check_signature(&token, is_new)
            .await
            .map_err(Failure::Rejected)?;
        if let Some((error, until)) = self.failures.get(&key)
            && !until.passed(self.now())
        {
            return Err(Failure::Hub(error));
        }
        // The signature is verified, so the hub stated this namespace, not the caller.
        let namespace = &claims.identity.account.namespace;
        if is_new {
            self.new_callers
                .of_namespace(namespace, self.now().mono)
                .map_err(Failure::Rejected)?;
        }
        let permit = self.tenant_limit.take(namespace).await;
        let Some(_permit) = permit else {
            return Err(Failure::Hub(HubError::Busy));
        };
        let _review = match is_new {
            true => Some(
                self.new_callers
                    .review()
                    .await
                    .ok_or(Failure::Hub(HubError::Busy))?,
            ),
            false => None,
        };
        let answer = self.hub.token_review(&token, Some(&rules.audience)).await;
        self.metrics.token_review(answer.is_ok());
        let answer = answer.map_err(|error| self.failed(key, error))?;
        caller::accept(&claims, answer, &rules)
            .map_err(|reason| self.rejected(key, reason))
            .map(|caller| self.accepted(key, caller))
    }

    /// Refuses tokens that the hub cannot have signed, so that forged tokens cost it no
    /// TokenReview. The hub still decides on the others.
    ///
    /// The token of a new caller is checked on other threads than known callers' requests, so that
    /// forged signatures take none of their time.
    async fn check_signature(&self, token: &SecretString, is_new: bool) -> Result<(), Reason> {
        let mut published = self
            .publisher
            .reader()
            .current()
            .ok_or(Reason::HubUnreachable)?;
        let is_known = {
            let jwt =
                UnverifiedJwt::parse(token.expose_secret()).map_err(|_| Reason::CallerMalformed)?;
            published
                .authenticating
                .get(jwt.kid().ok_or(Reason::CallerMalformed)?)
                .is_some()
        };
        if !is_known {
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
            verify::verify(&jwt, &published.authenticating)
                .map(|_| ())
                .map_err(|_| Reason::CallerRejected)
        };
        if is_new {
            self.new_callers.check(check).await
        } else {
            check()
        }
    }

    fn accepted(&self, key: TokenKey, caller: VerifiedCaller) -> VerifiedCaller {
        let now = self.now();
        let expiry = Deadline::at(caller.expires_at(), now);
        let fresh = earlier(Deadline::after(REVIEW_LIFETIME, now), expiry, now);
        let stale = earlier(Deadline::after(self.max_stale, now), expiry, now);
        self.known.insert(
            key,
            CachedReview::Accepted {
                caller: caller.clone(),
                fresh,
                stale,
            },
        );
        caller
    }

    fn rejected(&self, key: TokenKey, reason: Reason) -> Failure {
        self.known.insert(
            key,
            CachedReview::Rejected {
                reason,
                until: Deadline::after(REJECTION_LIFETIME, self.now()),
            },
        );
        Failure::Rejected(reason)
    }

    /// An admin can fix Keyferry's missing right at any time, so that failure is not cached; all
    /// others are, for a moment.
    fn failed(&self, key: TokenKey, error: HubError) -> Failure {
        if !matches!(error, HubError::Forbidden(_) | HubError::Unauthenticated(_)) {
            self.failures.insert(
                key,
                (error.clone(), Deadline::after(FAILURE_LIFETIME, self.now())),
            );
        }
        Failure::Hub(error)
    }
}

fn earlier(one: Deadline, other: Deadline, now: Moment) -> Deadline {
    if one.left(now) <= other.left(now) {
        one
    } else {
        other
    }
}
