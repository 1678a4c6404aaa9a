//! The main job: a caller asks for its access, and gets a token or a reason.
//!
//! The order is fixed: authenticate, pair, review, rest. Only an authorised caller learns in what
//! state its target is, and what allowed the request is looked at once more at the moment of
//! issuance.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use keyferry_core::audit::{AuditRecord, TokenNote};
use keyferry_core::authorise::{self, Grant, Pair, Requester, Review, Via};
use keyferry_core::bound_token::BoundToken;
use keyferry_core::caller::PresentedToken;
use keyferry_core::config::{DeliveryType, Policy, TargetCluster};
use keyferry_core::lifetime;
use keyferry_core::moment::Moment;
use keyferry_core::name::{AccessName, ObjectName};
use keyferry_core::reason::Reason;
use keyferry_core::request_id::RequestId;

use crate::advice;
use crate::authenticate::{Authentication, Authenticator};
use crate::clock::Clock;
use crate::delegate::Delegations;
use crate::in_time::in_time;
use crate::live::LiveObjects;
use crate::metrics::Metrics;
use crate::mint::{FromCache, Mint, Minted};
use crate::policy_store::PolicyReader;
use crate::ports::{AuditSink, Recording};
use crate::publication::PublicationReader;
use crate::random::Random;
use crate::refusal_summary::RefusalSummary;
use crate::settings::{CallerSettings, MANAGED_ISSUER_FIX, SECOND_ISSUER_FIX};
use crate::source::Source;
use crate::targets::{Readiness, TargetReader};
use crate::view::{Found, View};

/// How long a decision may take. What it waits for has limits of its own, which are shorter; one
/// after the other they may come to more.
const DECISION_DEADLINE: Duration = Duration::from_secs(30);

/// One request on the token API.
pub struct Request<'a> {
    /// `exchange` or `kubeconfig`.
    pub route: &'static str,
    /// The caller's own token.
    pub caller_token: PresentedToken<'a>,
    /// What it asks for.
    pub access: AccessName,
    /// The least life that the answer must have.
    pub min_ttl: Option<Duration>,
    /// The shapes in which the answer may leave; one that policy allows is enough.
    pub deliveries: &'static [DeliveryType],
    /// Joins the answer to its audit record.
    pub request_id: RequestId,
    /// Where it comes from.
    pub source: Source,
}

/// What an authorised caller gets.
#[derive(Debug)]
pub struct Issuance {
    /// The token.
    pub token: Arc<BoundToken>,
    /// How long the caller may use it.
    pub usable: Duration,
    /// The target it is for, in the policy that granted it.
    pub target: ObjectName,
    /// That policy.
    pub policy: Arc<Policy>,
    /// The target's CA certificates as PEM.
    pub ca_pem: Option<Arc<str>>,
}

/// Why a request got nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub reason: Reason,
    /// What an authorised caller is told beside it; nobody else gets any.
    pub detail: Option<String>,
    /// When it is worth asking again, where that is known.
    pub retry_after: Option<Duration>,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            detail: None,
            retry_after: None,
        }
    }
}

/// What the broker works with.
pub struct BrokerParts {
    /// The policy in force.
    pub policy: PolicyReader,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The published issuer.
    pub published: PublicationReader,
    /// The targets' CA certificates.
    pub targets: TargetReader,
    /// Who calls.
    pub authenticator: Authenticator,
    /// Whether a delegated caller may.
    pub delegations: Delegations,
    /// The mint.
    pub mint: Mint,
    /// Where every decision is recorded.
    pub audit: Arc<dyn AuditSink>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for request ids.
    pub random: Arc<dyn Random>,
    /// Metrics.
    pub metrics: Metrics,
    /// What every caller must be.
    pub callers: CallerSettings,
}

/// A request without a decision yet. Dropped like that, because its caller hung up, it is recorded
/// all the same.
struct Pending<'a> {
    parts: &'a BrokerParts,
    record: Option<AuditRecord>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.time = self.parts.clock.now().wall;
        record.ended(decision(Reason::CallerGone), Reason::CallerGone);
        self.parts
            .metrics
            .request(decision(Reason::CallerGone), Reason::CallerGone);
        // Nothing is left to hold back if it cannot be written: nothing was issued.
        drop(self.parts.audit.record(&record));
    }
}

/// Decides and issues.
pub struct Broker {
    parts: BrokerParts,
    rate_limited: RefusalSummary,
}

/// What is known of a request that was granted, for its record.
struct Granted {
    issue: Issuance,
    grant: Grant,
    from_cache: FromCache,
    at: Moment,
}

impl Broker {
    /// A broker of these parts.
    pub fn new(parts: BrokerParts) -> Self {
        let rate_limited = RefusalSummary::new(
            Arc::clone(&parts.audit),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.random),
        );
        Self {
            parts,
            rate_limited,
        }
    }

    /// An id for a request.
    pub fn request_id(&self) -> RequestId {
        self.parts.random.request_id()
    }

    /// Decides on a request, records the decision, and only then issues.
    ///
    /// # Errors
    /// [`Refusal`]. Every request leaves one audit record, but those that are refused for their
    /// rate: they leave one a second together. If a record cannot be written there is no issuance.
    pub async fn issue(&self, request: &Request<'_>) -> Result<Issuance, Refusal> {
        let Request {
            request_id,
            route,
            access,
            ..
        } = request;
        let record = AuditRecord {
            request_id: *request_id,
            route,
            access: Some(access.clone()),
            ..AuditRecord::default()
        };
        let mut pending = Pending {
            parts: &self.parts,
            record: Some(record),
        };
        let outcome = match &mut pending.record {
            Some(record) => {
                let decided = in_time(DECISION_DEADLINE, pin!(self.decide(request, record))).await;
                decided.unwrap_or(Err(Reason::DecisionTimedOut.into()))
            }
            None => Err(Reason::CallerGone.into()),
        };
        if let Err(refusal) = &outcome
            && refusal.reason == Reason::RateLimited
        {
            pending.record = None;
            return Err(self.rate_limited(request.source).await);
        }
        let (outcome, recording) = self.ended(pending, outcome);
        let outcome = match recording.await {
            Ok(()) => outcome,
            // A refusal stays what it is: to withhold it could not be any safer.
            Err(_) => outcome.and(Err(Reason::AuditUnavailable.into())),
        };
        match &outcome {
            Ok(_) => self.parts.metrics.request("granted", Reason::Ready),
            Err(refusal) => self
                .parts
                .metrics
                .request(decision(refusal.reason), refusal.reason),
        }
        outcome
    }

    /// What was decided, and its record on its way.
    fn ended(
        &self,
        mut pending: Pending<'_>,
        outcome: Result<Granted, Refusal>,
    ) -> (Result<Issuance, Refusal>, Recording) {
        let mut record = pending.record.take().unwrap_or_default();
        let outcome = match outcome {
            Ok(Granted {
                issue,
                grant,
                from_cache,
                at,
            }) => {
                record.time = at.wall;
                record.grant = Some(grant);
                record.token = Some(TokenNote::of(&issue.token));
                record.cache = Some(if from_cache == FromCache::Hit {
                    "hit"
                } else {
                    "miss"
                });
                record.ended("granted", Reason::Ready);
                Ok(issue)
            }
            Err(refusal) => {
                record.time = self.parts.clock.now().wall;
                record.ended(decision(refusal.reason), refusal.reason);
                Err(refusal)
            }
        };
        let recording = self.parts.audit.record(&record);
        (outcome, recording)
    }

    /// A request of a caller that is not known, one too many of its source or namespace.
    async fn rate_limited(&self, source: Source) -> Refusal {
        self.parts
            .metrics
            .request(decision(Reason::RateLimited), Reason::RateLimited);
        self.rate_limited.count(source);
        self.parts.authenticator.hold_back().await;
        Reason::RateLimited.into()
    }

    /// Records a request that nothing can be decided on: it is malformed, or brings no caller's
    /// token.
    ///
    /// # Errors
    /// [`Reason::RateLimited`]: there were too many of them from its source, so that it is one of
    /// many in a record.
    pub async fn refuse(
        &self,
        route: &'static str,
        reason: Reason,
        request_id: RequestId,
        source: Source,
    ) -> Result<(), Refusal> {
        if self.parts.authenticator.count(source).is_err() {
            return Err(self.rate_limited(source).await);
        }
        let mut record = AuditRecord {
            request_id,
            route,
            ..AuditRecord::default()
        };
        record.time = self.parts.clock.now().wall;
        record.ended(decision(reason), reason);
        // It is refused whether or not that can be recorded.
        let _ = self.parts.audit.record(&record).await;
        self.parts.metrics.request(decision(reason), reason);
        Ok(())
    }

    async fn decide(
        &self,
        request: &Request<'_>,
        record: &mut AuditRecord,
    ) -> Result<Granted, Refusal> {
        let caller = self
            .parts
            .authenticator
            .authenticate(&request.caller_token, request.source)
            .await?;
        record.caller = Some(caller.caller.clone());
        record.stale = caller.stale;
        // Once more if the configuration changed to another grant on the way: what was minted is
        // for the earlier one.
        match self.attempt(&caller, request, record).await {
            // In a box, as is all else that is seldom: what every request carries about is the
            // usual way alone.
            Err(refusal) if refusal.reason == Reason::GrantSuperseded => {
                Box::pin(self.attempt(&caller, request, record)).await
            }
            outcome => outcome,
        }
    }

    async fn attempt(
        &self,
        caller: &Authentication,
        request: &Request<'_>,
        record: &mut AuditRecord,
    ) -> Result<Granted, Refusal> {
        let requester = Requester::Caller(caller.caller.clone());
        let view = View::of(&self.parts.policy, &self.parts.live);
        let now = self.parts.clock.now();
        self.check_current(now)?;
        let Found { pair, review, .. } =
            match caller
                .last
                .recall(&view, &request.access, request.deliveries, now)
            {
                Some(found) => found,
                None => {
                    self.find(caller, &requester, request, &view, record)
                        .await?
                }
            };
        let policy = &view.policy;
        let grant = authorise::grant(policy, requester, pair.clone(), review)
            .map_err(|reason| self.advised(reason, &pair))?;
        let target = policy
            .targets
            .get(grant.pair().target())
            .ok_or(Reason::TargetNotGranted)?;
        let ca_pem = self.ready(target)?;
        let min_ttl = request.min_ttl.unwrap_or_default();
        if min_ttl > lifetime::greatest_min_ttl(grant.pair().lifetime()) {
            let most = lifetime::greatest_min_ttl(grant.pair().lifetime()).as_secs();
            return Err(told(
                Reason::RequestInvalid,
                format!("min_ttl may be at most {most} for this target"),
            ));
        }
        let Minted { token, from_cache } =
            self.parts
                .mint
                .token(&grant, min_ttl)
                .await
                .map_err(|reason| {
                    let retry_after = if reason == Reason::KeySettling {
                        self.parts.mint.retry_after(&grant)
                    } else {
                        None
                    };
                    Refusal {
                        retry_after,
                        ..self.advised(reason, &pair)
                    }
                })?;
        let now = self.parts.clock.now();
        self.check_current(now)?;
        // What has not changed since it was looked at needs no second look.
        if !view.is_current(&self.parts.policy, &self.parts.live) {
            authorise::still_holds(&self.parts.policy.look(), &*self.parts.live, &grant)?;
        }
        let usable = token.usable(now).ok_or(Reason::MintFailed)?;
        if usable < min_ttl {
            let detail = format!(
                "min_ttl is more than the hub's tokens live: {} s are left of this one",
                usable.as_secs()
            );
            return Err(told(Reason::RequestInvalid, detail));
        }
        Ok(Granted {
            issue: Issuance {
                token,
                usable,
                target: pair.target().clone(),
                policy: view.policy,
                ca_pem,
            },
            grant,
            from_cache,
            at: now,
        })
    }

    /// The pair, and the hub's word on it where the hub must be asked.
    async fn find(
        &self,
        caller: &Authentication,
        requester: &Requester,
        request: &Request<'_>,
        view: &View,
        record: &mut AuditRecord,
    ) -> Result<Found, Reason> {
        let pair = self.pair(&view.policy, requester, request)?;
        let (review, until) = match pair.via() {
            Via::Itself | Via::Author => (Review::NotAsked, None),
            Via::Delegate => {
                let delegation = self
                    .parts
                    .delegations
                    .review(caller, &pair.service_account().account)
                    .await?;
                record.stale |= delegation.stale;
                (delegation.review, Some(delegation.fresh))
            }
        };
        let found = Found {
            pair,
            review,
            until,
        };
        caller.last.remember(view, request.deliveries, &found);
        Ok(found)
    }

    /// A refusal with what stands in the way. Its text reaches only whoever policy allows the pair.
    fn advised(&self, reason: Reason, pair: &Pair) -> Refusal {
        let policy = self.parts.policy.current();
        Refusal {
            reason,
            detail: advice::on(reason, pair, policy.own_namespace.as_ref()),
            retry_after: None,
        }
    }

    /// The first of the request's shapes that policy allows.
    fn pair(
        &self,
        policy: &Policy,
        requester: &Requester,
        request: &Request<'_>,
    ) -> Result<Pair, Reason> {
        let mut outcome = Err(Reason::TargetNotGranted);
        for delivery in request.deliveries {
            outcome = authorise::pair(
                policy,
                &*self.parts.live,
                requester,
                &request.access,
                *delivery,
            );
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Whether what the watches have seen is recent enough to decide on.
    fn check_current(&self, now: Moment) -> Result<(), Reason> {
        let limit = self.parts.callers.max_stale;
        if self.parts.live.is_current(limit, now) {
            Ok(())
        } else {
            Err(Reason::HubUnreachable)
        }
    }

    fn ready(&self, target: &TargetCluster) -> Result<Option<Arc<str>>, Refusal> {
        let published = self.parts.published.look();
        let published = published.as_ref().ok_or(Reason::HubUnreachable)?;
        if authorise::issuer_collides(&published.issuer, target) {
            let detail = format!(
                "a target whose own issuer is {} refuses it; {SECOND_ISSUER_FIX}; \
                 {MANAGED_ISSUER_FIX}",
                published.issuer
            );
            return Err(told(Reason::IssuerCollision, detail));
        }
        match self.parts.targets.readiness(target) {
            Readiness::Ready(ca_pem) => Ok(ca_pem),
            Readiness::NotReady { reason, message } => Err(told(reason, message)),
        }
    }
}

fn told(reason: Reason, detail: String) -> Refusal {
    Refusal {
        reason,
        detail: Some(detail),
        retry_after: None,
    }
}

/// Whether a refusal is a decision about the caller or a failure to carry out what was allowed.
fn decision(reason: Reason) -> &'static str {
    use Reason as R;
    match reason {
        reason if reason.is_about_caller() => "denied",
        R::DelegationForbidden
        | R::RateLimited
        | R::RequestInvalid
        | R::TargetNotGranted
        | R::TargetSuspended => "denied",
        _ => "failed",
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
