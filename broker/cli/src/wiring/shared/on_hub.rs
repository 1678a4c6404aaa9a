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
    AudiencePairing, UnlistedAudiences, run_audience_pairing,
};
use keyferry_controller::context::Context;
use keyferry_controller::delivery::{CredentialSources, Deliveries};
use keyferry_controller::delivery_queue::run_delivery_queue;
use keyferry_controller::installed_policies::{InstalledPolicies, run_installed_policy_checks};
use keyferry_controller::pairing_trial::PairingTrial;
use keyferry_controller::target_status::{
    DiscoveryAuthority, TargetStatusWriter, run_target_status,
};
use keyferry_core::admission_policy::HubSite;
use keyferry_hub::admission_policy::AdmissionPolicyWriter;
use keyferry_hub::hub_facts::KubeHubFacts;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_hub::objects::KubeObjects;
use keyferry_hub::ports::HubFacts;
use keyferry_issuer::client_key::SystemClientKeys;
use keyferry_issuer::mint::Mint;
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::https_probe::HttpsProbe;
use keyferry_platform::random::SystemRandomness;

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
            ..HubSite::of_shipped_manifests()
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
        on_hub: OnHub,
        mint: &Mint,
        audit: Arc<dyn AuditSink>,
    ) {
        let author = AdmissionPolicyWriter::for_author_policy();
        let context = Arc::new(self.controller_context(on_hub, &author));
        let credentials = CredentialSources {
            mint: mint.clone(),
            client_keys: Arc::new(SystemClientKeys),
            facts: self.hub_facts(),
            audit,
            activation_delay: lifetime::activation_delay(self.server.max_age),
        };
        let deliveries = Arc::new(Deliveries::new(Arc::clone(&context), credentials));
        let admission_policies = self.admission_policy_checks(&context, author);
        let unlisted = UnlistedAudiences::default();
        let pairing = AudiencePairing::new(
            Arc::clone(&context),
            Arc::new(self.audience_guard()),
            self.server.caller_audience.clone(),
            self.canary_account(),
            unlisted.clone(),
        );
        let statuses = self.target_status_writer(&context, &admission_policies, unlisted);
        let max_stale = self.server.max_stale_authorization;
        self.background
            .spawn(run_admission_policy_checks(admission_policies));
        self.background.spawn(run_audience_pairing(pairing));
        self.background.spawn(run_target_status(statuses));
        self.background
            .spawn(run_delivery_queue(context, deliveries, max_stale));
    }

    fn controller_context(&self, on_hub: OnHub, author: &AdmissionPolicyWriter) -> Context {
        Context {
            policy: self.policy.clone(),
            store: on_hub.store,
            faults: on_hub.faults,
            live: Arc::clone(&self.live),
            published: self.publisher.reader(),
            targets: self.targets.clone(),
            author_policy: author.reader(),
            objects: Arc::new(KubeObjects::new(self.client.clone())),
            probe: Arc::new(HttpsProbe::new(self.address_guard())),
            leadership: self.leadership.reader.clone(),
            clock: Arc::clone(&self.clock),
            random: Arc::new(SystemRandomness::default()),
            metrics: self.metrics.clone(),
        }
    }

    fn admission_policy_checks(
        &self,
        context: &Arc<Context>,
        author: AdmissionPolicyWriter,
    ) -> AdmissionPolicyChecks {
        AdmissionPolicyChecks {
            context: Arc::clone(context),
            author,
            pairing: AdmissionPolicyWriter::for_pairing_policy(),
            labels: AdmissionPolicyWriter::for_labels_policy(),
            others: OtherAdmissionPolicies::default(),
            facts: self.known_site(),
            trial: PairingTrial::new(
                Arc::clone(&self.hub),
                Arc::clone(&self.live),
                self.canary_account(),
            ),
        }
    }

    fn target_status_writer(
        &self,
        context: &Arc<Context>,
        admission_policies: &AdmissionPolicyChecks,
        unlisted: UnlistedAudiences,
    ) -> TargetStatusWriter {
        TargetStatusWriter {
            context: Arc::clone(context),
            fleet: self.fleet.clone(),
            guard: self.audience_guard(),
            public_url: self.server.public_url.to_string(),
            discovery_authority: DiscoveryAuthority::new(self.discovery_authority.clone()),
            namespace: self.server.cluster_resource_namespace.clone(),
            pairing: admission_policies.pairing.reader(),
            labels: admission_policies.labels.reader(),
            policies: admission_policies.others.policy_readers(),
            unlisted,
        }
    }
}
