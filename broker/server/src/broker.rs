//! Handles a token request: decides whether the caller gets its access, and issues a token or
//! refuses with a reason.
//!
//! The order is fixed: authenticate the caller, match the request to policy, review a delegation,
//! then check the rest. So only an authorised caller learns the state of its target. Before
//! issuance, policy and the live objects are rechecked, in case they changed meanwhile.

mod request;

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::{Policy, TargetCluster};
use keyferry_api::moment::Moment;
use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_core::audit::{AuditRecord, RefusedCertificate, TokenNote};
use keyferry_core::authorise::{self, Grant, Pair, Requester, Review, Via};
use keyferry_core::caller::{CallerRefusal, VerifiedCaller};
use keyferry_core::inputs::credential::InputCaller;
use keyferry_core::request_id::RequestId;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::targets::TargetReader;
use keyferry_issuer::advice;
use keyferry_issuer::mint::{FromCache, Mint, Minted};
use keyferry_issuer::publication::PublicationReader;
use keyferry_issuer::settings::CallerSettings;
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_listener::Source;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::PolicyReader;
use keyferry_platform::random::Random;
use tokio::time::timeout;

use crate::authenticate::{Authentication, Authenticator, CertificateRefusal};
use crate::delegate::Delegations;
use crate::external_callers::ExternalCallers;
use crate::refusal_budget::RefusalBudget;
use crate::refusal_summary::{RefusalSummary, SummarisedRefusal};

use self::request::decision_of;
pub use self::request::{Credential, Issuance, Refusal, Request};

/// The deadline of a decision. Each call that it waits for has a shorter limit of its own, but
/// several in sequence may exceed this one.
const DECISION_DEADLINE: Duration = Duration::from_secs(30);

/// The dependencies of a [`Broker`].
pub struct BrokerParts {
    /// The active policy.
    pub policy: PolicyReader,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The published issuer.
    pub published: PublicationReader,
    /// The targets' CA certificates.
    pub targets: TargetReader,
    /// Authenticates callers.
    pub authenticator: Authenticator,
    /// The callers of external issuers, if any is configured.
    pub external: Option<Arc<ExternalCallers>>,
    /// Reviews whether a caller may act for another ServiceAccount.
    pub delegations: Delegations,
    /// The mint.
    pub mint: Mint,
    /// The audit log that records every decision.
    pub audit: Arc<dyn AuditSink>,
    /// The clock for deadlines and audit timestamps.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for request ids.
    pub random: Arc<dyn Random>,
    /// Counts requests by decision and reason.
    pub metrics: Metrics,
    /// The requirements on all callers.
    pub callers: CallerSettings,
}

/// A request that has no decision yet. If it is dropped, because its caller hung up, it is still
/// audited.
struct Pending<'a> {
    broker: &'a Broker,
    source: Source,
    record: Option<AuditRecord>,
}

impl Pending<'_> {
    /// The caller, if it is known.
    fn caller(&self) -> Option<VerifiedCaller> {
        self.record.as_ref()?.caller.clone()
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let caller = self.caller();
        let Some(mut record) = self.record.take() else {
            return;
        };
        let (parts, reason) = (&self.broker.parts, Reason::CallerGone);
        parts.metrics.count_request(decision_of(reason), reason);
        if let Some(caller) = &caller
            && !self.broker.is_within_budget(caller)
        {
            self.broker.summary.count_refusal(SummarisedRefusal {
                decision: decision_of(reason),
                reason,
                source: self.source,
                namespace: Some(&caller.identity().account.namespace),
            });
            return;
        }
        record.time = parts.clock.now().wall;
        record.set_decision(decision_of(reason), reason);
        // A failed write needs no reaction here: nothing was issued.
        drop(parts.audit.record(&record));
    }
}

/// Decides on token requests, audits each decision and issues tokens.
pub struct Broker {
    parts: BrokerParts,
    refusal_budget: RefusalBudget,
    summary: RefusalSummary,
}

/// A client certificate that identified no reader of fleet inputs.
#[derive(Debug)]
pub(crate) struct RefusedInputCertificate {
    chain: Arc<PresentedChain>,
    refusal: CertificateRefusal,
}

/// A granted request, with what its audit record needs.
struct Granted {
    issue: Issuance,
    grant: Grant,
    from_cache: FromCache,
    at: Moment,
}

impl Broker {
    /// Creates a broker from its dependencies.
    pub fn new(parts: BrokerParts) -> Self {
        let summary = RefusalSummary::new(
            Arc::clone(&parts.audit),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.random),
        );
        Self {
            parts,
            refusal_budget: RefusalBudget::default(),
            summary,
        }
    }

    /// Draws a random id for a request.
    pub fn request_id(&self) -> RequestId {
        self.parts.random.request_id()
    }

    /// Decides on a request, records the decision, and only then issues.
    ///
    /// # Errors
    /// [`Refusal`]. Every request gets one audit record, except those refused by the rate limit and
    /// refusals beyond the budget of their namespace: summary records cover them. If a record cannot
    /// be written, nothing is issued.
    pub async fn issue_credential(&self, request: &Request<'_>) -> Result<Issuance, Refusal> {
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
            broker: self,
            source: request.source,
            record: Some(record),
        };
        let outcome = match &mut pending.record {
            Some(record) => {
                let decided =
                    timeout(DECISION_DEADLINE, self.decide_request(request, record)).await;
                decided.unwrap_or(Err(Reason::DecisionTimedOut.into()))
            }
            None => Err(Reason::CallerGone.into()),
        };
        if let Err(refusal) = &outcome
            && refusal.reason == Reason::RateLimited
            && pending.caller().is_none()
        {
            pending.record = None;
            return Err(self.rate_limited(request.source).await);
        }
        if let Err(refusal) = &outcome
            && let Some(caller) = pending.caller()
            && !self.is_within_budget(&caller)
        {
            pending.record = None;
            let refusal = refusal.clone();
            let namespace = &caller.identity().account.namespace;
            return Err(self
                .refuse_beyond_budget(refusal, namespace, request.source)
                .await);
        }
        let (outcome, recording) = self.complete_record(pending, outcome);
        let outcome = match recording.await {
            Ok(()) => outcome,
            // A refusal keeps its reason: to withhold it would not be any safer.
            Err(_) => outcome.and(Err(Reason::AuditUnavailable.into())),
        };
        match &outcome {
            Ok(_) => self.parts.metrics.count_request("granted", Reason::Ready),
            Err(refusal) => self
                .parts
                .metrics
                .count_request(decision_of(refusal.reason), refusal.reason),
        }
        outcome
    }

    /// Completes the audit record with the outcome and submits it to the log.
    fn complete_record(
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
                record.token = Some(TokenNote::of_token(&issue.token));
                record.cache = Some(if from_cache == FromCache::Hit {
                    "hit"
                } else {
                    "miss"
                });
                record.set_decision("granted", Reason::Ready);
                Ok(issue)
            }
            Err(refusal) => {
                record.time = self.parts.clock.now().wall;
                record.set_decision(decision_of(refusal.reason), refusal.reason);
                Err(refusal)
            }
        };
        let recording = self.parts.audit.record(&record);
        (outcome, recording)
    }

    /// Refuses a request that exceeds the limit of its source, namespace or credential. A summary
    /// record counts it.
    pub(crate) async fn rate_limited(&self, source: Source) -> Refusal {
        self.parts
            .metrics
            .count_request(decision_of(Reason::RateLimited), Reason::RateLimited);
        self.summary.count_refusal(SummarisedRefusal {
            decision: decision_of(Reason::RateLimited),
            reason: Reason::RateLimited,
            source,
            namespace: None,
        });
        self.parts.authenticator.delay_refusal().await;
        Reason::RateLimited.into()
    }

    fn is_within_budget(&self, caller: &VerifiedCaller) -> bool {
        let now = self.parts.clock.now().mono;
        self.refusal_budget.count_refusal(caller.identity(), now)
    }

    /// Refuses a known caller whose namespace was refused too often in the last seconds: without a
    /// record of its own, and after a moment. A request that policy denies gets 429. One
    /// that failed keeps its reason, because its caller does nothing wrong.
    async fn refuse_beyond_budget(
        &self,
        refusal: Refusal,
        namespace: &Namespace,
        source: Source,
    ) -> Refusal {
        let refusal = match decision_of(refusal.reason) {
            "denied" => Reason::RateLimited.into(),
            _ => refusal,
        };
        let decision = decision_of(refusal.reason);
        self.parts.metrics.count_request(decision, refusal.reason);
        self.summary.count_refusal(SummarisedRefusal {
            decision,
            reason: refusal.reason,
            source,
            namespace: Some(namespace),
        });
        self.refusal_budget.delay_refusal().await;
        refusal
    }

    /// Audits a request without a decision: it is malformed or carries no caller token.
    ///
    /// # Errors
    /// [`Reason::RateLimited`]: its source sent too many of them, so a summary record counts this
    /// one.
    pub async fn audit_refusal(
        &self,
        route: &'static str,
        reason: Reason,
        request_id: RequestId,
        source: Source,
    ) -> Result<(), Refusal> {
        if self.parts.authenticator.count_unreadable(source).is_err() {
            return Err(self.rate_limited(source).await);
        }
        let record = AuditRecord {
            request_id,
            route,
            ..AuditRecord::default()
        };
        self.record_refusal(record, reason).await;
        Ok(())
    }

    /// Audits a request for fleet inputs whose client certificate was refused. The request was
    /// counted towards the limit of its source when the certificate was checked.
    ///
    /// # Errors
    /// [`Reason::RateLimited`]: the certificate was not checked for that.
    pub(crate) async fn refuse_input_certificate(
        &self,
        route: &'static str,
        refused: &RefusedInputCertificate,
        request_id: RequestId,
        source: Source,
    ) -> Result<(), Refusal> {
        let CertificateRefusal { reason, fault } = refused.refusal;
        if reason == Reason::RateLimited {
            return Err(self.rate_limited(source).await);
        }
        let record = AuditRecord {
            request_id,
            route,
            refused_certificate: fault.map(|fault| RefusedCertificate {
                fingerprint: refused.chain.fingerprint().into(),
                fault,
            }),
            ..AuditRecord::default()
        };
        self.record_refusal(record, Reason::InputCredentialRejected)
            .await;
        Ok(())
    }

    async fn record_refusal(&self, mut record: AuditRecord, reason: Reason) {
        record.time = self.parts.clock.now().wall;
        record.set_decision(decision_of(reason), reason);
        // The request is refused even if the record cannot be written.
        let _ = self.parts.audit.record(&record).await;
        self.parts
            .metrics
            .count_request(decision_of(reason), reason);
    }

    /// Identifies a reader of fleet inputs by its client certificate.
    ///
    /// # Errors
    /// [`RefusedInputCertificate`].
    pub(crate) async fn input_caller(
        &self,
        chain: Arc<PresentedChain>,
        source: Source,
    ) -> Result<InputCaller, RefusedInputCertificate> {
        let authenticator = &self.parts.authenticator;
        let identified = authenticator
            .authenticate_input_certificate(&chain, source)
            .await;
        identified.map_err(|refusal| RefusedInputCertificate { chain, refusal })
    }

    async fn decide_request(
        &self,
        request: &Request<'_>,
        record: &mut AuditRecord,
    ) -> Result<Granted, Refusal> {
        let caller = self.authenticate_caller(request, record).await?;
        record.caller = Some(caller.caller.clone());
        record.stale = caller.stale;
        let now = self.parts.clock.now().mono;
        if self
            .refusal_budget
            .is_overrun(caller.caller.identity(), now)
        {
            return Err(Reason::RateLimited.into());
        }
        // Tries once more if the configuration changed to another grant meanwhile: the minted token
        // belongs to the earlier grant.
        match self.attempt_issuance(&caller, request, record).await {
            Err(refusal) if refusal.reason == Reason::GrantSuperseded => {
                self.attempt_issuance(&caller, request, record).await
            }
            outcome => outcome,
        }
    }

    async fn authenticate_caller(
        &self,
        request: &Request<'_>,
        record: &mut AuditRecord,
    ) -> Result<Authentication, Refusal> {
        let authenticator = &self.parts.authenticator;
        match &request.credential {
            Credential::Token(token) => authenticator
                .authenticate(token, request.source)
                .await
                .map_err(|CallerRefusal { reason, claim }| {
                    let refusal = Refusal {
                        detail: claim
                            .as_ref()
                            .map(|claim| format!("no rule accepts its claim {}", claim.disclosed)),
                        ..reason.into()
                    };
                    record.refused_claim = claim;
                    refusal
                }),
            Credential::Certificate(chain) => authenticator
                .authenticate_certificate(chain, request.source)
                .await
                .map_err(|refusal| {
                    record.refused_certificate = refusal.fault.map(|fault| RefusedCertificate {
                        fingerprint: chain.fingerprint().into(),
                        fault,
                    });
                    refusal.reason.into()
                }),
        }
    }

    async fn attempt_issuance(
        &self,
        caller: &Authentication,
        request: &Request<'_>,
        record: &mut AuditRecord,
    ) -> Result<Granted, Refusal> {
        let requester = Requester::Caller(caller.caller.clone());
        let policy = self.parts.policy.current();
        let now = self.parts.clock.now();
        self.check_current(now)?;
        let pair = self.allowed_pair(&policy, &requester, request)?;
        let review = self.review_delegation(caller, &pair, record).await?;
        let grant = authorise::grant_token(&policy, requester, pair.clone(), review)
            .map_err(|reason| self.advise_refusal(reason, &pair))?;
        let target = policy
            .targets
            .get(grant.pair().target())
            .ok_or(Reason::TargetNotGranted)?;
        request.require_cluster(target)?;
        request.require_scope(target)?;
        let ca_pem = self.ready_ca(target)?;
        let min_ttl = request.allowed_min_ttl(&grant)?;
        let Minted { token, from_cache } =
            self.parts
                .mint
                .token(&grant, min_ttl)
                .await
                .map_err(|error| Refusal {
                    retry_after: error.retry_after(),
                    ..self.advise_refusal(error.reason(), &pair)
                })?;
        let now = self.parts.clock.now();
        self.check_current(now)?;
        // Policy and the live objects may have changed during a review or a mint.
        authorise::still_holds(&self.parts.policy.borrow(), &*self.parts.live, &grant)?;
        let usable = token.remaining_lifetime(now).ok_or(Reason::MintFailed)?;
        if usable < min_ttl {
            let detail = format!(
                "min_ttl is more than the lifetime of the hub's tokens: this one has {} s left",
                usable.as_secs()
            );
            return Err(Refusal::with_detail(Reason::RequestInvalid, detail));
        }
        if let Some(external) = &self.parts.external {
            external.use_up(&caller.caller)?;
        }
        Ok(Granted {
            issue: Issuance {
                token,
                remaining_lifetime: usable,
                target: pair.target().clone(),
                policy,
                ca_pem,
            },
            grant,
            from_cache,
            at: now,
        })
    }

    /// Returns the hub's review of the caller's delegation, where the pair needs one.
    async fn review_delegation(
        &self,
        caller: &Authentication,
        pair: &Pair,
        record: &mut AuditRecord,
    ) -> Result<Review, Reason> {
        match pair.via() {
            Via::Itself | Via::Author => Ok(Review::NotAsked),
            // The caller is refused in any case, so the hub is not asked.
            Via::Delegate if caller.caller.external().is_some() => Ok(Review::Refused),
            Via::Delegate => {
                let delegation = self
                    .parts
                    .delegations
                    .review_delegation(caller, &pair.service_account().account)
                    .await?;
                record.stale |= delegation.stale;
                Ok(delegation.review)
            }
        }
    }

    /// Adds to a refusal what blocks the request and how to fix it. This text reaches only callers
    /// to which policy grants the pair.
    fn advise_refusal(&self, reason: Reason, pair: &Pair) -> Refusal {
        let policy = self.parts.policy.current();
        Refusal {
            reason,
            detail: advice::advice_on(reason, pair, policy.own_namespace.as_ref()),
            retry_after: None,
        }
    }

    /// Returns the pair for the first of the request's delivery types that policy allows.
    fn allowed_pair(
        &self,
        policy: &Policy,
        requester: &Requester,
        request: &Request<'_>,
    ) -> Result<Pair, Reason> {
        let mut outcome = Err(Reason::TargetNotGranted);
        for delivery in request.deliveries {
            outcome = authorise::authorise_request(
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

    /// Checks that the watches are recent enough to decide on.
    fn check_current(&self, now: Moment) -> Result<(), Reason> {
        let limit = self.parts.callers.max_stale;
        if self.parts.live.is_current(limit, now) {
            Ok(())
        } else {
            Err(Reason::HubUnreachable)
        }
    }

    /// Returns the target's CA certificates, if tokens can be issued for it.
    fn ready_ca(&self, target: &TargetCluster) -> Result<Option<Arc<str>>, Refusal> {
        let published = self.parts.published.borrow_current();
        let issuer = published.as_ref().map(|published| &published.issuer);
        let ready = self.parts.targets.ready_ca(target, issuer);
        ready.map_err(|error| {
            let detail = match error.fix() {
                Some(fix) => format!("{error}; {fix}"),
                None => error.to_string(),
            };
            Refusal::with_detail(error.reason(), detail)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
