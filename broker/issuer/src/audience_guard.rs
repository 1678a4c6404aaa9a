//! Prevents the mint of tokens that the hub itself would accept.
//!
//! A hub's apiserver does not publish its audiences, so Keyferry tests each one with a
//! ServiceAccount that has no rights. It mints a token for the audience, and sends a TokenReview
//! without an audience. If the hub accepts the token, the audience is its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::audience::Audience;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::authorise::HubView;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::ports::Hub;
use keyferry_keys::bound_token::BoundToken;
use keyferry_platform::clock::Clock;
use keyferry_platform::stale_cache::{FetchError, Lifetimes, StaleCache};

use crate::bound_request::{self, TokenPurpose};
use crate::publication::Publisher;

/// How long a verdict is cached: the hub's flags change only with a restart of its apiserver. A
/// verdict stays in memory for longer, for [`AudienceGuard::is_known_as_hubs`].
const VERDICT_LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_secs(3600),
    stale: Duration::from_secs(2 * 3600),
    refused: Duration::from_secs(3600),
};
/// The maximum number of cached verdicts.
const MAX_CACHED_VERDICTS: u64 = 20_000;

/// An audience that no cluster trusts.
const INERT_AUDIENCE: &str = "keyferry.dev/inert";

/// Refused is an audience of the hub's own; a trial that failed gives no verdict.
type TrialError = FetchError<Reason, Reason>;

/// Tests whether the hub itself accepts an audience.
pub trait AudienceTrial: Send + Sync {
    /// Checks whether tokens may be minted for `audience`, like [`AudienceGuard::check_audience`].
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>>;
}

impl AudienceTrial for AudienceGuard {
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>> {
        Box::pin(self.check_audience(audience))
    }
}

/// Tests audiences with tokens of the canary ServiceAccount. A clone shares the cached verdicts.
#[derive(Clone)]
pub struct AudienceGuard {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    live: Arc<LiveObjects>,
    publisher: Publisher,
    canary: ServiceAccount,
    verdicts: StaleCache<Audience, (), Reason, Reason>,
    /// Whether any audience was ever found to be the hub's. Almost everywhere none is, and then
    /// requests skip the lookup.
    any_hubs: Arc<AtomicBool>,
}

impl AudienceGuard {
    /// Creates a guard that tests with tokens of `canary`.
    pub fn new(
        hub: Arc<dyn Hub>,
        clock: Arc<dyn Clock>,
        live: Arc<LiveObjects>,
        publisher: Publisher,
        canary: ServiceAccount,
    ) -> Self {
        Self {
            verdicts: StaleCache::new(VERDICT_LIFETIMES, MAX_CACHED_VERDICTS, Arc::clone(&clock)),
            hub,
            clock,
            live,
            publisher,
            canary,
            any_hubs: Arc::default(),
        }
    }

    /// Checks whether tokens may be minted for `audience`.
    ///
    /// # Errors
    /// [`Reason::AudienceIsHubs`]; [`Reason::AudienceUnchecked`] when the canary cannot try;
    /// [`Reason::HubUnreachable`].
    pub async fn check_audience(&self, audience: &Audience) -> Result<(), Reason> {
        let trial = || self.run_trial(audience.clone());
        let verdict = self.verdicts.fetch(audience, trial).await;
        verdict.map_err(|error| match error {
            FetchError::Refused(reason) | FetchError::Failed(reason) => reason,
            FetchError::Lost => Reason::HubUnreachable,
        })
    }

    /// Whether the last verdict, however old, is that the hub accepts the audience.
    pub fn is_known_as_hubs(&self, audience: &Audience) -> bool {
        self.any_hubs.load(Ordering::Acquire) && self.verdicts.last_refusal(audience).is_some()
    }

    /// Makes the hub sign a token that is then dropped. If the hub signs with a new key, that key
    /// is published.
    ///
    /// # Errors
    /// The errors of a mint.
    pub async fn look_for_a_new_key(&self) -> Result<(), Reason> {
        let canary = self.live_canary()?;
        let inert = Audience::new(INERT_AUDIENCE).map_err(|_| Reason::AudienceUnchecked)?;
        bound_request::request_bound_token(
            &*self.hub,
            &self.publisher,
            &*self.clock,
            TokenPurpose::Canary(&canary, &inert),
        )
        .await
        .map(|_| ())
    }

    /// Mints a canary token for a target's audience, to test whether the target admits an identity
    /// that none of its rules names. Send it to no other host.
    ///
    /// # Errors
    /// The errors of a mint.
    pub async fn canary_token(&self, audience: &Audience) -> Result<BoundToken, Reason> {
        self.check_audience(audience).await?;
        let canary = self.live_canary()?;
        bound_request::request_bound_token(
            &*self.hub,
            &self.publisher,
            &*self.clock,
            TokenPurpose::Canary(&canary, audience),
        )
        .await
    }

    /// Returns the canary with the UID that it has on the hub now.
    fn live_canary(&self) -> Result<ServiceAccountIdentity, Reason> {
        let uid = self
            .live
            .service_account(&self.canary)
            .ok_or(Reason::AudienceUnchecked)?;
        Ok(ServiceAccountIdentity {
            account: self.canary.clone(),
            uid,
        })
    }

    fn run_trial(
        &self,
        audience: Audience,
    ) -> impl Future<Output = Result<(), TrialError>> + use<> {
        let (hub, clock, verdicts) = (
            Arc::clone(&self.hub),
            Arc::clone(&self.clock),
            self.verdicts.clone(),
        );
        let uid = self.live.service_account(&self.canary);
        let (canary, publisher, any_hubs) = (
            self.canary.clone(),
            self.publisher.clone(),
            Arc::clone(&self.any_hubs),
        );
        async move {
            let Some(uid) = uid else {
                tracing::error!(reason = %Reason::AudienceUnchecked, canary = %canary, "the canary \
                    ServiceAccount does not exist; create it");
                return Err(FetchError::Failed(Reason::AudienceUnchecked));
            };
            let canary = ServiceAccountIdentity {
                account: canary,
                uid,
            };
            let verdict = try_audience(&*hub, &publisher, &*clock, &canary, &audience).await;
            match verdict {
                Ok(()) => verdicts.accept(audience, (), clock.now(), None),
                Err(FetchError::Refused(reason)) => {
                    verdicts.refuse(audience.clone(), reason, clock.now());
                    any_hubs.store(true, Ordering::Release);
                    tracing::error!(%reason, %audience, "the hub's own apiserver accepts this \
                        audience; nothing is minted for it");
                }
                Err(FetchError::Failed(_) | FetchError::Lost) => {}
            }
            verdict
        }
    }
}

/// Tests an audience.
async fn try_audience(
    hub: &dyn Hub,
    publisher: &Publisher,
    clock: &dyn Clock,
    canary: &ServiceAccountIdentity,
    audience: &Audience,
) -> Result<(), TrialError> {
    let token = bound_request::request_bound_token(
        hub,
        publisher,
        clock,
        TokenPurpose::Canary(canary, audience),
    )
    .await
    .map_err(|reason| match reason {
        // These are temporary: the hub returns, a key becomes known, a clock is set.
        Reason::HubUnreachable
        | Reason::KeyNotPublished
        | Reason::KeyRevoked
        | Reason::ClockSkew => TrialError::Failed(reason),
        _ => TrialError::Failed(Reason::AudienceUnchecked),
    })?;
    let review = hub
        .token_review(token.secret(), None)
        .await
        .map_err(|error| {
            let reason = if error.proves_unreachable() {
                Reason::HubUnreachable
            } else {
                Reason::AudienceUnchecked
            };
            tracing::warn!(%reason, %error, "the TokenReview of the canary's token failed");
            TrialError::Failed(reason)
        })?;
    if review.authenticated {
        Err(FetchError::Refused(Reason::AudienceIsHubs))
    } else {
        Ok(())
    }
}
