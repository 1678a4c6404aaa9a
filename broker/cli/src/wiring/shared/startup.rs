//! Starts the tasks that keep the shared state current, one kind of state in each step.

use std::sync::Arc;

use keyferry_api::config::{ObjectSource, ServerConfiguration};
use keyferry_api::lifetime;
use keyferry_api::service_account::ServiceAccount;
use keyferry_controller::key_refresh::run_key_refresh;
use keyferry_controller::leader_election::run_leader_election;
use keyferry_controller::mint_rights_check::run_mint_rights_check;
use keyferry_controller::target_certificates::run_target_certificate_refresh;
use keyferry_controller::tasks::{run_managed_key_refresh, run_policy_assembly};
use keyferry_hub::certificate_secret::KubeCertificateSecrets;
use keyferry_hub::client::HubClient;
use keyferry_hub::forbidden::HubCaller;
use keyferry_hub::input_components::InputComponents;
use keyferry_hub::issuer_documents::KubeIssuerDocuments;
use keyferry_hub::issuer_keys::KubeIssuerKeys;
use keyferry_hub::key_record_store::KeyRecordStore;
use keyferry_hub::kube_hub::KubeHub;
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::lease::LeaderLease;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::object_store::{Faults, ObjectStore};
use keyferry_hub::objects::KubeObjects;
use keyferry_hub::ports::Hub;
use keyferry_hub::secret_store::KubeSecretStore;
use keyferry_hub::targets::{TargetReader, TargetWriter};
use keyferry_hub::watch::{self, WatchClient};
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_issuer::key_records;
use keyferry_issuer::managed_issuer::{KeySetMaintainer, KeySetMaintainerParts, ManagedIssuers};
use keyferry_issuer::publication::{KeyRecords, Publisher, PublisherParts};
use keyferry_keys::managed_issuer::RotationPolicy;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file::{self, FileUse, InputCredentials};
use keyferry_platform::metrics::Metrics;
use keyferry_platform::policy_store::{PolicyReader, PolicyWriter};
use keyferry_platform::random::{Random, SystemRandomness};
use keyferry_platform::reload_signal::ReloadSignal;
use tokio::sync::watch as watch_channel;
use tokio::task::JoinSet;

use super::inputs::{self, InputSources};
use super::on_hub::OnHub;
use super::{OwnKeys, OwnLeadership, ServeError, ServeOptions};

/// What the tasks share while they are started.
pub(super) struct Startup<'a> {
    server: &'a ServerConfiguration,
    options: &'a ServeOptions,
    watches: WatchClient,
    random: Arc<dyn Random>,
    policy: PolicyReader,
    pub(super) client: HubClient,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) live: Arc<LiveObjects>,
    pub(super) metrics: Metrics,
    pub(super) background: JoinSet<()>,
}

impl<'a> Startup<'a> {
    /// Creates the clients of the hub.
    pub(super) async fn connect(
        server: &'a ServerConfiguration,
        options: &'a ServeOptions,
        policy: PolicyReader,
        metrics: Metrics,
    ) -> Result<Self, ServeError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let config = options.hub.config().await?;
        Ok(Self {
            server,
            options,
            client: HubClient::new(config.clone())?.called_by(HubCaller::Keyferry),
            watches: watch::watch_client(config)?,
            random: Arc::new(SystemRandomness::default()),
            policy,
            clock,
            live: Arc::new(LiveObjects::for_source(server.objects)),
            metrics,
            background: JoinSet::new(),
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn live(&self) -> Arc<LiveObjects> {
        Arc::clone(&self.live)
    }

    fn reload_signal(&self) -> ReloadSignal {
        self.options.reload_signal.clone()
    }

    /// Creates the publisher of the hub's keys, with the key journal of the last run.
    pub(super) fn create_publisher(&self) -> Publisher {
        let secrets = Arc::new(KubeSecretStore::new(
            self.client.clone(),
            self.server.cluster_resource_namespace.clone(),
        ));
        let records = KeyRecords::shared(KeyRecordStore::new(secrets, Arc::clone(&self.random)));
        let publisher = Publisher::new(PublisherParts {
            source: Arc::new(KubeIssuerDocuments::new(
                self.options.hub.clone(),
                self.server.hub_endpoints.clone(),
                HubCaller::Keyferry,
            )),
            public_url: self.server.public_url.clone(),
            pinned: self.server.hub_issuer.clone(),
            activation_delay: lifetime::activation_delay(self.server.max_age),
            records: records.with_state(self.options.state_dir.clone()),
            clock: self.clock(),
            metrics: self.metrics.clone(),
        });
        publisher.restore_journal();
        publisher
    }

    /// Starts to watch the ServiceAccounts and Namespaces.
    pub(super) fn start_object_watches(&mut self) {
        self.background.spawn(watch::service_accounts(
            self.watches.clone(),
            self.live(),
            self.clock(),
        ));
        self.background.spawn(watch::watch_namespaces(
            self.watches.clone(),
            self.live(),
            self.clock(),
        ));
    }

    /// Starts to follow the hub's keys and the key journal, and to take part in the election of the
    /// leader, which writes the journal.
    pub(super) fn start_key_tasks(&mut self, publisher: &Publisher) -> OwnLeadership {
        self.background
            .spawn(key_records::run_key_journal_sync(publisher.clone()));
        let leadership = LeadershipWriter::default();
        let reader = leadership.reader();
        let lease = LeaderLease::new(
            Arc::new(KubeObjects::new(self.client.clone())),
            self.server.cluster_resource_namespace.clone(),
            self.random.request_id().to_string(),
        );
        self.background.spawn(run_leader_election(
            lease.clone(),
            publisher.clone(),
            leadership,
            self.clock(),
            self.metrics.clone(),
        ));
        self.background.spawn(run_key_refresh(
            publisher.clone(),
            self.clock(),
            self.metrics.clone(),
            self.reload_signal(),
        ));
        OwnLeadership { reader, lease }
    }

    /// Starts to read the CA certificates of the targets.
    pub(super) fn start_target_certificates(&mut self) -> TargetReader {
        let targets = TargetWriter::default();
        let reader = targets.reader();
        let secrets = KubeCertificateSecrets::new(
            self.client.clone(),
            self.server.cluster_resource_namespace.clone(),
        );
        self.background.spawn(run_target_certificate_refresh(
            self.policy.clone(),
            Arc::new(secrets),
            targets,
            self.clock(),
            self.reload_signal(),
        ));
        reader
    }

    /// Starts to reload the configuration file, and to assemble policy from where it is: from the
    /// file or from the hub's objects.
    pub(super) fn start_policy_source(
        &mut self,
        policy: PolicyWriter,
    ) -> (watch_channel::Receiver<InputCredentials>, Option<OnHub>) {
        let (credentials, input_credentials) =
            watch_channel::channel(config_file::input_credentials(self.server));
        let (file_policy, object_policy) = match self.server.objects {
            ObjectSource::File => (Some(policy), None),
            ObjectSource::CustomResources => (None, Some(policy)),
        };
        self.background.spawn(config_file::run_config_reload(
            self.options.config.clone(),
            self.server.clone(),
            self.options.overrides.clone(),
            FileUse {
                policy: file_policy,
                input_credentials: credentials,
            },
            self.metrics.clone(),
            self.reload_signal(),
        ));
        let objects = object_policy.map(|policy| self.start_policy_objects(policy));
        if objects.is_none() {
            self.background.spawn(run_mint_rights_check(
                self.client.clone(),
                self.policy.clone(),
            ));
        }
        (input_credentials, objects)
    }

    fn start_policy_objects(&mut self, policy: PolicyWriter) -> OnHub {
        let objects = OnHub {
            store: Arc::new(ObjectStore::new(self.server.clone())),
            faults: Faults::default(),
        };
        self.background.spawn(watch::target_clusters(
            self.watches.clone(),
            Arc::clone(&objects.store),
            self.live(),
            self.clock(),
        ));
        self.background.spawn(watch::target_accesses(
            self.watches.clone(),
            Arc::clone(&objects.store),
            self.live(),
            self.clock(),
        ));
        self.background.spawn(run_policy_assembly(
            Arc::clone(&objects.store),
            policy,
            objects.faults.clone(),
        ));
        objects
    }

    /// Starts to read the components and credentials of fleet inputs, if they are enabled.
    pub(super) fn start_inputs(
        &mut self,
        credentials: &watch_channel::Receiver<InputCredentials>,
    ) -> Result<Option<InputSources>, ServeError> {
        if !self.server.inputs.enabled {
            return Ok(None);
        }
        let components = Arc::new(InputComponents::default());
        self.background.spawn(watch::input_config_maps(
            self.watches.clone(),
            self.server.cluster_resource_namespace.clone(),
            Arc::clone(&components),
            self.clock(),
        ));
        inputs::start_input_credentials(inputs::StartParts {
            server: self.server,
            client: &self.client,
            components,
            credentials: credentials.clone(),
            clock: &self.clock,
            reload_signal: self.options.reload_signal.clone(),
            background: &mut self.background,
        })
        .map(Some)
    }

    /// Starts to maintain the keys of managed issuers, if these are enabled.
    pub(super) fn start_managed_issuers(&mut self, issuers: &ManagedIssuers) -> OwnKeys {
        let may_write = Arc::default();
        if !self.server.managed_issuers.enabled {
            return OwnKeys {
                may_write,
                first_check: None,
            };
        }
        let maintainer = KeySetMaintainer::new(KeySetMaintainerParts {
            store: Arc::new(KubeIssuerKeys::new(
                self.client.clone(),
                self.server.cluster_resource_namespace.clone(),
            )),
            issuers: issuers.clone(),
            clock: self.clock(),
            metrics: self.metrics.clone(),
            public_url: self.server.public_url.clone(),
            rotation: RotationPolicy {
                active_after: lifetime::activation_delay(self.server.max_age),
                every: self.server.managed_issuers.rotate_every,
            },
            may_write: Arc::clone(&may_write),
        });
        let (first, first_check) = watch_channel::channel(false);
        self.background.spawn(run_managed_key_refresh(
            maintainer,
            self.policy.clone(),
            first,
            self.reload_signal(),
        ));
        OwnKeys {
            may_write,
            first_check: Some(first_check),
        }
    }

    pub(super) fn hub(&self) -> Arc<dyn Hub> {
        Arc::new(KubeHub::new(
            self.client.clone(),
            self.clock(),
            self.metrics.clone(),
        ))
    }

    pub(super) fn create_audience_guard(
        &self,
        hub: &Arc<dyn Hub>,
        publisher: &Publisher,
    ) -> AudienceGuard {
        let canary = ServiceAccount {
            namespace: self.server.cluster_resource_namespace.clone(),
            name: self.server.canary_service_account.clone(),
        };
        AudienceGuard::new(
            Arc::clone(hub),
            self.clock(),
            self.live(),
            publisher.clone(),
            canary,
        )
    }
}
