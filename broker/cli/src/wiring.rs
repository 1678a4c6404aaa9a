//! Builds all parts of the server and connects them. Nothing else knows both `keyferry-server` and
//! `keyferry-controller`.

mod caller_audience;
mod error;
mod shared;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyferry_api::config::{
    Configuration, Listener, MetricsAuthentication, Overrides, ServerConfiguration, TlsSource,
};
use keyferry_core::target_address::AddressRules;
use keyferry_hub::client::{ClientError, HubAccess, HubClient};
use keyferry_hub::objects::KubeObjects;
use keyferry_hub::serving_secret::{CertificateSecrets, KubeServingSecrets};
use keyferry_hub::watch;
use keyferry_listener::{Bounds, ClientCertificates, DRAIN_TIMEOUT, PlainListener, TlsListener};
use keyferry_platform::audit_sink::AuditSink;
use keyferry_platform::clock::{Clock, SystemClock};
use keyferry_platform::config_file;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::random::SystemRandomness;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_server::audit::AuditLog;
use keyferry_server::caller_trust::{CallerTrust, CallerTrustError, CertificateRules, TrustReader};
use keyferry_server::http::health::{self, HealthParts};
use keyferry_server::http::listener::{self, CertificateAccess, Pod, PodEvents};
use keyferry_server::http::metadata::Metadata;
use keyferry_server::http::metrics::{self as metrics_routes, MetricsParts};
use keyferry_server::http::token_api::{self, ApiParts, PublicParts};
use keyferry_server::http::{discovery, redirect};
use tokio::task::JoinSet;

use self::shared::Shared;

pub use self::error::ServeError;

/// How long the listener may still send answers that the token API is not open yet.
const CLOSED_API_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The options of `keyferry serve`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The configuration file.
    pub config: PathBuf,
    /// Where the hub is.
    pub hub: HubAccess,
    /// The directory that keeps the last valid key journal over restarts.
    pub state_dir: Option<PathBuf>,
    /// Options that override the configuration file.
    pub overrides: Overrides,
    /// To which addresses of targets nothing is sent.
    pub target_addresses: AddressRules,
    /// Triggers an immediate reload.
    pub reload_signal: ReloadSignal,
    /// The Pod in which the process runs, for Events about it.
    pub pod: Option<Pod>,
}

/// A server whose listeners are open.
pub struct Server {
    configuration: Configuration,
    options: ServeOptions,
    discovery: TlsListener,
    redirects: Option<PlainListener>,
    api: TlsListener,
    caller_trust: Option<CallerTrust>,
    health: PlainListener,
    metrics_listener: Option<TlsListener>,
    audit: Arc<dyn AuditSink>,
    metrics: Metrics,
}

impl Server {
    /// Reads the configuration and opens the listeners.
    ///
    /// # Errors
    /// [`ServeError`], before any request to the hub but for the Secrets with certificates.
    pub async fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        keyferry_listener::raise_descriptor_limit();
        let configuration =
            config_file::read_config_file(&options.config, options.overrides.clone())?;
        let server = &configuration.server;
        let audit = open_audit_log(server)?;
        let metrics = Metrics::default();
        let mut access = certificate_access(server, &options.hub).await?;
        if let Some(pod) = &options.pod {
            access.events = pod_events(pod, &options.hub).await;
        }
        let discovery = listener::bind_listener(
            &server.discovery,
            Bounds::DOCUMENTS,
            Some(server.public_url.host()),
            &access,
            &metrics,
        )
        .await?;
        let caller_trust = caller_trust(server, access.secrets.as_ref(), metrics.clone()).await?;
        let asked = match caller_trust {
            Some(_) => ClientCertificates::Requested,
            None => ClientCertificates::Ignored,
        };
        let api = listener::bind_listener(
            &server.api,
            Bounds::TOKENS.with_client_certificates(asked),
            None,
            &access,
            &metrics,
        )
        .await?;
        let metrics_listener = match &server.metrics {
            Some(own) => Some(
                listener::bind_listener(&own.listener, Bounds::METRICS, None, &access, &metrics)
                    .await?,
            ),
            None => None,
        };
        let redirects = server.discovery_http_address.map(|address| {
            PlainListener::bind(
                address,
                Bounds::REDIRECTS,
                listener::listener_metrics(&metrics),
            )
        });
        let redirects = redirects.transpose()?;
        let health = PlainListener::bind(
            server.health_address,
            Bounds::HEALTH,
            listener::listener_metrics(&metrics),
        )?;
        Ok(Self {
            configuration,
            options,
            discovery,
            redirects,
            api,
            caller_trust,
            health,
            metrics_listener,
            audit,
            metrics,
        })
    }

    /// Serves until `shutdown`; then it reports not ready, answers the accepted requests and ends
    /// without an error.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let Configuration { server, policy } = self.configuration;
        let authority = self.discovery.authority();
        let mut shared =
            Shared::start(&server, policy, &self.options, authority, self.metrics).await?;
        let reload = &self.options.reload_signal;
        let trust = start_trust_reload(&mut shared, self.caller_trust, reload);
        let public = public_parts(&shared, &server);
        let health_parts = public.health.clone();
        let serving = Arc::clone(&health_parts.serving);
        let stopping = Arc::clone(&health_parts.stopping);
        let health = self.health;
        shared.background.spawn(async move {
            // The health listener ends after all others.
            let _ = health.serve(health::health_routes(health_parts)).await;
        });
        start_metrics_listener(&mut shared, self.metrics_listener, &server, reload)?;
        let mut handles = vec![self.discovery.handle(), self.api.handle()];
        handles.extend(self.redirects.as_ref().map(PlainListener::handle));
        let mut listeners =
            start_documents(&shared, &server, self.discovery, self.redirects, reload);

        let closed = self.api.try_clone().map_err(ServeError::Ended)?;
        let until_open = closed.handle();
        let mut until_opened = JoinSet::new();
        let routes = token_api::closed_routes(&public);
        until_opened.spawn(closed.serve(routes, reload.clone().into_stream()));

        let mut shutdown = Box::pin(shutdown);
        let guard = shared.audience_guard();
        let published = shared.publisher.reader();
        let opened = tokio::select! {
            checked = caller_audience::check_caller_audience(&guard, &server, &shared.live, &published) => checked.map(|()| true),
            _ = shared.background.join_next() => Err(ServeError::BackgroundEnded),
            () = &mut shutdown => Ok(false),
        }?;
        let outcome = if opened {
            shared.allow_managed_key_writes().await;
            let inputs = shared.input_service(&self.audit);
            let broker = shared.create_broker(guard, self.audit, trust)?;
            until_open.graceful_shutdown(Some(CLOSED_API_GRACE_PERIOD));
            let routes = token_api::token_api_routes(ApiParts {
                broker: Arc::new(broker),
                counts_sources: server.api.connections_per_address.is_some(),
                inputs,
                public,
            });
            listeners.spawn(self.api.serve(routes, reload.clone().into_stream()));
            serving.store(true, Ordering::Relaxed);
            tracing::info!(hub = %server.hub_name, public_url = %server.public_url, "serving");
            tokio::select! {
                () = &mut shutdown => Ok(()),
                ended = listeners.join_next() => Err(listener_ended(ended)),
                _ = shared.background.join_next() => Err(ServeError::BackgroundEnded),
            }
        } else {
            Ok(())
        };
        stopping.store(true, Ordering::Relaxed);
        tracing::info!("stopping: accepted requests are answered first");
        for handle in handles {
            handle.graceful_shutdown(Some(DRAIN_TIMEOUT));
        }
        while listeners.join_next().await.is_some() {}
        shared.stop_tasks().await;
        outcome
    }
}

fn open_audit_log(server: &ServerConfiguration) -> Result<Arc<dyn AuditSink>, ServeError> {
    Ok(match &server.audit_file {
        Some(file) => Arc::new(AuditLog::to_file(file).map_err(|source| ServeError::Audit {
            path: file.path.clone(),
            source,
        })?),
        None => Arc::new(AuditLog::standard_output()),
    })
}

/// Starts to reload the CAs of client certificates, if the configuration has any.
fn start_trust_reload(
    shared: &mut Shared,
    trust: Option<CallerTrust>,
    reload_signal: &ReloadSignal,
) -> TrustReader {
    let Some(trust) = trust else {
        return TrustReader::default();
    };
    let reader = trust.reader();
    let inputs = shared.input_credentials.clone();
    shared
        .background
        .spawn(trust.run_trust_reload(inputs, reload_signal.clone()));
    reader
}

/// Returns what the routes answer to everybody; the server neither serves yet nor stops.
fn public_parts(shared: &Shared, server: &ServerConfiguration) -> PublicParts {
    PublicParts {
        health: HealthParts {
            serving: Arc::new(AtomicBool::new(false)),
            stopping: Arc::new(AtomicBool::new(false)),
            published: shared.publisher.reader(),
            live: Arc::clone(&shared.live),
            metrics: server.metrics.is_none().then(|| shared.metrics.clone()),
        },
        metadata: server.api_public_url.as_ref().map(Metadata::of),
        has_inputs: server.inputs.enabled,
    }
}

/// Serves the metrics, if they have a listener of their own.
fn start_metrics_listener(
    shared: &mut Shared,
    listener: Option<TlsListener>,
    server: &ServerConfiguration,
    reload_signal: &ReloadSignal,
) -> Result<(), ServeError> {
    let (Some(listener), Some(own)) = (listener, &server.metrics) else {
        return Ok(());
    };
    let readers = match own.authentication {
        MetricsAuthentication::TokenReview => Some(shared.create_metrics_readers()?),
        MetricsAuthentication::None => None,
    };
    let routes = metrics_routes::metrics_routes(MetricsParts {
        metrics: shared.metrics.clone(),
        readers,
    });
    let reload_signal = reload_signal.clone();
    shared.background.spawn(async move {
        let _ = listener.serve(routes, reload_signal.into_stream()).await;
    });
    Ok(())
}

/// Serves the discovery documents, and redirects to them over plain HTTP.
fn start_documents(
    shared: &Shared,
    server: &ServerConfiguration,
    discovery: TlsListener,
    redirects: Option<PlainListener>,
    reload_signal: &ReloadSignal,
) -> JoinSet<std::io::Result<()>> {
    let mut listeners = JoinSet::new();
    let documents = discovery::discovery_routes(
        shared.publisher.reader(),
        shared.managed_issuers.clone(),
        server.max_age,
    );
    if let Some(redirects) = redirects {
        let routes = redirect::redirect_routes(documents.clone(), server.public_url.clone());
        listeners.spawn(redirects.serve(routes));
    }
    listeners.spawn(discovery.serve(documents, reload_signal.clone().into_stream()));
    listeners
}

/// Access to the Secrets with serving certificates and with the CAs of callers, if the configuration
/// names any: a server with files alone opens its listeners without the hub.
///
/// # Errors
/// The hub's client cannot be made.
pub async fn certificate_access(
    server: &ServerConfiguration,
    hub: &HubAccess,
) -> Result<CertificateAccess, ClientError> {
    let from_secret = |listener: &Listener| matches!(listener.tls, TlsSource::Secret(_));
    let metrics = server.metrics.as_ref().map(|own| &own.listener);
    let none = !from_secret(&server.discovery)
        && !from_secret(&server.api)
        && !metrics.is_some_and(from_secret);
    if none && server.caller_authority_secrets().is_empty() {
        return Ok(CertificateAccess::default());
    }
    let config = hub.config().await?;
    let client = HubClient::new(config.clone())?;
    let namespace = server.cluster_resource_namespace.clone();
    let watches = watch::watch_client(config)?;
    let secrets = CertificateSecrets {
        secrets: Arc::new(KubeServingSecrets::new(
            client.clone(),
            watches,
            namespace.clone(),
        )),
        namespace,
        objects: Arc::new(KubeObjects::new(client)),
        random: Arc::new(SystemRandomness::default()),
    };
    Ok(CertificateAccess {
        secrets: Some(secrets),
        events: None,
    })
}

/// Writes Events about the Pod, if there is a hub to write them to. They are only for people, so
/// nothing depends on them.
async fn pod_events(pod: &Pod, hub: &HubAccess) -> Option<PodEvents> {
    let client = hub.client().await.ok()?;
    Some(PodEvents {
        pod: pod.clone(),
        objects: Arc::new(KubeObjects::new(client)),
        random: Arc::new(SystemRandomness::default()),
    })
}

/// Reads the CAs of client certificates; `None` if the configuration has no rule for any.
///
/// # Errors
/// A CA cannot be used.
pub async fn caller_trust(
    server: &ServerConfiguration,
    secrets: Option<&CertificateSecrets>,
    metrics: Metrics,
) -> Result<Option<CallerTrust>, CallerTrustError> {
    let is_asked = !server.caller_authority_secrets().is_empty();
    let Some(access) = secrets.filter(|_| is_asked) else {
        return Ok(None);
    };
    let rules = CertificateRules {
        callers: server.client_certificates.clone(),
        inputs: config_file::input_credentials(server),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let max_stale = server.max_stale_authorization;
    CallerTrust::start(rules, access.clone(), max_stale, clock, metrics)
        .await
        .map(Some)
}

fn listener_ended(
    ended: Option<Result<std::io::Result<()>, tokio::task::JoinError>>,
) -> ServeError {
    match ended {
        Some(Ok(Err(error))) => ServeError::Ended(error),
        _ => ServeError::Ended(std::io::ErrorKind::Other.into()),
    }
}
