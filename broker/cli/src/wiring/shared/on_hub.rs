//! The controller's part of the server: it reconciles deliveries, statuses and the AudiencePairing
//! with the hub's objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::lifetime;
use keyferry_api::service_account::ServiceAccount;
use keyferry_controller::admission_policies::{
    AdmissionPolicyChecks, KnownSite, OtherAdmissionPolicies, run_admission_policy_checks,
};
use keyferry_controller::audience_pairing::{
    PairingParts, UnlistedAudiences, run_audience_pairing,
};
use keyferry_controller::delivery::{Deliveries, DeliveryParts};
use keyferry_controller::delivery_queue::{DeliverParts, run_delivery_queue};
use keyferry_controller::installed_policies::{InstalledPolicies, run_installed_policy_checks};
use keyferry_controller::pairing_trial::PairingTrial;
use keyferry_controller::target_status::{
    DiscoveryAuthority, TargetStatusParts, run_target_status,
};
use keyferry_core::admission_policy::HubSite;
use keyferry_hub::admission_policy::AdmissionPolicyWriter;
use keyferry_hub::hub_facts::KubeHubFacts;
use keyferry_hub::hub_networks::KubeHubNetworks;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_hub::objects::KubeObjects;
use keyferry_hub::ports::{HubFacts, HubObjects};
use keyferry_issuer::client_key::SystemClientKeys;
use keyferry_issuer::mint::Mint;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::https_probe::HttpsProbe;
use keyferry_platform::name_resolver::{NameResolver, SystemResolver};
use keyferry_platform::random::{Random, SystemRandomness};
use keyferry_platform::target_probe::TargetProbe;

use super::Shared;

/// The state of the hub's TargetClusters and TargetAccesses, if policy comes from them.
pub(super) struct OnHub {
    pub(super) store: Arc<ObjectStore>,
    pub(super) faults: Faults,
}

impl Shared {
    /// Starts reporting installed admission policies that are incomplete, if the objects come from
    /// a file.
    pub(super) fn watch_installed_policies(&mut self) {
        let policies = InstalledPolicies {
            objects: Arc::new(KubeObjects::new(self.client.clone())),
            facts: self.known_site(),
            clock: Arc::clone(&self.clock),
            metrics: self.metrics.clone(),
        };
        self.background.spawn(run_installed_policy_checks(policies));
    }

    fn canary_account(&self) -> ServiceAccount {
        ServiceAccount {
            namespace: self.server.cluster_resource_namespace.clone(),
            name: self.server.canary_service_account.clone(),
        }
    }

    fn hub_facts(&self) -> Arc<dyn HubFacts> {
        Arc::new(KubeHubFacts::new(
            self.client.clone(),
            self.canary_account(),
        ))
    }

    fn known_site(&self) -> KnownSite {
        let site = HubSite {
            namespace: self.server.cluster_resource_namespace.to_string(),
            canary: self.server.canary_service_account.to_string(),
            username: format!(
                "system:serviceaccount:{}:keyferry",
                self.server.cluster_resource_namespace
            ),
            caller_audience: self.server.caller_audience.to_string(),
            ..HubSite::shipped()
        };
        KnownSite {
            source: self.hub_facts(),
            published: self.publisher.reader(),
            site,
            audiences: BTreeSet::new(),
            due: Duration::ZERO,
        }
    }

    /// Starts the tasks that write deliveries, statuses and the AudiencePairing while this replica
    /// leads.
    pub(super) fn start_controller(
        &mut self,
        on_hub: &OnHub,
        mint: &Mint,
        audit: Arc<dyn AuditSink>,
    ) {
        let objects: Arc<dyn HubObjects> = Arc::new(KubeObjects::new(self.client.clone()));
        let resolver: Arc<dyn NameResolver> = Arc::new(SystemResolver);
        let networks = KubeHubNetworks::new(
            self.client.clone(),
            Arc::clone(&resolver),
            Arc::clone(&self.clock),
        );
        let rules = self.target_addresses.clone();
        let probe: Arc<dyn TargetProbe> = Arc::new(HttpsProbe::new(AddressGuard::new(
            rules,
            Arc::new(networks),
            resolver,
        )));
        let random: Arc<dyn Random> = Arc::new(SystemRandomness::default());
        let (store, live, clock) = (
            || Arc::clone(&on_hub.store),
            || Arc::clone(&self.live),
            || Arc::clone(&self.clock),
        );
        let (author, pairing_admission_policy) = (
            AdmissionPolicyWriter::author(),
            AdmissionPolicyWriter::pairing(),
        );
        let labels = AdmissionPolicyWriter::labels();
        let (admission_policy_reader, pairing_reader, labels_reader) = (
            author.reader(),
            pairing_admission_policy.reader(),
            labels.reader(),
        );
        let deliveries = Deliveries::new(DeliveryParts {
            policy: self.policy.clone(),
            store: store(),
            faults: on_hub.faults.clone(),
            live: live(),
            published: self.publisher.reader(),
            targets: self.targets.clone(),
            mint: mint.clone(),
            admission_policy: admission_policy_reader.clone(),
            objects: Arc::clone(&objects),
            facts: self.hub_facts(),
            probe: Arc::clone(&probe),
            audit,
            clock: clock(),
            client_keys: Arc::new(SystemClientKeys),
            random: Arc::clone(&random),
            metrics: self.metrics.clone(),
            leadership: self.leadership.clone(),
            activation_delay: lifetime::activation_delay(self.server.max_age),
        });
        let deliver = DeliverParts {
            policy: self.policy.clone(),
            store: store(),
            live: live(),
            targets: self.targets.clone(),
            admission_policy: admission_policy_reader,
            published: self.publisher.reader(),
            leadership: self.leadership.clone(),
            clock: clock(),
            max_stale: self.server.max_stale_authorization,
        };
        let canary = self.canary_account();
        let others = OtherAdmissionPolicies::default();
        let (other_readers, unlisted) = (others.policy_readers(), UnlistedAudiences::default());
        let facts = self.known_site();
        let admission_policies = AdmissionPolicyChecks {
            author,
            pairing: pairing_admission_policy,
            labels,
            others,
            facts,
            trial: PairingTrial::new(Arc::clone(&self.hub), live(), canary.clone()),
            objects: Arc::clone(&objects),
            leadership: self.leadership.clone(),
            clock: clock(),
            metrics: self.metrics.clone(),
        };
        let pairing = PairingParts {
            policy: self.policy.clone(),
            store: store(),
            live: live(),
            objects: Arc::clone(&objects),
            trial: Arc::new(self.audience_guard()),
            published: self.publisher.reader(),
            caller_audience: self.server.caller_audience.clone(),
            unlisted: unlisted.clone(),
            leadership: self.leadership.clone(),
            clock: clock(),
            canary,
        };
        let status = TargetStatusParts {
            policy: self.policy.clone(),
            fleet: self.fleet.clone(),
            store: store(),
            faults: on_hub.faults.clone(),
            targets: self.targets.clone(),
            published: self.publisher.reader(),
            public_url: self.server.public_url.to_string(),
            discovery_authority: DiscoveryAuthority::new(self.discovery_authority.clone()),
            username_prefix: format!("{}:", self.server.hub_name),
            namespace: self.server.cluster_resource_namespace.clone(),
            objects,
            probe,
            guard: self.audience_guard(),
            pairing: pairing_reader,
            labels: labels_reader,
            policies: other_readers,
            unlisted,
            leadership: self.leadership.clone(),
            clock: clock(),
            random,
            metrics: self.metrics.clone(),
        };
        self.background
            .spawn(run_admission_policy_checks(admission_policies));
        self.background.spawn(run_audience_pairing(pairing));
        self.background.spawn(run_target_status(status));
        self.background
            .spawn(run_delivery_queue(deliver, Arc::new(deliveries)));
    }
}
