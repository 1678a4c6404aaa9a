//! Keyferry processes for tests, with their configuration files, logs and audit logs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::configuration::{Access, Target, objects};
use crate::control_plane::ControlPlane;
use crate::http_client::{plain_client, trusting};
use crate::keyferry_process::{KeyferryBinary, KeyferryProcess, ServeSpec};
use crate::pki::TestCa;
use crate::ports::free_port;
use crate::rbac::{ServiceAccountKubeconfig, service_account_kubeconfig_at};
use crate::runner::TestError;

/// The namespace that the shipped manifests install Keyferry in.
pub const SHARED_NAMESPACE: &str = "keyferry-system";

const READY: Duration = Duration::from_secs(90);

/// The settings of a Keyferry to start.
#[derive(Clone, Debug)]
pub struct BrokerSpec {
    name: String,
    namespace: String,
    hub_url: String,
    ports: Option<[u16; 3]>,
    targets: Vec<Target>,
    accesses: Vec<Access>,
    times: BrokerTimes,
    further: String,
    limits: [&'static str; 2],
    public_url: Option<String>,
    audit_file: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    args: Vec<String>,
    env: Vec<(String, OsString)>,
    discovery_tls: &'static str,
    api_lines: String,
    ready_when: &'static str,
    ready_within: Duration,
}

/// The durations of a Keyferry's configuration that tests shorten.
#[derive(Clone, Copy, Debug)]
pub struct BrokerTimes {
    /// `maxStaleAuthorization`, in seconds.
    pub max_stale: u64,
    /// `discovery.maxAge`, in seconds.
    pub max_age: u64,
}

/// Turns off the limits per address, because all clients of a test share one address.
const NO_LIMITS: &str =
    "limits: {connectionsPerAddress: 0, newCallersPerAddress: 0, newCallersPerNamespace: 0}";

impl BrokerSpec {
    /// A Keyferry for a hub, without targets. The name is used for its folder and its log.
    pub fn of_hub(name: &str, hub: &ControlPlane) -> Self {
        Self {
            name: name.to_owned(),
            namespace: SHARED_NAMESPACE.to_owned(),
            hub_url: hub.url(),
            ports: free_port()
                .and_then(|one| Ok([one, free_port()?, free_port()?]))
                .ok(),
            targets: Vec::new(),
            accesses: Vec::new(),
            times: BrokerTimes {
                max_stale: 300,
                max_age: 60,
            },
            further: String::new(),
            limits: ["limits: {connectionsPerAddress: 0}", NO_LIMITS],
            public_url: None,
            audit_file: None,
            state_dir: None,
            args: Vec::new(),
            env: Vec::new(),
            discovery_tls: "",
            api_lines: String::new(),
            ready_when: "/readyz",
            ready_within: READY,
        }
    }

    /// The name of its folder and its log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The `publicURL` at its own listener, which it uses unless it is published elsewhere.
    ///
    /// # Errors
    /// No port is free.
    pub fn own_url(&self) -> Result<String, TestError> {
        let [discovery, ..] = self.ports.ok_or("no port is free")?;
        Ok(format!("https://127.0.0.1:{discovery}"))
    }

    /// The URL of its provider metadata document.
    ///
    /// # Errors
    /// No port is free.
    pub fn discovery_url(&self) -> Result<String, TestError> {
        Ok(format!(
            "{}/.well-known/openid-configuration",
            self.own_url()?
        ))
    }

    /// Connects to the hub through a proxy at this URL.
    #[must_use]
    pub fn through(mut self, url: &str) -> Self {
        url.clone_into(&mut self.hub_url);
        self
    }

    /// Gives it an installation of its own on the hub, so that it shares no key journal with
    /// others.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.namespace = format!("keyferry-{}", self.name);
        self
    }

    /// Makes it a further replica of an existing installation.
    #[must_use]
    pub fn replica_in(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The namespace of its installation.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Adds a TargetCluster.
    #[must_use]
    pub fn with_target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// Adds a TargetAccess.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.accesses.push(access);
        self
    }

    /// Sets other durations.
    #[must_use]
    pub fn with_times(mut self, times: BrokerTimes) -> Self {
        self.times = times;
        self
    }

    /// Adds lines to the ServerConfiguration.
    #[must_use]
    pub fn with_server_lines(mut self, lines: &str) -> Self {
        self.further.push_str(lines);
        self
    }

    async fn files(
        &self,
        hub: &Arc<ControlPlane>,
        folder: &Path,
        ca: &TestCa,
    ) -> Result<Files, TestError> {
        // The listener's certificate is always for the host of publicURL.
        let host = self.public_url.as_deref().and_then(|url| {
            Some(
                url.strip_prefix("https://")?
                    .split([':', '/'])
                    .next()?
                    .to_owned(),
            )
        });
        let serving = ca.serving(&format!("serving-{}", self.name), host.as_slice())?;
        let certificate = (serving.cert_path, serving.key_path);
        let config = folder.join("config.yaml");
        std::fs::write(&config, self.text(folder, &certificate.0, &certificate.1)?)?;
        let kubeconfig =
            service_account_kubeconfig_at(hub, &self.hub_url, &self.namespace, "keyferry", 3600)
                .await?;
        Ok(Files {
            config,
            certificate,
            kubeconfig,
        })
    }

    /// Sets a `publicURL` other than the address of its own listener.
    #[must_use]
    pub fn published_at(mut self, url: &str) -> Self {
        self.public_url = Some(url.to_owned());
        self
    }

    /// Writes its audit log to another file.
    #[must_use]
    pub fn audited_to(mut self, file: &Path) -> Self {
        self.audit_file = Some(file.to_owned());
        self
    }

    /// Sets a state directory.
    #[must_use]
    pub fn with_state_in(mut self, directory: &Path) -> Self {
        self.state_dir = Some(directory.to_owned());
        self
    }

    /// Adds a line to `discovery.tls`.
    #[must_use]
    pub fn with_discovery_tls(mut self, line: &'static str) -> Self {
        self.discovery_tls = line;
        self
    }

    /// Adds lines to `api`, indented by two.
    #[must_use]
    pub fn with_api_lines(mut self, lines: &str) -> Self {
        self.api_lines.push_str(lines);
        self
    }

    /// Adds arguments to `keyferry serve`.
    #[must_use]
    pub fn with_args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Counts it as started once it is live, whether or not it is ready.
    #[must_use]
    pub fn not_ready_yet(mut self) -> Self {
        self.ready_when = "/livez";
        self
    }

    /// Uses the default limits per address. Tests usually turn them off, because all their clients
    /// share one address.
    #[must_use]
    pub fn with_usual_limits(mut self) -> Self {
        self.limits = [""; 2];
        self
    }

    /// Sets the `limits` of the listeners: those of discovery, then those of the token API.
    #[must_use]
    pub fn with_limits(mut self, limits: [&'static str; 2]) -> Self {
        self.limits = limits;
        self
    }

    fn text(&self, folder: &Path, certificate: &Path, key: &Path) -> Result<String, TestError> {
        let [discovery, api, health] = self.ports.ok_or("no port is free")?;
        let tls = format!(
            "  tls:\n    certFile: {}\n    keyFile: {}\n",
            certificate.display(),
            key.display()
        );
        let BrokerTimes { max_stale, max_age } = self.times;
        let [limits_of_discovery, limits_of_api] = self.limits;
        let public_url = self
            .public_url
            .clone()
            .unwrap_or_else(|| format!("https://127.0.0.1:{discovery}"));
        let audit = self
            .audit_file
            .clone()
            .unwrap_or_else(|| folder.join("audit.jsonl"));
        let server = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
             publicURL: {public_url}\nmaxStaleAuthorization: {max_stale}s\n\
             discovery:\n  address: 127.0.0.1:{discovery}\n  maxAge: {max_age}s\n  {limits_of_discovery}\n{tls}    {}\n\
             api:\n  address: 127.0.0.1:{api}\n  {limits_of_api}\n{tls}{}health:\n  address: 127.0.0.1:{health}\n\
             clusterResourceNamespace: {}\naudit:\n  file: {}\n{}",
            self.discovery_tls,
            self.api_lines,
            self.namespace,
            audit.display(),
            self.further,
        );
        Ok(server + &objects(&self.targets, &self.accesses))
    }
}

/// The files that a Keyferry starts with.
struct Files {
    config: PathBuf,
    certificate: (PathBuf, PathBuf),
    kubeconfig: ServiceAccountKubeconfig,
}

/// A running Keyferry. Dropping it ends the process.
pub struct Broker {
    spec: Mutex<BrokerSpec>,
    folder: PathBuf,
    config: PathBuf,
    certificate: (PathBuf, PathBuf),
    kubeconfig: ServiceAccountKubeconfig,
    serve: ServeSpec,
    process: KeyferryProcess,
    http: reqwest::Client,
    ca_path: PathBuf,
}

impl Broker {
    /// Starts a Keyferry with its files in a folder, and waits until it is ready as the spec
    /// defines it.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn start(
        binary: &KeyferryBinary,
        hub: &Arc<ControlPlane>,
        folder: &Path,
        ca: &TestCa,
        spec: BrokerSpec,
    ) -> Result<Self, TestError> {
        let Files {
            config,
            certificate,
            kubeconfig,
        } = spec.files(hub, folder, ca).await?;
        let [_, _, health] = spec.ports.ok_or("no port is free")?;
        let serve = ServeSpec {
            name: format!("keyferry-{}", spec.name),
            folder: folder.to_owned(),
            config: config.clone(),
            kubeconfig: Some(kubeconfig.path().to_owned()),
            args: spec
                .state_dir
                .iter()
                .flat_map(|directory| ["--state-dir".into(), directory.into()])
                .chain(spec.args.iter().map(Into::into))
                .collect(),
            env: spec.env.clone(),
            ready_url: format!("http://127.0.0.1:{health}{}", spec.ready_when),
            ready_within: spec.ready_within,
        };
        let process = binary.serve(&serve).await?;
        let http = trusting(ca.cert_pem())?;
        let ca_path = ca.cert_path().to_owned();
        Ok(Self {
            spec: Mutex::new(spec),
            folder: folder.to_owned(),
            config,
            certificate,
            kubeconfig,
            serve,
            process,
            http,
            ca_path,
        })
    }

    /// Writes the configuration file and the kubeconfig without starting Keyferry. The kubeconfig is
    /// removed with the returned value.
    pub(super) async fn written(
        hub: &Arc<ControlPlane>,
        folder: &Path,
        ca: &TestCa,
        spec: &BrokerSpec,
    ) -> Result<(PathBuf, ServiceAccountKubeconfig), TestError> {
        let Files {
            config, kubeconfig, ..
        } = spec.files(hub, folder, ca).await?;
        Ok((config, kubeconfig))
    }

    pub(super) async fn refused_start(
        binary: &KeyferryBinary,
        hub: &Arc<ControlPlane>,
        folder: &Path,
        ca: &TestCa,
        spec: BrokerSpec,
    ) -> Result<Output, TestError> {
        let (config, kubeconfig) = Self::written(hub, folder, ca, &spec).await?;
        let (config, kubeconfig) = (
            config.display().to_string(),
            kubeconfig.path().display().to_string(),
        );
        Ok(binary
            .run(
                &["serve", "--config", &config, "--kubeconfig", &kubeconfig],
                &[],
            )
            .await?)
    }

    /// Stops the process gracefully and starts another one with the same files.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn restarted(self, binary: &KeyferryBinary) -> Result<Self, TestError> {
        self.process.stop().await?;
        let process = binary.serve(&self.serve).await?;
        Ok(Self { process, ..self })
    }

    /// Kills the process (SIGKILL) and starts another one with the same files.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn killed_and_started(self, binary: &KeyferryBinary) -> Result<Self, TestError> {
        self.process.kill().await?;
        let process = binary.serve(&self.serve).await?;
        Ok(Self { process, ..self })
    }

    /// Starts another process with the same files, after this one was killed.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn started_again(
        &self,
        binary: &KeyferryBinary,
    ) -> Result<KeyferryProcess, TestError> {
        Ok(binary.serve(&self.serve).await?)
    }

    /// An HTTP client that trusts its certificate.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The file of the CA that signed its serving certificate.
    pub fn ca_path(&self) -> &Path {
        &self.ca_path
    }

    /// The files of its serving certificate and key.
    pub fn certificate(&self) -> (&Path, &Path) {
        (&self.certificate.0, &self.certificate.1)
    }

    /// The URL of the token API.
    pub fn api_url(&self) -> String {
        self.url(1, "https")
    }

    /// The URL of the published documents.
    pub fn discovery_url(&self) -> String {
        self.url(0, "https")
    }

    /// The URL of health and metrics.
    pub fn health_url(&self) -> String {
        self.url(2, "http")
    }

    fn url(&self, which: usize, scheme: &str) -> String {
        let ports = self.spec().ports.unwrap_or_default();
        format!(
            "{scheme}://127.0.0.1:{}",
            ports.get(which).copied().unwrap_or_default()
        )
    }

    fn spec(&self) -> parking_lot::MutexGuard<'_, BrokerSpec> {
        self.spec.lock()
    }

    /// Its configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The kubeconfig that it uses for the hub.
    pub fn kubeconfig(&self) -> &ServiceAccountKubeconfig {
        &self.kubeconfig
    }

    /// The process.
    pub fn process(&self) -> &KeyferryProcess {
        &self.process
    }

    /// Gives up the process, so that the caller can stop it and wait for it.
    pub fn into_process(self) -> KeyferryProcess {
        self.process
    }

    /// Everything that it has logged.
    ///
    /// # Errors
    /// The system's error.
    pub fn log(&self) -> Result<String, TestError> {
        Ok(std::fs::read_to_string(self.process.log())?)
    }

    /// Every record of its audit log so far.
    ///
    /// # Errors
    /// A line is not JSON.
    pub fn audit(&self) -> Result<Vec<Value>, TestError> {
        let text = std::fs::read_to_string(self.folder.join("audit.jsonl"))?;
        // The last line may be under way.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?)
    }

    /// The audit record of the response with this request ID.
    ///
    /// # Errors
    /// There is no such record, or more than one.
    pub fn audit_of(&self, request_id: &str) -> Result<Value, TestError> {
        let mut records: Vec<Value> = self
            .audit()?
            .into_iter()
            .filter(|record| record["requestId"] == request_id)
            .collect();
        match (records.pop(), records.is_empty()) {
            (Some(record), true) => Ok(record),
            (record, _) => Err(format!(
                "{} audit records for request {request_id:?}",
                records.len() + usize::from(record.is_some())
            )
            .into()),
        }
    }

    /// Changes its configuration file and waits, by the reload counter, until the change is active.
    ///
    /// # Errors
    /// It was not reloaded within 15 s.
    pub async fn reconfigure(
        &self,
        change: impl FnOnce(&mut Vec<Target>, &mut Vec<Access>),
    ) -> Result<(), TestError> {
        let text = {
            let mut spec = self.spec();
            let BrokerSpec {
                targets, accesses, ..
            } = &mut *spec;
            change(targets, accesses);
            spec.text(&self.folder, &self.certificate.0, &self.certificate.1)?
        };
        self.rewrite_config(&text, "success").await
    }

    /// Writes any text to its configuration file and waits until a reload counts this result.
    ///
    /// # Errors
    /// As [`Broker::reconfigure`].
    pub async fn rewrite_config(&self, text: &str, result: &str) -> Result<(), TestError> {
        let counter = format!("keyferry_configuration_reloads_total{{result=\"{result}\"}}");
        let before = self.metric(&counter).await?;
        let fresh = self.config.with_extension("fresh");
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, &self.config)?;
        self.process.hang_up().await?;
        let limit = Instant::now() + Duration::from_secs(15);
        while self.metric(&counter).await? <= before {
            if Instant::now() > limit {
                return Err("the changed configuration was not looked at within 15 s".into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// The value of one metric, 0 if it is not there.
    ///
    /// # Errors
    /// The listener does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64, TestError> {
        let text = plain_client()?
            .get(format!("{}/metrics", self.health_url()))
            .send()
            .await?
            .text()
            .await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.map(str::parse).transpose()?.unwrap_or(0.0))
    }
}
