//! Keeps tokens from being minted that the hub itself would accept.
//!
//! The audiences of a hub's apiserver are published nowhere, so a rightless ServiceAccount of ours tries: a token for the audience is
//! minted for it and reviewed without naming an audience. If the hub then knows the token, the audience is its own.

use std::sync::Arc;
use std::time::Duration;

use keyferry_core::audience::Audience;
use keyferry_core::authorise::HubView;
use keyferry_core::bound_token::{self, MintExpectation};
use keyferry_core::lifetime;
use keyferry_core::moment::Deadline;
use keyferry_core::reason::Reason;
use keyferry_core::service_account::{ServiceAccount, ServiceAccountIdentity};
use moka::sync::Cache;

use crate::clock::Clock;
use crate::flight::Flights;
use crate::live::LiveObjects;
use crate::ports::{Hub, HubError};
use crate::publication::PublicationReader;

/// How long a finding stands: the hub's flags change with a restart of its apiserver.
const FINDING_LIFETIME: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy)]
struct Finding {
    verdict: Result<(), Reason>,
    until: Deadline,
}

/// Tries audiences by the canary.
pub struct AudienceGuard {
    hub: Arc<dyn Hub>,
    clock: Arc<dyn Clock>,
    live: Arc<LiveObjects>,
    published: PublicationReader,
    canary: ServiceAccount,
    findings: Cache<Audience, Finding>,
    flights: Flights<Audience, Result<(), Reason>>,
}

impl AudienceGuard {
    /// A guard that tries as `canary`.
    pub fn new(
        hub: Arc<dyn Hub>,
        clock: Arc<dyn Clock>,
        live: Arc<LiveObjects>,
        published: PublicationReader,
        canary: ServiceAccount,
    ) -> AudienceGuard {
        let findings = Cache::builder().max_capacity(20_000).time_to_live(FINDING_LIFETIME * 2).build();
        AudienceGuard { hub, clock, live, published, canary, findings, flights: Flights::default() }
    }

    /// Whether tokens may be minted for `audience`.
    ///
    /// # Errors
    /// [`Reason::AudienceIsHubs`]; [`Reason::AudienceUnchecked`] when the canary cannot try; [`Reason::HubUnreachable`].
    pub async fn check(&self, audience: &Audience) -> Result<(), Reason> {
        if let Some(finding) = self.findings.get(audience).filter(|finding| !finding.until.passed(self.clock.now())) {
            return finding.verdict;
        }
        self.flights.join(audience.clone(), || self.find_out(audience.clone())).await.unwrap_or(Err(Reason::HubUnreachable))
    }

    fn find_out(&self, audience: Audience) -> impl Future<Output = Result<(), Reason>> + use<> {
        let (hub, clock, findings) = (Arc::clone(&self.hub), Arc::clone(&self.clock), self.findings.clone());
        let uid = self.live.service_account(&self.canary);
        let (canary, published) = (self.canary.clone(), self.published.clone());
        async move {
            let Some(uid) = uid else {
                tracing::error!(reason = %Reason::AudienceUnchecked, canary = %canary, "the canary ServiceAccount does not exist; create it");
                return Err(Reason::AudienceUnchecked);
            };
            let canary = ServiceAccountIdentity { account: canary, uid };
            let verdict = try_audience(&*hub, &canary, &audience, &published, &*clock).await?;
            let until = Deadline::after(FINDING_LIFETIME, clock.now());
            findings.insert(audience.clone(), Finding { verdict, until });
            if verdict.is_err() {
                tracing::error!(reason = %Reason::AudienceIsHubs, %audience, "the hub's own apiserver accepts this audience; nothing is minted for it");
            }
            verdict
        }
    }
}

/// The outer result says whether it could be found out.
async fn try_audience(
    hub: &dyn Hub,
    canary: &ServiceAccountIdentity,
    audience: &Audience,
    published: &PublicationReader,
    clock: &dyn Clock,
) -> Result<Result<(), Reason>, Reason> {
    let published = published.current().ok_or(Reason::HubUnreachable)?;
    let answer =
        hub.token_request(canary, audience, lifetime::MIN).await.map_err(|error| unchecked(&error, "TokenRequest for the canary"))?;
    let expected = MintExpectation { issuer: &published.issuer, keys: &published.keys, service_account: canary, audience };
    let token = bound_token::check(answer, &expected, clock.now()).map_err(|fault| {
        tracing::warn!(reason = %fault.reason(), %fault, "the canary's token is not what was asked for");
        Reason::AudienceUnchecked
    })?;
    let review = hub.token_review(token.secret(), None).await.map_err(|error| unchecked(&error, "TokenReview of the canary's token"))?;
    Ok(if review.authenticated { Err(Reason::AudienceIsHubs) } else { Ok(()) })
}

fn unchecked(error: &HubError, what: &'static str) -> Reason {
    let reason = if error.proves_unreachable() { Reason::HubUnreachable } else { Reason::AudienceUnchecked };
    tracing::warn!(%reason, %error, "{what} failed");
    reason
}
