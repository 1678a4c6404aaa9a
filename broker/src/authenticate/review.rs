//! One token's review: everything that costs more than a look at what is known, done once for all
//! who wait.

use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use keyferry_core::caller::{self, CallerRules, VerifiedCaller};
use keyferry_core::jwt::UnverifiedJwt;
use keyferry_core::moment::{Deadline, Moment};
use keyferry_core::reason::Reason;
use keyferry_core::verify;
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};

use super::TokenKey;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::new_callers::NewCallers;
use crate::ports::{Hub, HubError};
use crate::publication::Publisher;
use crate::turns::Turns;
use crate::view::LastFound;

/// How long a TokenReview stands.
const REVIEW_LIFETIME: Duration = Duration::from_secs(10);
/// How long a rejection by the hub stands: enough to take the force out of a loop.
const REJECTION_LIFETIME: Duration = Duration::from_secs(5);
/// How long a failure of the hub stands for the token that met it.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);
/// Callers remembered at most.
const CAPACITY: u64 = 20_000;

/// What is remembered of a token.
#[derive(Clone)]
pub(super) enum Known {
    Accepted {
        caller: VerifiedCaller,
        fresh: Deadline,
        stale: Deadline,
        last: LastFound,
    },
    Rejected {
        reason: Reason,
        until: Deadline,
    },
}

/// Why a review came to nothing.
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
    known: Cache<TokenKey, Known, RandomState>,
    failures: Cache<TokenKey, (HubError, Deadline)>,
    turns: Turns,
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
            .build_with_hasher(RandomState::default());
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
            turns: Turns::default(),
            new_callers,
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn known(&self, key: &TokenKey) -> Option<Known> {
        self.known.get(key)
    }

    /// Runs in a task of its own, whoever hangs up.
    pub(super) async fn review(
        self: Arc<Self>,
        key: TokenKey,
        token: SecretString,
        rules: CallerRules,
    ) -> Result<VerifiedCaller, Failure> {
        // Another review of the token may have ended between the look at what is known and the
        // start of this one.
        let is_new = match self.known.get(&key) {
            Some(Known::Accepted { caller, fresh, .. }) if !fresh.passed(self.now()) => {
                return Ok(caller);
            }
            Some(Known::Rejected { reason, until }) if !until.passed(self.now()) => {
                return Err(Failure::Rejected(reason));
            }
            Some(Known::Accepted { stale, .. }) => stale.passed(self.now()),
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
        // The signature is checked, so the namespace is the hub's word and not the caller's.
        let namespace = &claims.identity.account.namespace;
        if is_new {
            self.new_callers
                .of_namespace(namespace, self.now().mono)
                .map_err(Failure::Rejected)?;
        }
        let turn = self.turns.take(namespace).await;
        let Some(_turn) = turn else {
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

    /// Refuses what the hub cannot have signed, so that made-up tokens cost it no TokenReview. The
    /// hub still has the last word.
    ///
    /// A new caller's is checked beside the requests of those who are known: whoever makes
    /// signatures up takes no time of theirs.
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
            // Perhaps a new key of the hub, so its documents are read again; made-up kids do not
            // make that happen more often.
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
            Known::Accepted {
                caller: caller.clone(),
                fresh,
                stale,
                last: LastFound::default(),
            },
        );
        caller
    }

    fn rejected(&self, key: TokenKey, reason: Reason) -> Failure {
        self.known.insert(
            key,
            Known::Rejected {
                reason,
                until: Deadline::after(REJECTION_LIFETIME, self.now()),
            },
        );
        Failure::Rejected(reason)
    }

    /// A missing right of ours heals at once; everything else is not asked again for a moment.
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
