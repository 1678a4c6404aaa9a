//! Reconciles deliveries: the objects through which accesses reach their consumers, one access at a
//! time.
//!
//! The decisions are in `keyferry_core::delivery`; this module reads, mints and writes, on the
//! leader only. A delivery has no caller: its grant comes from the same authoriser, and is
//! rechecked right before the object is written.

mod access_drain;
mod client_certificate;
mod cluster_profile;
mod conflicting_objects;
mod delivered_token;
mod error;
mod flux_references;
mod last_probe;
mod object;
mod object_write;
mod probe;
mod probe_cache;
mod removal;
mod request_counts;
mod status;
mod target_drain;

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::condition::Finding;
use keyferry_api::config::{Delivery, DeliveryType, Policy, StoredAccess, TargetAccess};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::status::DeliveryStatus;
use keyferry_core::access_status::AccessReport;
use keyferry_core::authorise::{self, Grant, Pair, Requester, Review};
use keyferry_hub::event::EventBudgets;
use keyferry_hub::ports::{HubError, HubFacts};
use keyferry_issuer::client_key::ClientKeys;
use keyferry_issuer::mint::Mint;
use keyferry_platform::audit_sink::AuditSink;

use self::access_drain::FinalizerOutcome;
use self::client_certificate::CertificateRequests;
use self::last_probe::LastProbe;
use self::object::DeliveryOutcome;
pub(crate) use self::probe_cache::MAX_ANSWER_AGE;
use self::probe_cache::ProbeCache;
use crate::context::Context;

/// The longest time between two checks of an access without a known change: its objects may have
/// been edited.
const RECHECK_INTERVAL: Duration = Duration::from_secs(300);

/// Where the credentials in delivered objects come from.
pub struct CredentialSources {
    /// The mint.
    pub mint: Mint,
    /// Makes the keys of client certificates.
    pub client_keys: Arc<dyn ClientKeys>,
    /// Says under which user name the hub knows Keyferry, whose certificate requests are counted.
    pub facts: Arc<dyn HubFacts>,
    /// The audit log that records every issuance.
    pub audit: Arc<dyn AuditSink>,
    /// The activation delay: how long a key must have been published before tokens that it signed
    /// are issued.
    pub activation_delay: Duration,
}

/// Writes, renews and removes the delivered objects of accesses.
pub struct Deliveries {
    context: Arc<Context>,
    credentials: CredentialSources,
    probes: ProbeCache,
    certificates: CertificateRequests,
    events: EventBudgets,
}

/// When to reconcile an access again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Only when something changes.
    OnChange,
    /// After this time, or earlier on a change.
    After(Duration),
    /// Soon, then with growing pauses: the obstacle may pass.
    Retry,
}

impl Next {
    /// Moves the regular check up to a fifth earlier by `jitter`, so that accesses that were
    /// created together are not checked together for ever.
    fn with_jitter(self, jitter: f64) -> Self {
        match self {
            Self::After(pause) if pause == RECHECK_INTERVAL => {
                Self::After(pause.mul_f64(1.0 - 0.2 * jitter.clamp(0.0, 1.0)))
            }
            other => other,
        }
    }
}

/// An access that is being reconciled, with the policy for it.
struct Reconciliation<'a> {
    name: &'a AccessName,
    stored: &'a StoredAccess,
    access: &'a TargetAccess,
    policy: Arc<Policy>,
}

impl Reconciliation<'_> {
    /// Grants a pair to a delivery. The caller has checked that the hub's admission policy checks
    /// the authors of accesses.
    ///
    /// # Errors
    /// The errors of [`authorise::grant_token`].
    fn grant_delivery(&self, delivery: &Delivery, pair: &Pair) -> Result<Grant, Reason> {
        self.grant_to(Requester::Delivery(delivery.name.clone()), pair)
    }

    /// As [`Self::grant_delivery`], to a delivery or a probe.
    fn grant_to(&self, requester: Requester, pair: &Pair) -> Result<Grant, Reason> {
        authorise::grant_token(&self.policy, requester, pair.clone(), Review::AuthorChecked)
    }
}

/// A delivery, with what policy decides about it.
#[derive(Clone)]
struct DeliveryDecision {
    delivery: Delivery,
    pair: Result<Pair, Reason>,
}

impl DeliveryDecision {
    /// Whether policy grants an object for it.
    fn writes_object(&self) -> bool {
        self.pair.is_ok() && self.delivery.object_name.is_some()
    }
}

/// The result of reconciling an access.
struct AccessOutcome {
    authorized: Finding,
    written: Vec<DeliveryOutcome>,
    /// Status entries of objects that could not be deleted.
    left_over: Vec<DeliveryStatus>,
    /// The latest expiry of the tokens that an object contained before or after this run.
    exposed_until: Option<jiff::Timestamp>,
}

impl Deliveries {
    /// Creates the deliveries, with empty caches.
    pub fn new(context: Arc<Context>, credentials: CredentialSources) -> Self {
        Self {
            context,
            credentials,
            probes: ProbeCache::default(),
            certificates: CertificateRequests::default(),
            events: EventBudgets::default(),
        }
    }

    /// Removes the metrics of accesses, and forgets what targets answered, because another replica
    /// leads: its own state would become outdated.
    pub fn not_leading(&self) {
        self.certificates.forget_all();
        self.probes.forget_all();
        self.context.metrics.accesses_gone();
    }

    /// Reconciles one access with the policy, and writes the result into its status.
    pub async fn reconcile(&self, name: &AccessName) -> Next {
        let Some(stored) = self.context.store.access(name) else {
            self.probes.forget_access(name);
            self.certificates.forget_access(name);
            self.context.metrics.access_gone(name);
            return Next::OnChange;
        };
        if !self.context.is_leader() {
            return Next::OnChange;
        }
        let outcome = match (&stored.read, stored.record.deleting) {
            (_, Some(since)) => self.drain_access(name, &stored, since).await,
            (Err(_), None) => self.report_fault(name, &stored).await,
            (Ok(_), None) if self.is_excluded(name, &stored) => {
                self.report_fault(name, &stored).await
            }
            (Ok(access), None) => {
                let run = Reconciliation {
                    name,
                    stored: &stored,
                    access,
                    policy: self.context.policy.current(),
                };
                self.reconcile_access(&run).await
            }
        };
        outcome.unwrap_or_else(|error| {
            match &error {
                // Another writer was first, which is no fault.
                HubError::Conflict(_) | HubError::NotFound(_) => {
                    tracing::info!(access = %name, %error,
                    "the access changed while its result was written; trying again")
                }
                _ => tracing::warn!(access = %name, %error,
                    "the result for the access could not be written; trying again"),
            }
            Next::Retry
        })
    }

    /// Whether policy excludes the access although its spec is valid, as one of too many.
    fn is_excluded(&self, name: &AccessName, stored: &StoredAccess) -> bool {
        let (policy, faults) = (
            self.context.policy.current(),
            self.context.faults.last_assembly(),
        );
        let fault = faults.accesses.get(name);
        !policy.accesses.contains_key(name)
            && fault.is_some_and(|fault| fault.generation == stored.record.spec())
    }

    async fn reconcile_access(&self, run: &Reconciliation<'_>) -> Result<Next, HubError> {
        if !self.policy_knows(run) {
            return Ok(Next::Retry);
        }
        if !run.policy.targets.contains_key(&run.access.target)
            && let Some(draining) = self.context.store.draining_target(&run.access.target)
            && let Some(next) = self.drain_for_deleted_target(run, &draining).await?
        {
            return Ok(next);
        }
        self.certificates.keep_listed(run.access);
        let decisions = self.decide_deliveries(run);
        let finalizer_outcome = if decisions.iter().any(DeliveryDecision::writes_object) {
            self.add_drain_finalizer(run).await?
        } else {
            FinalizerOutcome::Unchanged
        };
        let stored = match &finalizer_outcome {
            FinalizerOutcome::Unchanged => run.stored,
            FinalizerOutcome::Added(stored) => stored,
            FinalizerOutcome::Gone => return Ok(Next::Retry),
        };
        let run = &Reconciliation {
            stored,
            policy: Arc::clone(&run.policy),
            ..*run
        };
        let probe = self.probe_target(run, &decisions).await;
        let written = self.write_objects(run, &decisions, &probe).await;
        let (left_over, removed) = self.remove_unwanted(run).await;
        let exposed_until = written
            .iter()
            .filter_map(|outcome| outcome.exposed_until)
            .chain(removed)
            .max();
        let granted = decisions
            .iter()
            .find_map(|decision| decision.pair.as_ref().ok());
        let outcome = AccessOutcome {
            authorized: authorized_finding(&decisions),
            written,
            left_over,
            exposed_until,
        };
        self.report_access(run, outcome, &probe, granted).await
    }

    /// Whether the policy includes this version of the access, and its target. They may differ for
    /// a moment, and the next change resolves this; until then nothing is written or removed.
    fn policy_knows(&self, run: &Reconciliation<'_>) -> bool {
        run.policy
            .accesses
            .get(run.name)
            .is_some_and(|access| access.generation == run.access.generation)
            && self.context.store.is_in_policy(
                &run.access.target,
                &run.policy,
                &self.context.faults.last_assembly(),
            )
    }

    /// Writes the objects of granted deliveries, and withdraws those of refused ones.
    async fn write_objects(
        &self,
        run: &Reconciliation<'_>,
        decisions: &[DeliveryDecision],
        probe: &LastProbe,
    ) -> Vec<DeliveryOutcome> {
        let mut written = Vec::new();
        for DeliveryDecision { delivery, pair } in decisions {
            if delivery.object_name.is_none() {
                continue;
            }
            written.push(match pair {
                Ok(pair) => self.reconcile_delivery(run, delivery, pair, probe).await,
                Err(reason) => self.withdraw_delivery(run, delivery, *reason).await,
            });
        }
        written
    }

    /// Returns each delivery with policy's decision. An access without deliveries gets those types
    /// that it offers by itself.
    fn decide_deliveries(&self, run: &Reconciliation<'_>) -> Vec<DeliveryDecision> {
        let (policy, live) = (&*run.policy, &*self.context.live);
        let decide = |delivery: &Delivery| {
            let pair = match delivery.object_name {
                Some(_) => authorise::delivery_pair(policy, live, run.name, &delivery.name),
                None => authorise::authorise_request(
                    policy,
                    live,
                    &Requester::Operator,
                    run.name,
                    delivery.delivery_type,
                ),
            };
            DeliveryDecision {
                delivery: delivery.clone(),
                pair,
            }
        };
        if !run.access.deliveries.is_empty() {
            return run.access.deliveries.iter().map(decide).collect();
        }
        // One granted type is enough if the access names none.
        let shapes = [("http", DeliveryType::HTTP), ("exec", DeliveryType::Exec)];
        let offered = shapes.iter().filter_map(|(name, shape)| {
            let name = keyferry_api::name::ObjectName::new(*name).ok()?;
            Some(decide(&Delivery {
                name,
                delivery_type: *shape,
                object_name: None,
                lifetime: None,
                argo_cd: None,
                secret: None,
            }))
        });
        let offered: Vec<_> = offered.collect();
        let granted: Vec<_> = offered
            .iter()
            .filter(|decision| decision.pair.is_ok())
            .cloned()
            .collect();
        if granted.is_empty() { offered } else { granted }
    }

    async fn report_access(
        &self,
        run: &Reconciliation<'_>,
        outcome: AccessOutcome,
        probe: &LastProbe,
        granted: Option<&Pair>,
    ) -> Result<Next, HubError> {
        let AccessOutcome {
            authorized,
            written,
            left_over,
            exposed_until,
        } = outcome;
        let now = self.context.clock.now().wall;
        // `Authorized` already reports what policy refused from the start, but not what it withdrew
        // during the write.
        let refused = |outcome: &&DeliveryOutcome| {
            outcome.report.reason == Reason::TargetNotGranted && !authorized.is_true()
        };
        let blocked = written
            .iter()
            .find(|outcome| outcome.report.reason != Reason::Ready && !refused(outcome));
        let delivered = match (blocked, left_over.is_empty()) {
            (Some(outcome), _) => Finding::failed(
                outcome.report.reason,
                format!(
                    "{}: {}",
                    outcome.report.delivery.name, outcome.report.message
                ),
            ),
            (None, false) => Finding::failed(
                Reason::DeliveryFailed,
                "an object that is no longer wanted could not be deleted",
            ),
            (None, true) => Finding::ok("every object is up to date"),
        };
        let retries = !left_over.is_empty() || written.iter().any(|outcome| outcome.retry);
        let next = next_reconciliation(&written, &left_over, probe, now)
            .with_jitter(self.context.random.unit_fraction());
        let earlier = status::exposure_until(&run.stored.record.status);
        let exposure_until = exposed_until.into_iter().chain(earlier).max();
        let report = AccessReport {
            passes: retries && authorized.is_true(),
            authorized,
            delivered,
            reachable: probe.reachable_finding(),
            authenticates: probe.authenticates_finding(),
            silence: probe.silence_cause(),
            probed_at: probe.asked_at(),
            identity: probe.target_identity(),
            deliveries: written.into_iter().map(|outcome| outcome.report).collect(),
            left_over,
            exposure_until: exposure_until.filter(|until| *until > now),
            handled: run.stored.record.requested_at.clone(),
        };
        let cluster = granted.and_then(|pair| self.cluster_status(&run.policy, pair));
        self.write_status(run.name, run.stored, &report, cluster)
            .await?;
        Ok(next)
    }
}

/// Reports which deliveries policy refuses.
fn authorized_finding(decisions: &[DeliveryDecision]) -> Finding {
    let refused: Vec<&str> = decisions
        .iter()
        .filter(|decision| decision.pair.is_err())
        .map(|decision| decision.delivery.name.as_str())
        .collect();
    if refused.is_empty() {
        return Finding::ok("policy grants every delivery");
    }
    let message = format!(
        "no TargetCluster grants this to the access and its ServiceAccount: {}",
        refused.join(", ")
    );
    Finding::failed(Reason::TargetNotGranted, message)
}

/// Returns the time of the next reconciliation, the earliest of all that is due. What policy
/// refuses is not retried: a change of policy is noticed, and a tenant could otherwise cause many
/// retries.
fn next_reconciliation(
    written: &[DeliveryOutcome],
    left_over: &[DeliveryStatus],
    probe: &LastProbe,
    now: jiff::Timestamp,
) -> Next {
    if !left_over.is_empty()
        || written
            .iter()
            .any(|outcome| outcome.retry && outcome.retry_after.is_none())
    {
        return Next::Retry;
    }
    // One second later than reported: a second too early would cost another run.
    let active = written
        .iter()
        .filter_map(|outcome| outcome.retry_after)
        .map(|left| left.saturating_add(Duration::from_secs(1)));
    // A delivery that is retried is not due by the token that it could not replace.
    let renewals = written
        .iter()
        .filter(|outcome| !outcome.retry)
        .filter_map(|outcome| outcome.report.token.as_ref())
        .map(|token| {
            let left = token.renew_at.duration_since(now);
            Duration::try_from(left)
                .unwrap_or_default()
                .max(Duration::from_secs(1))
        });
    Next::After(
        renewals
            .chain(active)
            .chain(probe.next_probe())
            .chain([RECHECK_INTERVAL])
            .min()
            .unwrap_or(RECHECK_INTERVAL),
    )
}

#[cfg(test)]
mod probe_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests;
