//! Compares the hub's admission policies with the shipped ones, again and again. Without
//! `keyferry-author` no token is written to an object. What is open without each of the others
//! stands in the statuses of the targets, the metrics and the log; nothing else is taken away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keyferry_core::admission_policy::{self, AdmissionPolicy, HubSite};
use keyferry_core::delivery::ReadObject;
use keyferry_core::reason::Reason;
use serde_json::Value;

use crate::admission_policy::{AdmissionPolicyReader, AdmissionPolicyWriter, Standing};
use crate::clock::Clock;
use crate::controller::pairing_trial::PairingTrial;
use crate::leadership::LeadershipReader;
use crate::metrics::Metrics;
use crate::ports::{HubError, HubFacts, HubObjects};
use crate::publication::PublicationReader;

const INTERVAL: Duration = Duration::from_secs(20);
/// How often the policies are compared on which no delivery rests.
pub(super) const OTHERS: Duration = Duration::from_secs(60);
/// How often the hub is asked for its audiences: they change with a restart of its apiserver.
const FACTS: Duration = Duration::from_secs(3600);
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// What it goes by.
pub struct AdmissionPolicyChecks {
    /// Of `keyferry-author`.
    pub author: AdmissionPolicyWriter,
    /// Of `keyferry-pairing`.
    pub pairing: AdmissionPolicyWriter,
    /// Of `keyferry-labels`.
    pub labels: AdmissionPolicyWriter,
    /// Of all the others.
    pub others: OtherAdmissionPolicies,
    /// Tries what `keyferry-pairing` does.
    pub trial: PairingTrial,
    /// Reads the policies.
    pub objects: Arc<dyn HubObjects>,
    /// What this hub puts in the place of the shipped placeholders.
    pub facts: KnownSite,
    /// Whether this replica leads: only the leader tries.
    pub leadership: LeadershipReader,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Those of the policies that have no part of their own in the statuses.
pub struct OtherAdmissionPolicies {
    admission_policies: Vec<AdmissionPolicyWriter>,
    /// Whether `keyferry-pairing` spares all audiences of the hub; that it holds the others is the
    /// concern of its own writer.
    spared: AdmissionPolicyWriter,
    due: Duration,
}

impl Default for OtherAdmissionPolicies {
    fn default() -> Self {
        let known = [
            admission_policy::AUTHOR,
            admission_policy::PAIRING,
            admission_policy::LABELS,
        ];
        let admission_policies = admission_policy::ALL
            .into_iter()
            .filter(|admission_policy| !known.contains(admission_policy))
            .map(AdmissionPolicyWriter::of)
            .collect();
        Self {
            admission_policies,
            spared: AdmissionPolicyWriter::pairing(),
            due: Duration::ZERO,
        }
    }
}

impl OtherAdmissionPolicies {
    /// The reading halves.
    pub fn readers(&self) -> Vec<AdmissionPolicyReader> {
        self.admission_policies
            .iter()
            .chain([&self.spared])
            .map(AdmissionPolicyWriter::reader)
            .collect()
    }
}

/// What is known of the hub, and asked for where it is not.
pub struct KnownSite {
    /// Asks.
    pub source: Arc<dyn HubFacts>,
    /// The hub's issuer.
    pub published: PublicationReader,
    /// As far as it is known.
    pub site: HubSite,
    /// The hub's audiences as last read.
    pub audiences: BTreeSet<String>,
    /// When to ask again, by the monotonic clock.
    pub due: Duration,
}

impl KnownSite {
    pub(super) async fn current(&mut self, now: Duration) -> &HubSite {
        if now >= self.due {
            let user = self.source.own_username().await;
            let audiences = self.source.api_audiences().await;
            // What could not be read stays as it was, and is asked for at the next look.
            if user.is_ok() && audiences.is_ok() {
                self.due = now + FACTS;
            }
            if let Ok(user) = user {
                self.site.username = user;
            }
            if let Ok(audiences) = audiences {
                self.audiences = audiences.into_iter().collect();
            }
        }
        self.site.hub_audiences = self.audiences.clone();
        self.site.hub_audiences.extend(
            self.published
                .current()
                .map(|published| published.issuer.as_str().to_owned()),
        );
        &self.site
    }
}

/// Looks until the task is dropped.
pub async fn follow(mut admission_policies: AdmissionPolicyChecks) {
    loop {
        admission_policies.look().await;
        tokio::time::sleep(INTERVAL).await;
    }
}

impl AdmissionPolicyChecks {
    async fn look(&mut self) {
        let now = self.clock.now();
        let site = self.facts.current(now.mono).await.clone();
        if let Some((found, _)) = self.compared(self.author.admission_policy(), &site).await {
            self.take(&self.author, found, Reason::AuthorUnchecked);
        }
        if let Some((found, _)) = self.compared(self.labels.admission_policy(), &site).await {
            self.take(&self.labels, found, Reason::LabelsUnprotected);
        }
        let compared = self.compared(self.pairing.admission_policy(), &site).await;
        let mut found = compared.as_ref().map(|(found, _)| found.clone());
        if found == Some(Standing::InForce) && self.leadership.leads(now) {
            found = self.trial.standing(&*self.objects, now.mono).await;
        } else {
            self.trial.forget();
        }
        if let Some(found) = found {
            self.take(&self.pairing, found, Reason::PairingUnprotected);
        }
        if let Some((_, spared)) = compared {
            if spared != Standing::InForce {
                self.metrics
                    .admission_policy(self.pairing.admission_policy().name(), false);
            }
            report(
                &self.others.spared,
                spared,
                Reason::AdmissionPolicyIncomplete,
                "a mistake in the AudiencePairing could stop every Pod",
            );
        }
        if now.mono >= self.others.due {
            self.others.due = now.mono + OTHERS;
            for writer in &self.others.admission_policies {
                let Some((found, spared)) = self.compared(writer.admission_policy(), &site).await
                else {
                    continue;
                };
                // Both bindings of keyferry-pairing have one policy, whose list is spoken of once.
                let with_list = *writer.admission_policy() != admission_policy::PAIRING_CLOSED
                    && found == Standing::InForce;
                self.take(
                    writer,
                    if with_list { spared } else { found },
                    Reason::AdmissionPolicyIncomplete,
                );
            }
        }
    }

    fn take(&self, writer: &AdmissionPolicyWriter, found: Standing, reason: Reason) {
        self.metrics
            .admission_policy(writer.admission_policy().name(), found == Standing::InForce);
        report(writer, found, reason, writer.admission_policy().meaning());
    }

    /// What a policy and its binding say, and what its list of the hub's audiences does. A hub that
    /// does not answer takes nothing away: it would not admit anything either.
    async fn compared(
        &self,
        admission_policy: &AdmissionPolicy,
        site: &HubSite,
    ) -> Option<(Standing, Standing)> {
        match read(&*self.objects, admission_policy).await {
            Ok((policy, binding)) => {
                let standing = |outcome: Result<(), admission_policy::AdmissionPolicyGap>| {
                    outcome
                        .map_or_else(|gap| Standing::Gap(gap.to_string()), |()| Standing::InForce)
                };
                Some((
                    standing(admission_policy.check(&policy, &binding, site)),
                    standing(admission_policy.check_hub_audiences(&policy, site)),
                ))
            }
            Err(error) if error.proves_unreachable() || error == HubError::Busy => None,
            Err(error) => {
                let gap = Standing::Gap(format!(
                    "the admission policy {} could not be read: {error}",
                    admission_policy.name()
                ));
                Some((gap, Standing::InForce))
            }
        }
    }
}

pub(super) fn report(
    writer: &AdmissionPolicyWriter,
    found: Standing,
    reason: Reason,
    meaning: &'static str,
) {
    let name = writer.admission_policy().name();
    if writer.set(found.clone()) {
        match found {
            Standing::InForce => tracing::info!(
                policy = name,
                "the admission policy of the hub is as shipped"
            ),
            Standing::Gap(gap) => tracing::warn!(policy = name, %reason, gap, "{meaning}"),
            Standing::Unknown => {}
        }
    }
}

pub(super) async fn read(
    objects: &dyn HubObjects,
    admission_policy: &AdmissionPolicy,
) -> Result<(Value, Value), HubError> {
    let value =
        |read: Option<ReadObject>| read.map(|read| read.value().clone()).unwrap_or(Value::Null);
    let policy = objects
        .get(&format!(
            "{GROUP}/validatingadmissionpolicies/{}",
            admission_policy.policy_name()
        ))
        .await?;
    let binding = objects
        .get(&format!(
            "{GROUP}/validatingadmissionpolicybindings/{}",
            admission_policy.name()
        ))
        .await?;
    Ok((value(policy), value(binding)))
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
