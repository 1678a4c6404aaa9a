//! Keeps tokens from being minted that the hub itself would accept.
//!
//! The audiences of a hub's apiserver are published nowhere, so a rightless ServiceAccount of ours
//! tries: a token for the audience is minted for it and reviewed without naming an audience. If the
//! hub then knows the token, the audience is its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_core::audience::Audience;
use keyferry_core::authorise::HubView;
use keyferry_core::bound_token::BoundToken;
use keyferry_core::moment::Deadline;
use keyferry_core::reason::Reason;
use keyferry_core::service_account::{ServiceAccount, ServiceAccountIdentity};
use moka::sync::Cache;

use crate::bound_request::{self, Order};
use crate::clock::Clock;
use crate::flight::Flights;
use crate::live::LiveObjects;
use crate::ports::Hub;
use crate::publication::Publisher;

/// How long a finding stands: the hub's flags change with a restart of its apiserver.
const FINDING_LIFETIME: Duration = Duration::from_secs(3600);

/// An audience that nobody trusts.
const INERT: &str = "keyferry.dev/inert";

#[derive(Clone, Copy)]
struct Finding {
    verdict: Result<(), Reason>,
    until: Deadline,
}

/// Whether the hub itself accepts an audience.
pub trait AudienceTrial: Send + Sync {
    /// Whether tokens may be minted for `audience`, as [`AudienceGuard::check`] finds it.
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>>;
}

impl AudienceTrial for AudienceGuard {
    fn try_audience<'a>(&'a self, audience: &'a Audience) -> BoxFuture<'a, Result<(), Reason>> {
        Box::pin(self.check(audience))
    }
}

/// Tries audiences by the canary. A clone shares what was found.
#[derive(Clone)]
pub struct AudienceGuard {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    live: Arc<LiveObjects>,
    publisher: Publisher,
    canary: ServiceAccount,
    findings: Cache<Audience, Finding>,
    /// Whether any finding ever was against its audience. Nearly everywhere none is, and then no
    /// request needs to look for one.
    any_hubs: Arc<AtomicBool>,
    flights: Flights<Audience, Result<(), Reason>>,
}

impl AudienceGuard {
    /// A guard that tries as `canary`.
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
            flights: Flights::default(),
        }
    }

    /// Whether tokens may be minted for `audience`.
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
        self.flights
            .join(audience.clone(), || self.find_out(audience.clone()))
            .await
            .unwrap_or(Err(Reason::HubUnreachable))
    }

    /// Whether the last finding, however old, is that the hub accepts the audience.
    pub fn is_known_as_hubs(&self, audience: &Audience) -> bool {
        self.any_hubs.load(Ordering::Acquire)
            && self
                .findings
                .get(audience)
                .is_some_and(|finding| finding.verdict == Err(Reason::AudienceIsHubs))
    }

    /// Has the hub sign a token that nobody gets. A key that it signs with and that is new is
    /// published by that.
    ///
    /// # Errors
    /// As a mint's.
    pub async fn look_for_a_new_key(&self) -> Result<(), Reason> {
        let uid = self
            .live
            .service_account(&self.canary)
            .ok_or(Reason::AudienceUnchecked)?;
        let canary = ServiceAccountIdentity {
            account: self.canary.clone(),
            uid,
        };
        let inert = Audience::new(INERT).map_err(|_| Reason::AudienceUnchecked)?;
        bound_request::send(
            &*self.hub,
            &self.publisher,
            &*self.clock,
            Order::Canary(&canary, &inert),
        )
        .await
        .map(|_| ())
    }

    /// A token of the canary for a target's audience, to see whether the target lets in whom none
    /// of its rules names. It goes nowhere else.
    ///
    /// # Errors
    /// As a mint's.
    pub async fn canary_token(&self, audience: &Audience) -> Result<BoundToken, Reason> {
        self.check(audience).await?;
        let uid = self
            .live
            .service_account(&self.canary)
            .ok_or(Reason::AudienceUnchecked)?;
        let canary = ServiceAccountIdentity {
            account: self.canary.clone(),
            uid,
        };
        bound_request::send(
            &*self.hub,
            &self.publisher,
            &*self.clock,
            Order::Canary(&canary, audience),
        )
        .await
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
            // Another try may have ended between the look at what was found and the start of this
            // one.
            if let Some(landed) = findings
                .get(&audience)
                .filter(|landed| !landed.until.passed(clock.now()))
            {
                return landed.verdict;
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

/// The outer result says whether it could be found out.
async fn try_audience(
    hub: &dyn Hub,
    publisher: &Publisher,
    clock: &dyn Clock,
    canary: &ServiceAccountIdentity,
    audience: &Audience,
) -> Result<Result<(), Reason>, Reason> {
    let token = bound_request::send(hub, publisher, clock, Order::Canary(canary, audience))
        .await
        .map_err(|reason| match reason {
            // These pass: the hub comes back, a key gets known, a clock is set.
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
