//! The composition root: the only place that builds all the others and joins them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyferry_core::config::{Configuration, ServerConfiguration};
use keyferry_core::reason::Reason;
use keyferry_core::service_account::ServiceAccount;
use tokio::task::JoinSet;

use crate::audience_guard::AudienceGuard;
use crate::audit::AuditLog;
use crate::authenticate::Authenticator;
use crate::broker::{Broker, BrokerParts};
use crate::clock::{Clock, SystemClock};
use crate::controller::{certificates, config_file, publish, renew, self_check};
use crate::delegate::Delegations;
use crate::http::health::{self, HealthParts};
use crate::http::listener::{DRAIN, ListenError, TlsListener};
use crate::http::{discovery, token_api};
use crate::kube::certificate_secret::KubeCertificateSecrets;
use crate::kube::client::{ClientError, HubAccess, HubClient};
use crate::kube::hub::KubeHub;
use crate::kube::issuer_documents::KubeIssuerDocuments;
use crate::kube::watch;
use crate::live::LiveObjects;
use crate::metrics::Metrics;
use crate::mint::{Mint, MintParts};
use crate::policy_store::PolicyWriter;
use crate::ports::{AuditSink, Hub};
use crate::publication::Publisher;
use crate::random::{Random, SystemRandomness};
use crate::read_again::ReadAgain;
use crate::settings::CallerSettings;
use crate::targets::TargetWriter;

/// How often a start that waits for the hub tries again.
const RETRY: Duration = Duration::from_secs(1);

/// What `keyferry serve` was told.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The configuration file.
    pub config: PathBuf,
    /// Where the hub is.
    pub hub: HubAccess,
    /// When to read everything again at once.
    pub read_again: ReadAgain,
}

/// Why the server could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration file cannot be used.
    #[error(transparent)]
    Configuration(#[from] config_file::ConfigFileError),
    /// The hub's client cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A listener cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The plain listener of health and metrics cannot be opened.
    #[error("listening on {address}: {source}")]
    Health {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The audit file cannot be opened.
    #[error("opening the audit file {path}: {source}")]
    Audit {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no randomness.
    #[error("drawing a random key: the operating system gave none")]
    Random,
    /// Tokens for Keyferry would open the hub.
    #[error(
        "checking callerAudience {0}: the hub's own apiserver accepts it, so every caller's token would be a credential of the hub; choose another"
    )]
    CallerAudienceIsHubs(String),
    /// It could not be found out.
    #[error(
        "checking callerAudience: {0}; the canary ServiceAccount must exist and Keyferry must be allowed to mint for it and to review tokens"
    )]
    CallerAudienceUnchecked(Reason),
    /// A listener ended by itself.
    #[error("serving: a listener ended: {0}")]
    Ended(std::io::Error),
}

/// A server whose listeners are open.
pub struct Server {
    configuration: Configuration,
    options: ServeOptions,
    discovery: TlsListener,
    api: TlsListener,
    health: tokio::net::TcpListener,
    audit: Arc<dyn AuditSink>,
}

impl Server {
    /// Reads the configuration and opens the listeners.
    ///
    /// # Errors
    /// [`ServeError`], before anything has been asked of the hub.
    pub async fn bind(options: ServeOptions) -> Result<Server, ServeError> {
        let configuration = config_file::read(&options.config)?;
        let server = &configuration.server;
        let audit: Arc<dyn AuditSink> = match &server.audit_file {
            Some(path) => Arc::new(AuditLog::file(path).map_err(|source| ServeError::Audit { path: path.clone(), source })?),
            None => Arc::new(AuditLog::standard_output()),
        };
        let discovery = TlsListener::bind(&server.discovery).await?;
        let api = TlsListener::bind(&server.api).await?;
        let address = server.health_address;
        let health = tokio::net::TcpListener::bind(address).await.map_err(|source| ServeError::Health { address, source })?;
        Ok(Server { configuration, options, discovery, api, health, audit })
    }

    /// Where the token API listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn api_address(&self) -> std::io::Result<SocketAddr> {
        self.api.address()
    }

    /// Where the published documents are.
    ///
    /// # Errors
    /// What the system says.
    pub fn discovery_address(&self) -> std::io::Result<SocketAddr> {
        self.discovery.address()
    }

    /// Serves until `shutdown`; then readiness goes, accepted requests are answered, and it ends well.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
        let Server { configuration, options, discovery, api, health, audit } = self;
        let Configuration { server, policy } = configuration;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let random: Arc<dyn Random> = Arc::new(SystemRandomness::default());
        let metrics = Metrics::default();
        let live = Arc::new(LiveObjects::default());
        let serving = Arc::new(AtomicBool::new(false));
        let policy = PolicyWriter::new(policy);
        let policy_reader = policy.reader();
        let targets = TargetWriter::default();
        let target_reader = targets.reader();

        let config = options.hub.config().await?;
        let client = HubClient::new(config.clone())?;
        let hub: Arc<dyn Hub> = Arc::new(KubeHub::new(client.clone(), Arc::clone(&clock)));
        let documents = Arc::new(KubeIssuerDocuments::new(options.hub.clone()));
        let publisher = Publisher::new(documents, server.public_url.clone(), server.hub_issuer.clone());
        let published = publisher.reader();

        let mut background = JoinSet::new();
        let watches = watch_client(config)?;
        background.spawn(watch::service_accounts(watches.clone(), Arc::clone(&live), Arc::clone(&clock)));
        background.spawn(watch::namespaces(watches, Arc::clone(&live), Arc::clone(&clock)));
        background.spawn(publish::follow(publisher.clone(), Arc::clone(&clock), metrics.clone(), options.read_again.clone()));
        let secrets = Arc::new(KubeCertificateSecrets::new(client.clone(), server.cluster_resource_namespace.clone()));
        background.spawn(certificates::follow(policy_reader.clone(), secrets, targets, Arc::clone(&clock), options.read_again.clone()));
        let read_again = options.read_again.clone();
        background.spawn(config_file::follow(options.config.clone(), server.clone(), policy, metrics.clone(), read_again));
        background.spawn(self_check::follow(client.clone(), policy_reader.clone()));

        let health_parts =
            HealthParts { serving: Arc::clone(&serving), published: published.clone(), live: Arc::clone(&live), metrics: metrics.clone() };
        background.spawn(async move {
            // Health outlives every other listener; it ends with the process.
            let _ = axum::serve(health, health::routes(health_parts)).await;
        });
        let (discovery_handle, api_handle) = (discovery.handle(), api.handle());
        let mut listeners = JoinSet::new();
        listeners.spawn(discovery.serve(discovery::routes(published.clone(), server.max_age), options.read_again.clone()));

        let guard = new_guard(&server, &hub, &clock, &live, &publisher);
        let mut shutdown = Box::pin(shutdown);
        tokio::select! {
            checked = check_caller_audience(&guard, &server, &live, &publisher) => checked?,
            () = &mut shutdown => {
                discovery_handle.graceful_shutdown(Some(DRAIN));
                while listeners.join_next().await.is_some() {}
                return Ok(());
            }
        }
        let callers = CallerSettings {
            audience: server.caller_audience.clone(),
            require_pod_bound: server.require_pod_bound,
            max_stale: server.max_stale_authorization,
        };
        let mut hash_key = [0; 32];
        if !random.fill(&mut hash_key) {
            return Err(ServeError::Random);
        }
        let authenticator =
            Authenticator::new(Arc::clone(&hub), publisher.clone(), Arc::clone(&clock), metrics.clone(), hash_key, callers.max_stale);
        let mint = Mint::new(MintParts {
            hub: Arc::clone(&hub),
            publisher,
            guard,
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            metrics: metrics.clone(),
        });
        background.spawn(renew::follow(mint.clone(), policy_reader.clone(), Arc::clone(&live)));
        let broker = Broker::new(BrokerParts {
            policy: policy_reader,
            live,
            published,
            targets: target_reader,
            authenticator,
            delegations: Delegations::new(hub, Arc::clone(&clock), metrics.clone(), callers.max_stale),
            mint,
            audit,
            clock,
            random,
            metrics,
            callers,
        });
        listeners.spawn(api.serve(token_api::routes(Arc::new(broker)), options.read_again));
        serving.store(true, Ordering::Relaxed);
        tracing::info!(hub = %server.hub_name, public_url = %server.public_url, "serving");

        let ended = tokio::select! {
            () = &mut shutdown => None,
            ended = listeners.join_next() => ended,
        };
        serving.store(false, Ordering::Relaxed);
        tracing::info!("stopping: accepted requests are answered first");
        api_handle.graceful_shutdown(Some(DRAIN));
        discovery_handle.graceful_shutdown(Some(DRAIN));
        while listeners.join_next().await.is_some() {}
        match ended {
            Some(Ok(Err(error))) => Err(ServeError::Ended(error)),
            Some(_) => Err(ServeError::Ended(std::io::ErrorKind::Other.into())),
            None => Ok(()),
        }
    }
}

fn watch_client(config: kube::Config) -> Result<kube::Client, ClientError> {
    kube::Client::try_from(config).map_err(|_| ClientError::Credentials)
}

fn new_guard(
    server: &ServerConfiguration,
    hub: &Arc<dyn Hub>,
    clock: &Arc<dyn Clock>,
    live: &Arc<LiveObjects>,
    publisher: &Publisher,
) -> AudienceGuard {
    let canary = ServiceAccount { namespace: server.cluster_resource_namespace.clone(), name: server.canary_service_account.clone() };
    AudienceGuard::new(Arc::clone(hub), Arc::clone(clock), Arc::clone(live), publisher.clone(), canary)
}

/// Waits for the hub, then finds out whether callers' tokens would be credentials of it.
async fn check_caller_audience(
    guard: &AudienceGuard,
    server: &ServerConfiguration,
    live: &LiveObjects,
    publisher: &Publisher,
) -> Result<(), ServeError> {
    loop {
        if live.is_complete() && publisher.reader().current().is_some() {
            match guard.check(&server.caller_audience).await {
                Ok(()) => return Ok(()),
                Err(Reason::HubUnreachable) => {}
                Err(Reason::AudienceIsHubs) => return Err(ServeError::CallerAudienceIsHubs(server.caller_audience.to_string())),
                Err(reason) => return Err(ServeError::CallerAudienceUnchecked(reason)),
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
