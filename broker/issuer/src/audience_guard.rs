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
use keyferry_api::moment::Deadline;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::authorise::HubView;
use keyferry_hub::clock::Clock;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::ports::Hub;
use keyferry_hub::single_flight::SingleFlight;
use keyferry_keys::bound_token::BoundToken;
use moka::sync::Cache;

use crate::bound_request::{self, TokenPurpose};
use crate::publication::Publisher;

/// How long a verdict is cached: the hub's flags change only with a restart of its apiserver.
const FINDING_LIFETIME: Duration = Duration::from_secs(3600);

/// An audience that no cluster trusts.
const INERT: &str = "keyferry.dev/inert";

#[derive(Clone, Copy)]
struct Finding {
    verdict: Result<(), Reason>,
    until: Deadline,
}

/// Tests whether the hub itself accepts an audience.
pub trait AudienceTrial: Send + Sync {
    /// Checks whether tokens may be minted for `audience`, like [`AudienceGuard::check`].
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>>;
}

impl AudienceTrial for AudienceGuard {
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>> {
        Box::pin(self.check(audience))
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
    findings: Cache<Audience, Finding>,
    /// Whether any audience was ever found to be the hub's. Almost everywhere none is, and then
    /// requests skip the lookup.
    any_hubs: Arc<AtomicBool>,
    calls: SingleFlight<Audience, Result<(), Reason>>,
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
        let findings = Cache::builder()
            .max_capacity(20_000)
            .time_to_live(FINDING_LIFETIME * 2)
            .build();
        Self {
            hub,
            clock,
            live,
            publisher,
            canary,
            findings,
            any_hubs: Arc::default(),
            calls: SingleFlight::default(),
        }
    }

    /// Checks whether tokens may be minted for `audience`.
    ///
    /// # Errors
    /// [`Reason::AudienceIsHubs`]; [`Reason::AudienceUnchecked`] when the canary cannot try;
    /// [`Reason::HubUnreachable`].
    pub async fn check(&self, audience: &Audience) -> Result<(), Reason> {
        if let Some(finding) = self
            .findings
            .get(audience)
            .filter(|finding| !finding.until.passed(self.clock.now()))
        {
            return finding.verdict;
        }
        self.calls
            .join(audience.clone(), || self.find_out(audience.clone()))
            .await
            .unwrap_or(Err(Reason::HubUnreachable))
    }

    /// Whether the last verdict, however old, is that the hub accepts the audience.
    pub fn is_known_as_hubs(&self, audience: &Audience) -> bool {
        self.any_hubs.load(Ordering::Acquire)
            && self
                .findings
                .get(audience)
                .is_some_and(|finding| finding.verdict == Err(Reason::AudienceIsHubs))
    }

    /// Makes the hub sign a token that is then dropped. If the hub signs with a new key, that key
    /// is published.
    ///
    /// # Errors
    /// The errors of a mint.
    pub async fn look_for_a_new_key(&self) -> Result<(), Reason> {
        let canary = self.live_canary()?;
        let inert = Audience::new(INERT).map_err(|_| Reason::AudienceUnchecked)?;
        bound_request::send(
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
        self.check(audience).await?;
        let canary = self.live_canary()?;
        bound_request::send(
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

    fn find_out(&self, audience: Audience) -> impl Future<Output = Result<(), Reason>> + use<> {
        let (hub, clock, findings) = (
            Arc::clone(&self.hub),
            Arc::clone(&self.clock),
            self.findings.clone(),
        );
        let uid = self.live.service_account(&self.canary);
        let (canary, publisher, any_hubs) = (
            self.canary.clone(),
            self.publisher.clone(),
            Arc::clone(&self.any_hubs),
        );
        async move {
            // Another test may have ended between the cache lookup and the start of this one.
            if let Some(known) = findings
                .get(&audience)
                .filter(|known| !known.until.passed(clock.now()))
            {
                return known.verdict;
            }
            let Some(uid) = uid else {
                tracing::error!(reason = %Reason::AudienceUnchecked, canary = %canary, "the canary \
                    ServiceAccount does not exist; create it");
                return Err(Reason::AudienceUnchecked);
            };
            let canary = ServiceAccountIdentity {
                account: canary,
                uid,
            };
            let verdict = try_audience(&*hub, &publisher, &*clock, &canary, &audience).await?;
            let until = Deadline::after(FINDING_LIFETIME, clock.now());
            findings.insert(audience.clone(), Finding { verdict, until });
            if verdict.is_err() {
                any_hubs.store(true, Ordering::Release);
                tracing::error!(reason = %Reason::AudienceIsHubs, %audience, "the hub's own \
                    apiserver accepts this audience; nothing is minted for it");
            }
            verdict
        }
    }
}

/// Tests an audience. The outer result says whether the test was possible, the inner one is the
/// verdict.
async fn try_audience(
    hub: &dyn Hub,
    publisher: &Publisher,
    clock: &dyn Clock,
    canary: &ServiceAccountIdentity,
    audience: &Audience,
) -> Result<Result<(), Reason>, Reason> {
    let token = bound_request::send(
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
        | Reason::ClockSkew => reason,
        _ => Reason::AudienceUnchecked,
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
            reason
        })?;
    Ok(if review.authenticated {
        Err(Reason::AudienceIsHubs)
    } else {
        Ok(())
    })
}
