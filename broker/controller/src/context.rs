//! What the tasks share that reconcile the hub's objects.

use std::sync::Arc;

use keyferry_hub::admission_policy::AdmissionPolicyReader;
use keyferry_hub::leadership::LeadershipReader;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_hub::ports::HubObjects;
use keyferry_hub::targets::TargetReader;
use keyferry_issuer::publication::PublicationReader;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::PolicyReader;
use keyferry_platform::random::Random;
use keyferry_platform::target_probe::TargetProbe;

/// The state of the hub, and the ports through which the tasks act on it. What only one task needs
/// is an argument of that task.
pub struct Context {
    /// The active policy.
    pub policy: PolicyReader,
    /// The hub's accesses and targets.
    pub store: Arc<ObjectStore>,
    /// The objects that are excluded from the policy, with their mistakes.
    pub faults: Faults,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The published issuer and the revoked keys.
    pub published: PublicationReader,
    /// The targets' CA certificates.
    pub targets: TargetReader,
    /// Whether an admission policy of the hub checks the authors of accesses.
    pub author_policy: AdmissionPolicyReader,
    /// Reads and writes the hub's objects.
    pub objects: Arc<dyn HubObjects>,
    /// Tests whether targets accept a token.
    pub probe: Arc<dyn TargetProbe>,
    /// Whether this replica leads.
    pub leadership: LeadershipReader,
    /// The clock for due times and leadership.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for jitter and the names of Events.
    pub random: Arc<dyn Random>,
    /// Reports the states of accesses, targets and admission policies.
    pub metrics: Metrics,
}

impl Context {
    /// Whether this replica leads now.
    pub(crate) fn is_leader(&self) -> bool {
        self.leadership.leads(self.clock.now())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing {
    use std::sync::Arc;

    use keyferry_api::config::{self, Policy};
    use keyferry_hub::admission_policy::AdmissionPolicyWriter;
    use keyferry_hub::leadership::LeadershipWriter;
    use keyferry_hub::live::LiveObjects;
    use keyferry_hub::object_store::{Faults, ObjectStore};
    use keyferry_hub::ports::HubObjects;
    use keyferry_hub::targets::TargetReader;
    use keyferry_issuer::publication::PublicationReader;
    use keyferry_issuer::testing::CONFIGURATION;
    use keyferry_platform::clock::Clock;
    use keyferry_platform::metrics::Metrics;
    use keyferry_platform::policy_store::PolicyWriter;
    use keyferry_platform::random::SystemRandomness;
    use keyferry_platform::testing::SilentTargets;

    use super::Context;

    impl Context {
        /// A hub without policy and objects, on a replica that does not lead. A test replaces the
        /// members that it is about.
        pub(crate) fn empty(clock: Arc<dyn Clock>, objects: Arc<dyn HubObjects>) -> Self {
            Self {
                policy: PolicyWriter::new(Policy::default()).reader(),
                store: Arc::new(ObjectStore::new(
                    config::read(CONFIGURATION).unwrap().server,
                )),
                faults: Faults::default(),
                live: Arc::new(LiveObjects::default()),
                published: PublicationReader::default(),
                targets: TargetReader::default(),
                author_policy: AdmissionPolicyWriter::for_author_policy().reader(),
                objects,
                probe: Arc::new(SilentTargets),
                leadership: LeadershipWriter::default().reader(),
                clock,
                random: Arc::new(SystemRandomness::default()),
                metrics: Metrics::default(),
            }
        }
    }
}
