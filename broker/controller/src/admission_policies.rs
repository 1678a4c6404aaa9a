//! Compares the hub's admission policies with the shipped ones, regularly. Without
//! `keyferry-author` no token is written to an object. A gap in any other policy blocks nothing: it
//! is reported in the targets' statuses, the metrics and the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::reason::Reason;
use keyferry_core::admission_policy::{self, AdmissionPolicy, HubSite};
use keyferry_core::delivery::ReadObject;
use keyferry_hub::admission_policy::{AdmissionPolicyReader, AdmissionPolicyWriter, Standing};
use keyferry_hub::ports::{HubError, HubFacts, HubObjects};
use keyferry_issuer::publication::PublicationReader;
use parking_lot::Mutex;
use serde_json::Value;

use crate::context::Context;
use crate::pairing_trial::PairingTrial;

const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// How often the policies that no delivery depends on are compared.
pub(super) const OTHERS_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// How often the hub's audiences are read: they change only with a restart of its apiserver.
const FACTS_RELOAD_INTERVAL: Duration = Duration::from_secs(3600);
const API_GROUP_PATH: &str = "/apis/admissionregistration.k8s.io/v1";

/// The state and dependencies of [`run_admission_policy_checks`].
pub struct AdmissionPolicyChecks {
    /// What the tasks share.
    pub context: Arc<Context>,
    /// The state of `keyferry-author`.
    pub author: AdmissionPolicyWriter,
    /// The state of `keyferry-pairing`.
    pub pairing: AdmissionPolicyWriter,
    /// The state of `keyferry-labels`.
    pub labels: AdmissionPolicyWriter,
    /// The state of all other policies.
    pub others: OtherAdmissionPolicies,
    /// Tests the effect of `keyferry-pairing`.
    pub trial: PairingTrial,
    /// This hub's values for the placeholders in the shipped policies.
    pub facts: KnownSite,
}

/// The policies that have no condition of their own in the statuses.
pub struct OtherAdmissionPolicies {
    admission_policies: Vec<AdmissionPolicyWriter>,
    /// Whether `keyferry-pairing` exempts all audiences of the hub. Another writer holds whether
    /// the policy is active.
    exemptions: AdmissionPolicyWriter,
    due: Duration,
    /// The policies with a gap at the first comparison, which one warning names; `None` after it.
    gaps_at_start: Mutex<Option<Vec<&'static str>>>,
}

impl Default for OtherAdmissionPolicies {
    fn default() -> Self {
        let known = [
            admission_policy::AUTHOR_POLICY,
            admission_policy::PAIRING_POLICY,
            admission_policy::LABELS_POLICY,
        ];
        let admission_policies = admission_policy::ALL_POLICIES
            .into_iter()
            .filter(|admission_policy| !known.contains(admission_policy))
            .map(AdmissionPolicyWriter::for_policy)
            .collect();
        Self {
            admission_policies,
            exemptions: AdmissionPolicyWriter::for_pairing_policy(),
            due: Duration::ZERO,
            gaps_at_start: Mutex::new(Some(Vec::new())),
        }
    }
}

impl OtherAdmissionPolicies {
    /// Returns the readers of these policies.
    pub fn policy_readers(&self) -> Vec<AdmissionPolicyReader> {
        self.admission_policies
            .iter()
            .chain([&self.exemptions])
            .map(AdmissionPolicyWriter::reader)
            .collect()
    }
}

/// Facts about the hub, cached and reloaded when due.
pub struct KnownSite {
    /// Reads the facts from the hub.
    pub source: Arc<dyn HubFacts>,
    /// The hub's issuer.
    pub published: PublicationReader,
    /// The facts known so far.
    pub site: HubSite,
    /// The hub's audiences as last read.
    pub audiences: BTreeSet<String>,
    /// When to reload, by the monotonic clock.
    pub due: Duration,
}

impl KnownSite {
    pub(super) async fn current_site(&mut self, now: Duration) -> &HubSite {
        if now >= self.due {
            let user = self.source.own_username().await;
            let audiences = self.source.api_audiences().await;
            // A fact that could not be read keeps its value, and is read again at the next check.
            if user.is_ok() && audiences.is_ok() {
                self.due = now + FACTS_RELOAD_INTERVAL;
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

/// Compares the policies until the task is dropped.
pub async fn run_admission_policy_checks(mut admission_policies: AdmissionPolicyChecks) {
    loop {
        admission_policies.check_policies().await;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

impl AdmissionPolicyChecks {
    /// Compares all policies that are due. A hub on which none is installed yet gives one warning,
    /// with the command that installs them.
    async fn check_policies(&mut self) {
        self.compare_due().await;
        let gaps = self.others.gaps_at_start.lock().take().unwrap_or_default();
        if !gaps.is_empty() {
            tracing::warn!(
                reason = %Reason::AdmissionPolicyIncomplete,
                policies = gaps.join(", "),
                "admission policies of the hub are missing or not as shipped; fix: keyferry \
                 admission-policies prints them for this hub, and with --check what differs"
            );
        }
    }

    async fn compare_due(&mut self) {
        let now = self.context.clock.now();
        let site = self.facts.current_site(now.mono).await.clone();
        if let Some((found, _)) = self
            .compare_policy(self.author.admission_policy(), &site)
            .await
        {
            self.apply_standing(&self.author, found, Reason::AuthorUnchecked);
        }
        if let Some((found, _)) = self
            .compare_policy(self.labels.admission_policy(), &site)
            .await
        {
            self.apply_standing(&self.labels, found, Reason::LabelsUnprotected);
        }
        let compared = self
            .compare_policy(self.pairing.admission_policy(), &site)
            .await;
        let mut pairing_standing = compared.as_ref().map(|(found, _)| found.clone());
        if pairing_standing == Some(Standing::Active) && self.context.leadership.leads(now) {
            pairing_standing = self
                .trial
                .policy_standing(&*self.context.objects, now.mono)
                .await;
        } else {
            self.trial.forget_result();
        }
        if let Some(found) = pairing_standing {
            self.apply_standing(&self.pairing, found, Reason::PairingUnprotected);
        }
        if let Some((standing, exemptions)) = compared {
            if exemptions != Standing::Active {
                self.context
                    .metrics
                    .admission_policy(self.pairing.admission_policy().name(), false);
            }
            if standing == Standing::Active || exemptions != Standing::Active {
                report_standing(
                    &self.others.exemptions,
                    exemptions,
                    Reason::AdmissionPolicyIncomplete,
                    "a mistake in the AudiencePairing could stop every Pod",
                );
            } else {
                // A missing policy has no list to report as active.
                self.others.exemptions.set_state(exemptions);
            }
        }
        if now.mono >= self.others.due {
            self.others.due = now.mono + OTHERS_CHECK_INTERVAL;
            for writer in &self.others.admission_policies {
                let Some((found, exemptions)) =
                    self.compare_policy(writer.admission_policy(), &site).await
                else {
                    continue;
                };
                // Both bindings of keyferry-pairing share one policy, so its list is reported only
                // once.
                let with_list = *writer.admission_policy() != admission_policy::PAIRING_CLOSED
                    && found == Standing::Active;
                self.apply_standing(
                    writer,
                    if with_list { exemptions } else { found },
                    Reason::AdmissionPolicyIncomplete,
                );
            }
        }
    }

    fn apply_standing(&self, writer: &AdmissionPolicyWriter, found: Standing, reason: Reason) {
        self.context
            .metrics
            .admission_policy(writer.admission_policy().name(), found == Standing::Active);
        let (name, meaning) = {
            let policy = writer.admission_policy();
            (policy.name(), policy.meaning())
        };
        let mut gaps_at_start = self.others.gaps_at_start.lock();
        match (&mut *gaps_at_start, &found) {
            (Some(gaps), Standing::Gap(gap)) => {
                tracing::info!(policy = name, %reason, gap, "{meaning}");
                gaps.push(name);
                writer.set_state(found);
            }
            _ => report_standing(writer, found, reason, meaning),
        }
    }

    /// Compares a policy and its binding, and the policy's list of the hub's audiences. An
    /// unreachable hub changes no state, because it admits nothing either.
    async fn compare_policy(
        &self,
        admission_policy: &AdmissionPolicy,
        site: &HubSite,
    ) -> Option<(Standing, Standing)> {
        match read_policy(&*self.context.objects, admission_policy).await {
            Ok((policy, binding)) => {
                let standing = |outcome: Result<(), admission_policy::AdmissionPolicyGap>| {
                    outcome.map_or_else(|gap| Standing::Gap(gap.to_string()), |()| Standing::Active)
                };
                Some((
                    standing(admission_policy.compare_with_shipped(&policy, &binding, site)),
                    standing(admission_policy.check_hub_audiences(&policy, site)),
                ))
            }
            Err(error) if error.proves_unreachable() || error == HubError::Busy => None,
            Err(error) => {
                let gap = Standing::Gap(format!(
                    "the admission policy {} could not be read: {error}",
                    admission_policy.name()
                ));
                Some((gap, Standing::Active))
            }
        }
    }
}

pub(super) fn report_standing(
    writer: &AdmissionPolicyWriter,
    found: Standing,
    reason: Reason,
    meaning: &'static str,
) {
    let name = writer.admission_policy().name();
    if writer.set_state(found.clone()) {
        match found {
            Standing::Active => tracing::info!(
                policy = name,
                "the admission policy of the hub is as shipped"
            ),
            Standing::Gap(gap) => tracing::warn!(policy = name, %reason, gap, "{meaning}"),
            Standing::Unknown => {}
        }
    }
}

pub(super) async fn read_policy(
    objects: &dyn HubObjects,
    admission_policy: &AdmissionPolicy,
) -> Result<(Value, Value), HubError> {
    let value =
        |read: Option<ReadObject>| read.map(|read| read.value().clone()).unwrap_or(Value::Null);
    let policy = objects
        .get(&format!(
            "{API_GROUP_PATH}/validatingadmissionpolicies/{}",
            admission_policy.policy_name()
        ))
        .await?;
    let binding = objects
        .get(&format!(
            "{API_GROUP_PATH}/validatingadmissionpolicybindings/{}",
            admission_policy.name()
        ))
        .await?;
    Ok((value(policy), value(binding)))
}

#[cfg(test)]
mod tests;
