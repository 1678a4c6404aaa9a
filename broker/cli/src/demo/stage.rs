//! Runs the demo's hub and target, and between them the same server that `keyferry serve` runs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_api::config::Overrides;
use keyferry_api::issuer::discovery_url;
use keyferry_api::service_account::ServiceAccount;
use keyferry_client::doctor::impersonated_user::ImpersonatedUser;
use keyferry_core::target_address::AddressRules;
use keyferry_hub::client::HubAccess;
use keyferry_platform::https_client::HttpsClientBuilder;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_testing::{
    Authority, DiscoveryAccess, EmbeddedHub, EmbeddedTarget, HubOptions, RbacPolicy, TargetOptions,
};
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::DemoError;
use super::auth_file::AuthFile;
use crate::wiring::{ServeError, ServeOptions, Server};

/// The hub's issuer. No server has this name: the target reads the keys from Keyferry.
const ISSUER: &str = "https://hub.example.internal";
/// The audience of the target.
const AUDIENCE: &str = "https://prod.example.com";
const CALLER_LIFETIME: Duration = Duration::from_secs(12 * 3600);
const READY: Duration = Duration::from_secs(15);

/// The choices of the user.
pub(super) struct StageOptions {
    /// The AuthenticationConfiguration of the target; without one, it has fixed rules.
    pub(super) auth_file: Option<AuthFile>,
    /// The target's roles and bindings; without any, the demo grants what it needs.
    pub(super) rbac: Option<RbacPolicy>,
    /// The ServiceAccount that uses the target.
    pub(super) workload: ServiceAccount,
    /// The user that it impersonates there.
    pub(super) impersonated: ImpersonatedUser,
}

impl StageOptions {
    pub(super) fn issuer(&self) -> &str {
        self.auth_file.as_ref().map_or(ISSUER, |file| &file.issuer)
    }

    fn audience(&self) -> &str {
        self.auth_file
            .as_ref()
            .map_or(AUDIENCE, |file| &file.audience)
    }

    /// A namespace that has no access.
    fn other_namespace(&self) -> &'static str {
        match self.workload.namespace.as_str() {
            "tenant-b" => "tenant-c",
            _ => "tenant-b",
        }
    }
}

/// Everything that runs during the demo.
pub(super) struct Stage {
    pub(super) options: StageOptions,
    pub(super) hub: EmbeddedHub,
    pub(super) target: EmbeddedTarget,
    pub(super) caller: SecretString,
    pub(super) foreign_caller: SecretString,
    pub(super) http: reqwest::Client,
    ports: Ports,
    folder: TempDir,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), ServeError>>,
}

struct Ports {
    discovery: u16,
    api: u16,
    health: u16,
}

impl Stage {
    pub(super) async fn start(options: StageOptions) -> Result<Self, DemoError> {
        let folder = tempfile::Builder::new()
            .prefix("keyferry-demo-")
            .tempdir()?;
        let (ports, kept) = free_ports()?;
        let authority = Authority::new("keyferry demo CA")?;
        let hub = start_hub(&options).await?;
        let target = start_target(&options, &ports, &authority).await?;
        hub.add_secret(
            "keyferry-system",
            "prod-ca",
            &[("ca.crt", target.ca_pem().as_bytes())],
        );
        let serving = authority.server_identity(&["localhost", "127.0.0.1"])?;
        write(&folder, "ca.crt", authority.ca_pem())?;
        write(&folder, "tls.crt", &serving.certificate_pem)?;
        write(&folder, "tls.key", serving.key_pem.expose_secret())?;
        write(&folder, "hub.kubeconfig", hub.kubeconfig().expose_secret())?;
        let ServiceAccount { namespace, name } = &options.workload;
        let token =
            |namespace: &str| hub.token(namespace, name.as_str(), "keyferry.dev", CALLER_LIFETIME);
        let caller = token(namespace.as_str())?;
        let foreign_caller = token(options.other_namespace())?;
        write(&folder, "caller.token", caller.expose_secret())?;
        write(&folder, "intruder.token", foreign_caller.expose_secret())?;
        write(
            &folder,
            "config.yaml",
            &configuration(folder.path(), &ports, target.url(), &options),
        )?;

        let serve = ServeOptions {
            config: folder.path().join("config.yaml"),
            hub: HubAccess {
                kubeconfig: Some(folder.path().join("hub.kubeconfig")),
                ..HubAccess::default()
            },
            state_dir: None,
            overrides: Overrides::default(),
            target_addresses: AddressRules::default(),
            pod: None,
            reload_signal: ReloadSignal::never(),
        };
        // The ports stay bound until now, so that the hub and the target could not take them.
        drop(kept);
        let server = Server::bind(serve).await?;
        let (stop, stopped) = oneshot::channel();
        let mut server = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        let http = client(&authority)?;
        tokio::select! {
            ready = until_ready(ports.health) => ready?,
            ended = &mut server => return Err(match ended {
                Ok(Err(error)) => error.into(),
                _ => DemoError::Unexpected("the server ended before it was ready"),
            }),
        }
        Ok(Self {
            options,
            hub,
            target,
            caller,
            foreign_caller,
            http,
            ports,
            folder,
            stop,
            server,
        })
    }

    pub(super) fn api_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    pub(super) fn discovery_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.discovery)
    }

    /// The name of the access, `NAMESPACE/NAME`.
    pub(super) fn access(&self) -> String {
        format!("{}/prod", self.options.workload.namespace)
    }

    /// The ServiceAccount that has no access, `NAMESPACE/NAME`.
    pub(super) fn intruder_name(&self) -> String {
        let namespace = self.options.other_namespace();
        format!("{namespace}/{}", self.options.workload.name)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) async fn stop(self) -> Result<(), DemoError> {
        let _ = self.stop.send(());
        match self.server.await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(DemoError::Unexpected("the server's task died")),
        }
        self.target.stop().await;
        self.hub.stop().await;
        Ok(())
    }
}

async fn start_hub(stage: &StageOptions) -> Result<EmbeddedHub, DemoError> {
    let options = HubOptions {
        issuer: Some(stage.issuer().to_owned()),
        // This is Kubernetes' default, with which a target cannot read the keys from the hub
        // itself.
        discovery_access: DiscoveryAccess::Authenticated,
        ..HubOptions::default()
    };
    let hub = EmbeddedHub::start(options).await?;
    let ServiceAccount { namespace, name } = &stage.workload;
    for (namespace, account) in [
        ("keyferry-system", "keyferry-canary"),
        (namespace.as_str(), name.as_str()),
        (stage.other_namespace(), name.as_str()),
    ] {
        hub.add_namespace(namespace, &[]);
        hub.add_service_account(namespace, account);
    }
    Ok(hub)
}

async fn start_target(
    stage: &StageOptions,
    ports: &Ports,
    authority: &Authority,
) -> Result<EmbeddedTarget, DemoError> {
    let (issuer, audience) = (stage.issuer(), stage.audience());
    let mut options = TargetOptions::new(issuer, audience, "hub:", authority.ca_pem());
    options.discovery_url = Some(discovery_url(&format!(
        "https://127.0.0.1:{}",
        ports.discovery
    )));
    let ServiceAccount { namespace, name } = &stage.workload;
    options.allowed_subjects = vec![format!("system:serviceaccount:{namespace}:{name}")];
    options.verifier = stage.auth_file.as_ref().map(AuthFile::verifier);
    options.rbac = stage.rbac.clone();
    Ok(EmbeddedTarget::start(options).await?)
}

fn configuration(folder: &Path, ports: &Ports, target_url: &str, stage: &StageOptions) -> String {
    let folder = folder.display();
    let audience = stage.audience();
    let ServiceAccount { namespace, name } = &stage.workload;
    let Ports {
        discovery,
        api,
        health,
    } = ports;
    format!(
        "apiVersion: config.keyferry.dev/v1alpha1
kind: ServerConfiguration
hubName: hub
publicURL: https://127.0.0.1:{discovery}
discovery:
  address: 127.0.0.1:{discovery}
  tls: {{certFile: {folder}/tls.crt, keyFile: {folder}/tls.key}}
api:
  address: 127.0.0.1:{api}
  tls: {{certFile: {folder}/tls.crt, keyFile: {folder}/tls.key}}
health:
  address: 127.0.0.1:{health}
audit:
  file: {folder}/audit.jsonl
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata:
  name: prod
spec:
  address: {target_url}
  certSecretRef:
    name: prod-ca
  audience: {audience:?}
  allow:
    - namespaces: [{namespace}]
      serviceAccounts: [{name}]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata:
  name: prod
  namespace: {namespace}
spec:
  targetClusterRef:
    name: prod
  serviceAccountName: {name}
"
    )
}

fn write(folder: &TempDir, name: &str, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
        .open(folder.path().join(name))?
        .write_all(text.as_bytes())
}

/// Finds free ports. The returned listeners keep other processes from taking them.
fn free_ports() -> std::io::Result<(Ports, [TcpListener; 3])> {
    let bind = || TcpListener::bind(("127.0.0.1", 0));
    let kept = [bind()?, bind()?, bind()?];
    let port = |listener: &TcpListener| Ok::<u16, std::io::Error>(listener.local_addr()?.port());
    let [discovery, api, health] = &kept;
    Ok((
        Ports {
            discovery: port(discovery)?,
            api: port(api)?,
            health: port(health)?,
        },
        kept,
    ))
}

fn client(authority: &Authority) -> Result<reqwest::Client, DemoError> {
    let unusable = |_| DemoError::Unexpected("no HTTPS client could be made");
    HttpsClientBuilder::new(READY)
        .trusting_only(authority.ca_pem().as_bytes())
        .and_then(HttpsClientBuilder::build)
        .map_err(unusable)
}

async fn until_ready(port: u16) -> Result<(), DemoError> {
    // Readiness is served over plain HTTP.
    let http = reqwest::Client::builder()
        .no_proxy()
        .build()
        .map_err(|_| DemoError::Unexpected("no HTTP client could be made"))?;
    let url = format!("http://127.0.0.1:{port}/readyz");
    let ready = async {
        while !http
            .get(&url)
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(READY, ready)
        .await
        .map_err(|_| DemoError::Unexpected("the server did not become ready"))
}
