//! `keyferry serve`: runs the server, or checks its configuration.

mod caller_token;
mod listener_args;
mod published_keys;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use keyferry_api::config::{Listener, Overrides, ServerConfiguration, TlsSource};
use keyferry_api::name::{NameError, Namespace, ObjectName};
use keyferry_core::configuration_warnings::configuration_warnings;
use keyferry_hub::client::{ClientError, HubAccess};
use keyferry_platform::clock::{Clock as _, SystemClock};
use keyferry_platform::config_file;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::{self, ReloadSignal};
use keyferry_server::caller_trust::CallerTrustError;
use keyferry_server::fips;
use keyferry_server::http::listener::{
    CertificateAccess, Pod, ServingCertificateError, check_certificate,
};
use tracing_subscriber::EnvFilter;

use self::caller_token::check_caller_token;
use self::listener_args::ListenerArgs;
use self::published_keys::{KeysFinding, check_published_keys};
use super::version::{COMMIT, VERSION};
use crate::args::HubArgs;
use crate::args::address_args::AddressArgs;
use crate::command_error::CommandError;
use crate::ui;
use crate::wiring::{ServeOptions, Server, caller_trust, certificate_access};

#[derive(Args)]
pub(super) struct ServeArgs {
    /// Keyferry's configuration file.
    ///
    /// A ServerConfiguration, then TargetClusters and TargetAccesses.
    #[arg(long, env = "KEYFERRY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Allow targets with `issuer: Keyferry`.
    ///
    /// A managed issuer with its own key set, stored in a Secret of Keyferry's namespace.
    #[arg(
        long,
        env = "KEYFERRY_ENABLE_KEYFERRY_ISSUER",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true", hide_short_help = true)]
    enable_keyferry_issuer: Option<bool>,
    /// The namespace of the Secrets that TargetClusters name, and of Keyferry's own.
    ///
    /// Overrides clusterResourceNamespace of the file.
    #[arg(
        long,
        env = "KEYFERRY_CLUSTER_RESOURCE_NAMESPACE",
        value_name = "NAMESPACE",
        value_parser = namespace, hide_short_help = true)]
    cluster_resource_namespace: Option<Namespace>,
    /// Only check, and exit.
    ///
    /// The configuration and the serving certificates.
    #[arg(long)]
    check: bool,
    /// Also fetch what the issuers publish.
    ///
    /// With --check, the keys of externalIssuers as the server does, and those of the hub if there
    /// is access to it.
    #[arg(long, requires = "check", hide_short_help = true)]
    network: bool,
    /// Say which rule of externalIssuers accepts this token, or which one nearly does.
    ///
    /// With --check. The token of a CI job or of another caller: a file, or - for standard input.
    /// Its signature is not checked.
    #[arg(long, value_name = "FILE", requires = "check", hide_short_help = true)]
    caller_token: Option<PathBuf>,
    /// A directory that outlives the container, for the last valid key journal.
    ///
    /// A process needs it if it starts while the hub is unreachable.
    #[arg(
        long,
        env = "KEYFERRY_STATE_DIR",
        value_name = "DIR",
        hide_short_help = true
    )]
    state_dir: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Listeners")]
    listeners: ListenerArgs,
    #[command(flatten)]
    addresses: AddressArgs,
    #[command(flatten)]
    pod: PodArgs,
    #[command(flatten)]
    hub: HubArgs,
}

/// The Pod in which the server runs, as the downward API names it. Events about certificate files
/// are the Pod's.
#[derive(Args)]
struct PodArgs {
    #[arg(long, env = "POD_NAMESPACE", hide = true, value_parser = namespace)]
    pod_namespace: Option<Namespace>,
    #[arg(long, env = "POD_NAME", hide = true, value_parser = pod_name)]
    pod_name: Option<ObjectName>,
    #[arg(long, env = "POD_UID", hide = true)]
    pod_uid: Option<String>,
}

impl PodArgs {
    /// The Pod, if all of it is known.
    fn pod(self) -> Option<Pod> {
        Some(Pod {
            namespace: self.pod_namespace?,
            name: self.pod_name?,
            uid: self.pod_uid?,
        })
    }
}

pub(super) async fn run(args: ServeArgs) -> ExitCode {
    let overrides = Overrides {
        enable_managed_issuers: args.enable_keyferry_issuer,
        cluster_resource_namespace: args.cluster_resource_namespace.clone(),
        listeners: args.listeners.overrides(),
    };
    if args.check {
        let network = args.network.then_some(&args.addresses);
        let token = args.caller_token.as_deref();
        return check(&args.config, overrides, &args.hub.named(), network, token).await;
    }
    start_log();
    tracing::info!(
        version = VERSION,
        commit = COMMIT,
        fips = fips::is_enabled(),
        "starting"
    );
    let ServeArgs {
        config,
        state_dir,
        hub,
        pod,
        addresses,
        ..
    } = args;
    let options = ServeOptions {
        config,
        hub: hub.named(),
        state_dir,
        overrides,
        target_addresses: addresses.rules(),
        reload_signal: hang_ups(),
        pod: pod.pod(),
    };
    let mut stop = Box::pin(crate::signals::stop_signal());
    let bound = tokio::select! {
        bound = Server::bind(options) => bound,
        () = &mut stop => return ExitCode::SUCCESS,
    };
    let outcome = match bound {
        Ok(server) => server.run(stop).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ui::command_failed(&error.into()),
    }
}

/// The argument is not the name of a namespace.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the namespace {0}")]
struct NamespaceError(#[from] NameError);

fn namespace(text: &str) -> Result<Namespace, NamespaceError> {
    Ok(Namespace::new(text)?)
}

/// The argument is not the name of a Pod.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name of the Pod {0}")]
struct PodNameError(#[from] NameError);

fn pod_name(text: &str) -> Result<ObjectName, PodNameError> {
    Ok(ObjectName::new(text)?)
}

/// Checks the file. With `network`, also checks what the issuers publish, within these addresses;
/// with `token`, which rule accepts that of a caller.
async fn check(
    path: &Path,
    overrides: Overrides,
    hub: &HubAccess,
    network: Option<&AddressArgs>,
    token: Option<&Path>,
) -> ExitCode {
    match config_file::read_config_file(path, overrides) {
        Ok(configuration) => {
            for (access, target) in configuration.policy.dangling() {
                ui::note(&format!(
                    "warning: TargetAccess {access} names TargetCluster {target}, which the file \
                     does not hold"
                ));
            }
            let server = &configuration.server;
            if server.public_url.is_example() {
                ui::note_with_fix(
                    &format!(
                        "warning: publicURL {} is the example's, which no target reaches",
                        server.public_url
                    ),
                    "write the origin of your discovery listener, which targets pin",
                );
            }
            let now = SystemClock::start().now().wall;
            for warning in configuration_warnings(&configuration, now) {
                ui::note(&format!("warning: {warning}"));
            }
            if let Some(token) = token
                && let Err(failed) = check_caller_token(token, server, now)
            {
                return failed;
            }
            if let Err(error) = check_certificates(server, hub).await {
                return ui::command_failed(&error.into());
            }
            let unread = match network {
                Some(addresses) => match report_published_keys(server, hub, addresses).await {
                    Ok(unread) => unread,
                    Err(failed) => return failed,
                },
                None => 0,
            };
            let result = match unread {
                0 => "no mistakes".to_owned(),
                unread => format!("{unread} issuer(s) not checked"),
            };
            let policy = &configuration.policy;
            ui::finish(&format!(
                "{}: {} target(s), {} access(es), {result}",
                path.display(),
                policy.targets.len(),
                policy.accesses.len()
            ))
        }
        Err(error) => ui::command_failed(&error.into()),
    }
}

/// Prints what is wrong with the keys of the issuers. Returns how many issuers could not be read from
/// here, or the exit code of a mistake.
async fn report_published_keys(
    server: &ServerConfiguration,
    hub: &HubAccess,
    addresses: &AddressArgs,
) -> Result<usize, ExitCode> {
    let findings = check_published_keys(server, hub, addresses)
        .await
        .map_err(|error| ui::command_failed(&error.into()))?;
    let (mut failed, mut unread) = (None, 0);
    for finding in findings {
        match finding {
            KeysFinding::Mistake { problem, fix } => failed = Some(ui::fail(&problem, Some(fix))),
            KeysFinding::Unread(problem) => {
                unread += 1;
                ui::note(&format!("warning: not checked: {problem}"));
            }
        }
    }
    failed.map_or(Ok(unread), Err)
}

/// Why the serving certificates, or the CAs of callers, are not known to be good.
#[derive(Debug, thiserror::Error)]
enum CertificatesError {
    #[error(transparent)]
    Certificate(#[from] ServingCertificateError),
    #[error(transparent)]
    CallerTrust(#[from] CallerTrustError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl From<CertificatesError> for CommandError {
    fn from(error: CertificatesError) -> Self {
        match error {
            CertificatesError::Client(error) => error.into(),
            // Keyferry wrote the ends of both.
            CertificatesError::Certificate(_) | CertificatesError::CallerTrust(_) => {
                Self::of_line(&error.to_string())
            }
        }
    }
}

/// Checks the certificates that this machine can read, and warns of those that it cannot.
async fn check_certificates(
    server: &ServerConfiguration,
    hub: &HubAccess,
) -> Result<(), CertificatesError> {
    let access = match certificate_access(server, hub).await {
        Ok(access) => access,
        Err(ClientError::NotInCluster) => CertificateAccess::default(),
        Err(error) => return Err(error.into()),
    };
    let listeners: [(Option<&Listener>, Option<&str>); 3] = [
        (Some(&server.discovery), Some(server.public_url.host())),
        (Some(&server.api), None),
        (server.metrics.as_ref().map(|own| &own.listener), None),
    ];
    for (listener, host) in listeners {
        let Some(listener) = listener else { continue };
        if let (TlsSource::Secret(name), None) = (&listener.tls, &access.secrets) {
            ui::note_with_fix(
                &format!(
                    "warning: not checked: Secret {}/{name} is on the hub",
                    server.cluster_resource_namespace
                ),
                "give --kubeconfig FILE to check it",
            );
            continue;
        }
        match check_certificate(listener, host, &access).await {
            Ok(None) => {}
            Ok(Some(mismatch)) => ui::note(&format!("warning: {mismatch}")),
            // The file is often checked on another machine than the one that has the certificates.
            Err(error) if error.is_absent() && matches!(listener.tls, TlsSource::Files(_)) => {
                ui::note(&format!("warning: not checked: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if access.secrets.is_none() && !server.caller_authority_secrets().is_empty() {
        ui::note_with_fix(
            &format!(
                "warning: not checked: the Secrets with CAs of client certificates in namespace {} \
                 are on the hub",
                server.cluster_resource_namespace
            ),
            "give --kubeconfig FILE to check them",
        );
    }
    caller_trust(server, access.secrets.as_ref(), Metrics::default()).await?;
    Ok(())
}

/// The default log filter. The library of the hub's client would log each failed call a second
/// time, without naming the call.
/// A filter matches the beginning of a target: this one means every crate of Keyferry.
const LOG: &str = "warn,kube_client::client::builder=off,keyferry=info";

/// Starts logging: JSON lines on standard error, filtered by `KEYFERRY_LOG` as by `RUST_LOG`.
/// Libraries log only warnings, because their finer levels may print requests.
pub(super) fn start_log() {
    let filter = EnvFilter::try_from_env("KEYFERRY_LOG").unwrap_or_else(|_| EnvFilter::new(LOG));
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

/// Turns SIGHUP, which would otherwise end the process, into reload signals.
fn hang_ups() -> ReloadSignal {
    let (order, reload_signal) = reload_signal::channel();
    #[cfg(unix)]
    if let Ok(mut hang_ups) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())
    {
        tokio::spawn(async move {
            while hang_ups.recv().await.is_some() {
                tracing::info!(
                    "SIGHUP: reloading the configuration, the hub's documents and all \
                     certificates"
                );
                order.send_reload();
            }
        });
    }
    reload_signal
}
