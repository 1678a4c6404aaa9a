//! Compares the admission policies that are installed on the hub with the shipped ones, if Keyferry
//! reads its objects from a file.
//!
//! Keyferry needs none of them in this mode, so an absent policy is not reported. An installed
//! policy that differs from the shipped one may not protect as documented, so the metric and the
//! log report it.

use std::sync::Arc;

use keyferry_api::reason::Reason;
use keyferry_core::admission_policy;
use keyferry_hub::admission_policy::{AdmissionPolicyWriter, Standing};
use keyferry_hub::ports::HubObjects;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;

use super::admission_policies::{self, KnownSite, OTHERS_CHECK_INTERVAL};

/// The dependencies of [`run_installed_policy_checks`].
pub struct InstalledPolicies {
    /// Reads the policies.
    pub objects: Arc<dyn HubObjects>,
    /// This hub's values for the placeholders in the shipped policies.
    pub facts: KnownSite,
    /// The clock for reloading the hub's facts.
    pub clock: Arc<dyn Clock>,
    /// Reports whether each policy is active.
    pub metrics: Metrics,
}

/// Compares every minute until the task is dropped.
pub async fn run_installed_policy_checks(mut policies: InstalledPolicies) {
    let writers = policy_writers();
    loop {
        policies.compare_policies(&writers).await;
        tokio::time::sleep(OTHERS_CHECK_INTERVAL).await;
    }
}

/// Creates a writer for each policy.
pub(super) fn policy_writers() -> Vec<AdmissionPolicyWriter> {
    admission_policy::ALL_POLICIES
        .into_iter()
        .map(AdmissionPolicyWriter::for_policy)
        .collect()
}

impl InstalledPolicies {
    pub(super) async fn compare_policies(&mut self, writers: &[AdmissionPolicyWriter]) {
        let site = self.facts.current_site(self.clock.now().mono).await.clone();
        for writer in writers {
            let policy = writer.admission_policy();
            // The state of an unreadable policy is kept: without the shipped rights, it cannot be
            // checked.
            let Ok((policy_object, binding)) =
                admission_policies::read_policy(&*self.objects, policy).await
            else {
                continue;
            };
            if policy_object.is_null() && binding.is_null() {
                continue;
            }
            let checked = policy.compare_with_shipped(&policy_object, &binding, &site);
            let checked = checked.and_then(|()| policy.check_hub_audiences(&policy_object, &site));
            let standing =
                checked.map_or_else(|gap| Standing::Gap(gap.to_string()), |()| Standing::Active);
            self.metrics
                .admission_policy(policy.name(), standing == Standing::Active);
            admission_policies::report_standing(
                writer,
                standing,
                Reason::AdmissionPolicyIncomplete,
                policy.meaning(),
            );
        }
    }
}
