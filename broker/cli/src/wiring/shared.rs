//! The state that all parts of the server share, and the tasks that keep it current.

mod inputs;
mod on_hub;
mod startup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyferry_api::config::{Policy, ServerConfiguration};
use keyferry_api::lifetime;
use keyferry_controller::tasks::{run_key_canary, run_token_renewal};
use keyferry_core::target_address::AddressRules;
use keyferry_hub::client::HubClient;
use keyferry_hub::hub_networks::KubeHubNetworks;
use keyferry_hub::leadership::LeadershipReader;
use keyferry_hub::lease::LeaderLease;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::ports::Hub;
use keyferry_hub::targets::TargetReader;
use keyferry_issuer::audience_guard::AudienceGuard;
use keyferry_issuer::managed_issuer::{LocalSigner, ManagedIssuers, OwnMint};
use keyferry_issuer::mint::{Mint, MintParts};
use keyferry_issuer::publication::Publisher;
use keyferry_issuer::settings::CallerSettings;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::Clock;
use keyferry_platform::config_file::InputCredentials;
use keyferry_platform::external_issuer_documents::HttpsIssuerKeys;
use keyferry_platform::fleet_index::FleetIndexReader;
use keyferry_platform::https_client::check_authority;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::name_resolver::{NameResolver, SystemResolver};
use keyferry_platform::policy_store::{PolicyReader, PolicyWriter};
use keyferry_platform::random::{Random, SystemRandomness};
use keyferry_server::authenticate::Authenticator;
use keyferry_server::broker::{Broker, BrokerParts};
use keyferry_server::caller_trust::TrustReader;
use keyferry_server::delegate::Delegations;
use keyferry_server::external_callers::{ExternalCallers, ExternalCallersParts};
use keyferry_server::metrics_readers::MetricsReaders;
use tokio::sync::watch as watch_channel;
use tokio::task::JoinSet;

use self::inputs::InputSources;
use self::on_hub::OnHub;
use self::startup::Startup;
use super::{ServeError, ServeOptions};

/// How long a start waits for the first check of the key sets of managed issuers.
const FIRST_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a leader that stops tries to give its Lease back. Without that, the next one waits for
/// the Lease's end.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Shared {
    pub(super) live: Arc<LiveObjects>,
    pub(super) publisher: Publisher,
    pub(super) metrics: Metrics,
    /// Ends only if a task died; then the state is no longer current.
    pub(super) background: JoinSet<()>,
    pub(super) managed_issuers: ManagedIssuers,
    own_keys: OwnKeys,
    guard: AudienceGuard,
    leadership: OwnLeadership,
    objects: Option<OnHub>,
    client: HubClient,
    server: ServerConfiguration,
    clock: Arc<dyn Clock>,
    hub: Arc<dyn Hub>,
    policy: PolicyReader,
    fleet: FleetIndexReader,
    input_sources: Option<InputSources>,
    /// The credentials for fleet inputs, as the file last stated them.
    pub(super) input_credentials: watch_channel::Receiver<InputCredentials>,
    targets: TargetReader,
    target_addresses: AddressRules,
    /// `ca.crt` beside the discovery listener's certificate.
    discovery_authority: watch_channel::Receiver<Option<Vec<u8>>>,
}

/// The state of the task that maintains the keys of managed issuers.
struct OwnKeys {
    may_write: Arc<AtomicBool>,
    /// `None` if managed issuers are not enabled.
    first_check: Option<watch_channel::Receiver<bool>>,
}

/// Whether this replica leads, and the Lease by which it does.
struct OwnLeadership {
    reader: LeadershipReader,
    lease: LeaderLease,
}

impl Shared {
    /// Creates the clients of the hub and starts the tasks that follow it.
    pub(super) async fn start(
        server: &ServerConfiguration,
        policy: Policy,
        options: &ServeOptions,
        discovery_authority: watch_channel::Receiver<Option<Vec<u8>>>,
        metrics: Metrics,
    ) -> Result<Self, ServeError> {
        let policy = PolicyWriter::new(policy);
        let policy_reader = policy.reader();
        let mut startup = Startup::connect(server, options, policy_reader.clone(), metrics).await?;
        let publisher = startup.create_publisher();
        startup.start_object_watches();
        let leadership = startup.start_key_tasks(&publisher);
        let targets = startup.start_target_certificates();
        let (input_credentials, objects) = startup.start_policy_source(policy);
        let input_sources = startup.start_inputs(&input_credentials)?;
        let managed_issuers = ManagedIssuers::default();
        let own_keys = startup.start_managed_issuers(&managed_issuers);
        let hub = startup.hub();
        let guard = startup.create_audience_guard(&hub, &publisher);
        let Startup {
            client,
            clock,
            live,
            metrics,
            background,
            ..
        } = startup;
        Ok(Self {
            guard,
            leadership,
            objects,
            client,
            live,
            publisher,
            metrics,
            background,
            managed_issuers,
            own_keys,
            server: server.clone(),
            clock,
            hub,
            fleet: FleetIndexReader::new(policy_reader.clone()),
            input_sources,
            input_credentials,
            policy: policy_reader,
            target_addresses: options.target_addresses.clone(),
            targets,
            discovery_authority,
        })
    }

    /// Allows key sets to be created and rotated, after the startup checks have found the clock and
    /// the hub to be right. Then waits for a first check of all sets, so that a ready replica
    /// serves the same documents as the others.
    pub(super) async fn allow_managed_key_writes(&mut self) {
        self.own_keys.may_write.store(true, Ordering::Relaxed);
        if let Some(first_check) = &mut self.own_keys.first_check {
            let _ =
                tokio::time::timeout(FIRST_CHECK_TIMEOUT, first_check.wait_for(|done| *done)).await;
        }
    }

    /// Returns the guard that tests audiences; all clones share the verdicts.
    pub(super) fn audience_guard(&self) -> AudienceGuard {
        self.guard.clone()
    }

    /// Creates the check of the addresses to which nothing is sent.
    fn address_guard(&self) -> AddressGuard {
        let resolver: Arc<dyn NameResolver> = Arc::new(SystemResolver);
        let networks = KubeHubNetworks::new(
            self.client.clone(),
            Arc::clone(&resolver),
            Arc::clone(&self.clock),
        );
        let rules = self.target_addresses.clone();
        AddressGuard::new(rules, Arc::new(networks), resolver)
    }

    /// Creates the check of who may read metrics.
    pub(super) fn create_metrics_readers(&self) -> Result<MetricsReaders, ServeError> {
        Ok(MetricsReaders::new(
            Arc::clone(&self.hub),
            Arc::clone(&self.clock),
            self.metrics.clone(),
            random_key(&SystemRandomness::default())?,
            self.server.max_stale_authorization,
        ))
    }

    /// Creates the broker, and starts the controller and the renewal of cached tokens.
    pub(super) fn create_broker(
        &mut self,
        guard: AudienceGuard,
        audit: Arc<dyn AuditSink>,
        trust: TrustReader,
    ) -> Result<Broker, ServeError> {
        let random: Arc<dyn Random> = Arc::new(SystemRandomness::default());
        let hash_key = random_key(&*random)?;
        let (hub, clock, metrics, publisher) = (
            || Arc::clone(&self.hub),
            || Arc::clone(&self.clock),
            || self.metrics.clone(),
            &self.publisher,
        );
        let callers = CallerSettings {
            audience: self.server.caller_audience.clone(),
            require_pod_bound: self.server.require_pod_bound,
            max_stale: self.server.max_stale_authorization,
            new_callers: self.server.new_callers,
        };
        let external = external_callers(self, hash_key)?;
        let signer = LocalSigner::new(self.managed_issuers.clone(), clock(), Arc::clone(&random));
        let mint = Mint::new(MintParts {
            hub: hub(),
            publisher: publisher.clone(),
            own: OwnMint::new(self.managed_issuers.clone(), Arc::new(signer)),
            guard,
            clock: clock(),
            random: Arc::clone(&random),
            metrics: metrics(),
            activation_delay: lifetime::activation_delay(self.server.max_age),
            max_stale: callers.max_stale,
        });
        let broker = Broker::new(BrokerParts {
            policy: self.policy.clone(),
            live: Arc::clone(&self.live),
            published: publisher.reader(),
            targets: self.targets.clone(),
            authenticator: Authenticator::new(
                hub(),
                publisher.clone(),
                clock(),
                metrics(),
                hash_key,
                callers.clone(),
            )
            .with_certificates(trust)
            .with_external(external.clone()),
            external,
            delegations: Delegations::new(hub(), clock(), metrics(), callers.max_stale),
            mint: mint.clone(),
            audit: Arc::clone(&audit),
            clock: clock(),
            random,
            metrics: metrics(),
            callers,
        });
        match self.objects.take() {
            Some(objects) => self.start_controller(objects, &mint, audit),
            None => self.watch_installed_policies(),
        }
        self.background.spawn(run_key_canary(self.audience_guard()));
        self.background.spawn(run_token_renewal(
            mint,
            self.policy.clone(),
            Arc::clone(&self.live),
        ));
        Ok(broker)
    }

    /// Ends all tasks; if this replica leads, it gives the Lease back after that.
    pub(super) async fn stop_tasks(mut self) {
        let OwnLeadership { reader, lease } = self.leadership;
        let leads = reader.leads(self.clock.now());
        self.background.shutdown().await;
        if !leads {
            return;
        }
        match tokio::time::timeout(GIVE_BACK_TIMEOUT, lease.give_back()).await {
            Ok(Ok(())) => tracing::info!("gave the Lease back"),
            Ok(Err(error)) => tracing::warn!(%error, "the Lease was not given back; it ends soon"),
            Err(_) => tracing::warn!("the Lease was not given back in time; it ends soon"),
        }
    }
}

/// Draws the key of a keyed hash.
fn random_key(random: &dyn Random) -> Result<[u8; 32], ServeError> {
    let mut key = [0; 32];
    if random.fill_bytes(&mut key) {
        Ok(key)
    } else {
        Err(ServeError::Random)
    }
}

/// Creates the authentication by external issuers, if the configuration has any.
fn external_callers(
    shared: &Shared,
    hash_key: [u8; 32],
) -> Result<Option<Arc<ExternalCallers>>, ServeError> {
    let issuers = shared.server.external_issuers.clone();
    if issuers.is_empty() {
        return Ok(None);
    }
    for issuer in &issuers {
        check_authority(issuer.certificate_authority.as_deref().map(str::as_bytes)).map_err(
            |source| ServeError::ExternalIssuerAuthority {
                url: issuer.url.to_string(),
                source,
            },
        )?;
    }
    Ok(Some(Arc::new(ExternalCallers::new(ExternalCallersParts {
        issuers,
        source: Arc::new(HttpsIssuerKeys::new(shared.address_guard())),
        live: Arc::clone(&shared.live),
        clock: Arc::clone(&shared.clock),
        hash_key,
    }))))
}
