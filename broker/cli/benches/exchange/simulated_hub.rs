//! A simulated clock, and the hub as the simulated broker sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::audience::Audience;
use keyferry_api::moment::Moment;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::audit::AuditRecord;
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_hub::ports::{Hub, HubError};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::clock::Clock;
use secrecy::{ExposeSecret, SecretString};

use crate::harness::stage::Ground;

/// A clock that stands still until it is moved.
pub struct SimulatedClock {
    begin: Timestamp,
    /// The elapsed time in whole seconds.
    elapsed: AtomicU64,
}

impl SimulatedClock {
    /// A clock that begins now.
    #[allow(
        clippy::disallowed_methods,
        reason = "simulated time has to begin somewhere"
    )]
    pub fn start() -> Self {
        Self {
            begin: Timestamp::now(),
            elapsed: AtomicU64::new(0),
        }
    }

    /// Sets the elapsed time since the beginning.
    pub fn set(&self, seconds: u64) {
        self.elapsed.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Moment {
        let elapsed = Duration::from_secs(self.elapsed.load(Ordering::Relaxed));
        let wall = SignedDuration::try_from(elapsed)
            .ok()
            .and_then(|elapsed| self.begin.checked_add(elapsed).ok());
        Moment {
            wall: wall.unwrap_or(Timestamp::MAX),
            mono: elapsed,
        }
    }
}

/// A hub that counts requests, grants everything, and signs as the embedded hub does.
pub struct CountingHub {
    /// The ground, whose hub signs.
    pub ground: Ground,
    clock: Arc<SimulatedClock>,
    /// TokenRequests, without the canary's.
    pub token_requests: AtomicU64,
    /// TokenReviews, without the canary's.
    pub token_reviews: AtomicU64,
    /// SubjectAccessReviews.
    pub access_reviews: AtomicU64,
    /// TokenRequests and TokenReviews of the canary.
    pub canary: AtomicU64,
}

impl CountingHub {
    /// A hub without any requests so far.
    pub fn new(ground: Ground, clock: Arc<SimulatedClock>) -> Self {
        let zero = AtomicU64::default;
        Self {
            ground,
            clock,
            token_requests: zero(),
            token_reviews: zero(),
            access_reviews: zero(),
            canary: zero(),
        }
    }
}

impl Hub for CountingHub {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        let ServiceAccount { namespace, name } = &identity.account;
        let counter = if name.as_str() == "keyferry-canary" {
            &self.canary
        } else {
            &self.token_requests
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let token = self.ground.hub.token(
            namespace.as_str(),
            name.as_str(),
            audience.as_str(),
            lifetime,
        );
        let expires_at = SignedDuration::try_from(lifetime)
            .ok()
            .and_then(|lifetime| self.clock.now().wall.checked_add(lifetime).ok());
        Box::pin(async move {
            let token = token.map_err(|error| HubError::Refused(error.to_string()))?;
            Ok(MintAnswer {
                token,
                expires_at: expires_at.unwrap_or(Timestamp::MAX),
            })
        })
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(async move {
            let Some(audience) = audience else {
                // The canary's token, which has another audience than the hub's own.
                self.canary.fetch_add(1, Ordering::Relaxed);
                return Ok(TokenReviewAnswer::default());
            };
            self.token_reviews.fetch_add(1, Ordering::Relaxed);
            let jwt = UnverifiedJwt::parse(token.expose_secret())
                .map_err(|_| HubError::Unreadable("a TokenReview"))?;
            let text = |value: Option<&serde_json::Value>| {
                value
                    .and_then(serde_json::Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let kubernetes = jwt.claims().get("kubernetes.io");
            let user = ReviewedUser {
                username: text(jwt.claims().get("sub")),
                uid: text(kubernetes.and_then(|claim| claim.pointer("/serviceaccount/uid"))),
                ..ReviewedUser::default()
            };
            Ok(TokenReviewAnswer {
                authenticated: true,
                audiences: vec![audience.to_string()],
                user,
            })
        })
    }

    fn access_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        self.access_reviews.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(true) })
    }

    fn path_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async { Ok(true) })
    }
}

/// An audit sink that discards everything.
pub struct NoLog;

impl AuditSink for NoLog {
    fn record(&self, _: &AuditRecord) -> Recording {
        Recording::written()
    }
}
