//! Reconciles deliveries: the objects through which accesses reach their consumers, one access at a
//! time.
//!
//! The decisions are in `keyferry_core::delivery`; this module reads, mints and writes, on the
//! leader only. A delivery has no caller: its grant comes from the same authoriser, and is
//! rechecked right before the object is written.

mod client_certificate;
mod cluster_profile;
mod delivered_token;
mod drain;
mod flux_references;
mod hindrance;
mod neighbours;
mod probe;
mod remove;
mod report;
mod target_drain;
mod write;

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::condition::Finding;
use keyferry_api::config::{Delivery, DeliveryType, Policy, StoredAccess, TargetAccess};
use keyferry_api::name::AccessName;
use keyferry_api::reason::Reason;
use keyferry_api::status::DeliveryStatus;
use keyferry_core::access_status::AccessReport;
use keyferry_core::authorise::{self, Grant, Pair, Requester, Review};
use keyferry_hub::admission_policy::AdmissionPolicyReader;
use keyferry_hub::event::EventBudgets;
use keyferry_hub::leadership::LeadershipReader;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_hub::ports::{HubError, HubFacts, HubObjects};
use keyferry_hub::targets::TargetReader;
use keyferry_issuer::client_key::ClientKeys;
use keyferry_issuer::mint::Mint;
use keyferry_issuer::publication::PublicationReader;
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::PolicyReader;
use keyferry_platform::random::Random;
use keyferry_platform::target_probe::TargetProbe;

use self::client_certificate::CertificateRequests;
use self::drain::Kept;
pub(crate) use self::probe::MAX_ANSWER_AGE;
use self::probe::Probes;
use self::write::Written;

/// The longest time between two checks of an access without a known change: its objects may have
/// been edited.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// The dependencies of [`Deliveries`].
pub struct DeliveryParts {
    /// The active policy.
    pub policy: PolicyReader,
    /// The hub's accesses and targets.
    pub store: Arc<ObjectStore>,
    /// The objects that are excluded from the policy, with their mistakes.
    pub faults: Faults,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The published issuer.
    pub published: PublicationReader,
    /// The targets' CA certificates.
    pub targets: TargetReader,
    /// The mint.
    pub mint: Mint,
    /// Whether authors of accesses are checked.
    pub admission_policy: AdmissionPolicyReader,
    /// Reads and writes the hub's objects.
    pub objects: Arc<dyn HubObjects>,
    /// Says under which user name the hub knows Keyferry.
    pub facts: Arc<dyn HubFacts>,
    /// Tests whether targets accept a token.
    pub probe: Arc<dyn TargetProbe>,
    /// The audit log that records every issuance.
    pub audit: Arc<dyn AuditSink>,
    /// The clock for renewals and leadership.
    pub clock: Arc<dyn Clock>,
    /// Makes the keys of client certificates.
    pub client_keys: Arc<dyn ClientKeys>,
    /// Randomness, for the jitter of renewals and the names of Events.
    pub random: Arc<dyn Random>,
    /// Reports the state of each access.
    pub metrics: Metrics,
    /// Whether this replica leads.
    pub leadership: LeadershipReader,
    /// The activation delay: how long a key must have been published before tokens that it signed
    /// are issued.
    pub activation_delay: Duration,
}

/// Writes, renews and removes the delivered objects of accesses.
pub struct Deliveries {
    parts: DeliveryParts,
    probes: Probes,
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
    fn spread(self, jitter: f64) -> Self {
        match self {
            Self::After(pause) if pause == LOOK_AGAIN => {
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
    /// The errors of [`authorise::grant`].
    fn grant(&self, delivery: &Delivery, pair: &Pair) -> Result<Grant, Reason> {
        self.grant_to(Requester::Delivery(delivery.name.clone()), pair)
    }

    /// As [`Self::grant`], to a delivery or a probe.
    fn grant_to(&self, requester: Requester, pair: &Pair) -> Result<Grant, Reason> {
        authorise::grant(&self.policy, requester, pair.clone(), Review::AuthorChecked)
    }
}

/// The result of reconciling an access.
struct Outcome {
    authorized: Finding,
    written: Vec<Written>,
    /// Status entries of objects that could not be deleted.
    left_over: Vec<DeliveryStatus>,
    /// The latest expiry of the tokens that an object contained before or after this run.
    exposed: Option<jiff::Timestamp>,
}

impl Deliveries {
    /// Creates the deliveries from their dependencies.
    pub fn new(parts: DeliveryParts) -> Self {
        Self {
            parts,
            probes: Probes::default(),
            certificates: CertificateRequests::default(),
            events: EventBudgets::default(),
        }
    }

    /// Removes the metrics of accesses, and forgets what targets answered, because another replica
    /// leads: its own state would become outdated.
    pub fn not_leading(&self) {
        self.certificates.forget_all();
        self.probes.forget_all();
        self.parts.metrics.accesses_gone();
    }

    /// Reconciles one access with the policy, and writes the result into its status.
    pub async fn reconcile(&self, name: &AccessName) -> Next {
        let Some(stored) = self.parts.store.access(name) else {
            self.probes.forget(name);
            self.certificates.forget(name);
            self.parts.metrics.access_gone(name);
            return Next::OnChange;
        };
        if !self.leads() {
            return Next::OnChange;
        }
        let outcome = match (&stored.read, stored.record.deleting) {
            (_, Some(since)) => self.drain(name, &stored, since).await,
            (Err(_), None) => self.report_fault(name, &stored).await,
            (Ok(_), None) if self.is_left_out(name, &stored) => {
                self.report_fault(name, &stored).await
            }
            (Ok(access), None) => {
                let round = Reconciliation {
                    name,
                    stored: &stored,
                    access,
                    policy: self.parts.policy.current(),
                };
                self.bring(&round).await
            }
        };
        outcome.unwrap_or_else(|error| {
            match &error {
                // Another writer was first, which is no fault.
                HubError::Conflict(_) => tracing::info!(access = %name, %error,
                    "the access changed while its result was written; trying again"),
                _ => tracing::warn!(access = %name, %error,
                    "the result for the access could not be written; trying again"),
            }
            Next::Retry
        })
    }

    /// Whether policy excludes the access although its spec is valid, as one of too many.
    fn is_left_out(&self, name: &AccessName, stored: &StoredAccess) -> bool {
        let (policy, faults) = (self.parts.policy.current(), self.parts.faults.current());
        let fault = faults.accesses.get(name);
        !policy.accesses.contains_key(name)
            && fault.is_some_and(|fault| fault.generation == stored.record.spec())
    }

    fn leads(&self) -> bool {
        self.parts.leadership.leads(self.parts.clock.now())
    }

    async fn bring(&self, round: &Reconciliation<'_>) -> Result<Next, HubError> {
        // The object and the policy may differ for a moment; the next change resolves this.
        if round
            .policy
            .accesses
            .get(round.name)
            .is_none_or(|access| access.generation != round.access.generation)
        {
            return Ok(Next::Retry);
        }
        // Nor is anything removed for a target that the policy does not include yet.
        if !self.parts.store.is_taken_in(
            &round.access.target,
            &round.policy,
            &self.parts.faults.current(),
        ) {
            return Ok(Next::Retry);
        }
        if !round.policy.targets.contains_key(&round.access.target)
            && let Some(draining) = self.parts.store.draining(&round.access.target)
            && let Some(next) = self.outlast(round, &draining).await?
        {
            return Ok(next);
        }
        self.certificates.keep_listed(round.access);
        let pairs = self.pairs(round);
        let refused: Vec<&str> = pairs
            .iter()
            .filter(|(_, pair)| pair.is_err())
            .map(|(delivery, _)| delivery.name.as_str())
            .collect();
        let authorized = if refused.is_empty() {
            Finding::well("policy grants every delivery")
        } else {
            let message = format!(
                "no TargetCluster grants this to the access and its ServiceAccount: {}",
                refused.join(", ")
            );
            Finding::not(Reason::TargetNotGranted, message)
        };
        let writing = pairs
            .iter()
            .any(|(delivery, pair)| pair.is_ok() && delivery.object_name.is_some());
        let kept = if writing {
            self.keep_for_drain(round).await?
        } else {
            Kept::Already
        };
        let stored = match &kept {
            Kept::Already => round.stored,
            Kept::Now(stored) => stored,
            Kept::Gone => return Ok(Next::Retry),
        };
        let round = &Reconciliation {
            stored,
            policy: Arc::clone(&round.policy),
            ..*round
        };
        let probe = self.probe(round, &pairs).await;
        let mut written = Vec::new();
        for (delivery, pair) in pairs
            .iter()
            .filter(|(delivery, _)| delivery.object_name.is_some())
        {
            written.push(match pair {
                Ok(pair) => self.write(round, delivery, pair, &probe).await,
                Err(reason) => self.withdraw(round, delivery, *reason).await,
            });
        }
        let (left_over, removed) = self.remove_unwanted(round).await;
        let exposed = written
            .iter()
            .filter_map(|one| one.exposed)
            .chain(removed)
            .max();
        let granted = pairs.iter().find_map(|(_, pair)| pair.as_ref().ok());
        self.report(
            round,
            Outcome {
                authorized,
                written,
                left_over,
                exposed,
            },
            &probe,
            granted,
        )
        .await
    }

    /// Returns each delivery with policy's decision. An access without deliveries gets those types
    /// that it offers by itself.
    fn pairs(&self, round: &Reconciliation<'_>) -> Vec<(Delivery, Result<Pair, Reason>)> {
        let (policy, live) = (&*round.policy, &*self.parts.live);
        let one = |delivery: &Delivery| {
            let pair = match delivery.object_name {
                Some(_) => authorise::delivery_pair(policy, live, round.name, &delivery.name),
                None => authorise::pair(
                    policy,
                    live,
                    &Requester::Operator,
                    round.name,
                    delivery.delivery_type,
                ),
            };
            (delivery.clone(), pair)
        };
        if !round.access.deliveries.is_empty() {
            return round.access.deliveries.iter().map(one).collect();
        }
        // One granted type is enough if the access names none.
        let shapes = [("http", DeliveryType::HTTP), ("exec", DeliveryType::Exec)];
        let offered = shapes.iter().filter_map(|(name, shape)| {
            let name = keyferry_api::name::ObjectName::new(*name).ok()?;
            Some(one(&Delivery {
                name,
                delivery_type: *shape,
                object_name: None,
                lifetime: None,
                argo_cd: None,
            }))
        });
        let offered: Vec<_> = offered.collect();
        let granted: Vec<_> = offered
            .iter()
            .filter(|(_, pair)| pair.is_ok())
            .cloned()
            .collect();
        if granted.is_empty() { offered } else { granted }
    }

    async fn report(
        &self,
        round: &Reconciliation<'_>,
        outcome: Outcome,
        probe: &probe::LastProbe,
        granted: Option<&Pair>,
    ) -> Result<Next, HubError> {
        let Outcome {
            authorized,
            written,
            left_over,
            exposed,
        } = outcome;
        let now = self.parts.clock.now().wall;
        // `Authorized` already reports what policy refused from the start, but not what it withdrew
        // during the write.
        let refused =
            |one: &&Written| one.report.reason == Reason::TargetNotGranted && !authorized.holds();
        let hindered = written
            .iter()
            .find(|one| one.report.reason != Reason::Ready && !refused(one));
        let delivered = match (hindered, left_over.is_empty()) {
            (Some(one), _) => Finding::not(
                one.report.reason,
                format!("{}: {}", one.report.delivery.name, one.report.message),
            ),
            (None, false) => Finding::not(
                Reason::DeliveryFailed,
                "an object that is no longer wanted could not be deleted",
            ),
            (None, true) => Finding::well("every object is up to date"),
        };
        let retries = !left_over.is_empty() || written.iter().any(|one| one.retry);
        let next = next(&written, &left_over, probe, now).spread(self.parts.random.unit());
        let earlier = report::exposure(&round.stored.record.status);
        let exposure_until = exposed.into_iter().chain(earlier).max();
        let report = AccessReport {
            passes: retries && authorized.holds(),
            authorized,
            delivered,
            reachable: probe.reachable(),
            authenticates: probe.authenticates(),
            silence: probe.silence(),
            probed_at: probe.asked_at(),
            identity: probe.identity(),
            deliveries: written.into_iter().map(|one| one.report).collect(),
            left_over,
            exposure_until: exposure_until.filter(|until| *until > now),
            handled: round.stored.record.requested_at.clone(),
        };
        let cluster = granted.and_then(|pair| self.cluster(&round.policy, pair));
        self.write_status(round.name, round.stored, &report, cluster)
            .await?;
        Ok(next)
    }
}

/// Returns the time of the next reconciliation, the earliest of all that is due. What policy
/// refuses is not retried: a change of policy is noticed, and a tenant could otherwise cause many
/// retries.
fn next(
    written: &[Written],
    left_over: &[DeliveryStatus],
    probe: &probe::LastProbe,
    now: jiff::Timestamp,
) -> Next {
    if !left_over.is_empty()
        || written
            .iter()
            .any(|one| one.retry && one.retry_after.is_none())
    {
        return Next::Retry;
    }
    // One second later than reported: a second too early would cost another run.
    let active = written
        .iter()
        .filter_map(|one| one.retry_after)
        .map(|left| left.saturating_add(Duration::from_secs(1)));
    // A delivery that is retried is not due by the token that it could not replace.
    let renewals = written
        .iter()
        .filter(|one| !one.retry)
        .filter_map(|one| one.report.token.as_ref())
        .map(|token| {
            let left = token.renew_at.duration_since(now);
            Duration::try_from(left)
                .unwrap_or_default()
                .max(Duration::from_secs(1))
        });
    Next::After(
        renewals
            .chain(active)
            .chain(probe.next())
            .chain([LOOK_AGAIN])
            .min()
            .unwrap_or(LOOK_AGAIN),
    )
}

#[cfg(test)]
mod probe_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests;
