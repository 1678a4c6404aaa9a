//! One real control plane: a kube-apiserver on loopback, and a kube-controller-manager if the spec
//! asks for one.

mod audit;
mod authentication;
mod error;
mod forge;
mod kubectl;
mod objects;
mod rights;
mod running;
mod serving;
mod spec;
mod tokens;

use std::path::{Path, PathBuf};

use tokio::sync::Mutex;

pub use error::ControlPlaneError;
pub use rights::Whom;
pub use spec::{ControlPlaneSpec, TokenSigning};
pub use tokens::MintedToken;

use crate::apiserver::AuditFiles;
use crate::kubeconfig::{Credential, write_kubeconfig};
use crate::parts::{Minor, Parts};
use crate::pki::{CertifiedKey, SigningKey, SigningKeyKind, TestCa};
use crate::ports::free_port;
use crate::rest::RestClient;
use running::Running;

const ATTEMPTS: usize = 3;

/// A running control plane. Dropping it kills its processes.
#[derive(Debug)]
pub struct ControlPlane {
    spec: ControlPlaneSpec,
    /// That of the spec, until [`Self::change_minor`].
    minor: parking_lot::Mutex<Minor>,
    parts: Parts,
    etcd_url: String,
    folder: PathBuf,
    port: u16,
    ca: TestCa,
    serving: CertifiedKey,
    admin: RestClient,
    admin_kubeconfig: PathBuf,
    authentication_config: Option<PathBuf>,
    audit: Option<AuditFiles>,
    /// Read at each start, so that a restart changes keys and issuers.
    signing: Mutex<TokenSigning>,
    running: Mutex<Running>,
}

impl ControlPlane {
    /// Starts the control plane and waits until it is ready. Its files are in `<folder>/<name>` and
    /// its data in the etcd.
    pub async fn start(
        spec: ControlPlaneSpec,
        parts: &Parts,
        etcd_url: &str,
        folder: &Path,
    ) -> Result<Self, ControlPlaneError> {
        let mut attempt = 1;
        loop {
            let port = free_port().map_err(ControlPlaneError::Port)?;
            let plane = Self::prepare(spec.clone(), parts, etcd_url, folder, port)?;
            match plane.run().await {
                Ok(()) => return Ok(plane),
                Err(error) if error.lost_port() && attempt < ATTEMPTS => {
                    eprintln!(
                        "{} lost the race for port {port}, trying another",
                        spec.name
                    );
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The name from its spec.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The minor version that it runs.
    pub fn minor(&self) -> Minor {
        *self.minor.lock()
    }

    /// `https://127.0.0.1:<port>`, the same after a restart.
    pub fn url(&self) -> String {
        url_of(self.port)
    }

    /// The port of [`Self::url`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// PEM of the CA that signed its first serving certificate.
    pub fn ca_pem(&self) -> &str {
        self.ca.cert_pem()
    }

    /// Its CA, which also signs serving certificates of proxies in front of it.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// The folder of its files. It is deleted with the fleet.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A kubeconfig of a member of `system:masters`, for the harness and never for the code under
    /// test.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// A client with the identity of [`Self::admin_kubeconfig`].
    pub fn admin(&self) -> &RestClient {
        &self.admin
    }

    /// A client with a bearer token.
    pub fn as_bearer(&self, token: &str) -> Result<RestClient, ControlPlaneError> {
        Ok(RestClient::with_bearer(&self.url(), self.ca_pem(), token)?)
    }

    /// Stops its processes gracefully. Its port, data and keys remain for [`Self::restart`].
    pub async fn stop(&self) -> Result<(), ControlPlaneError> {
        self.running.lock().await.stop().await
    }

    /// Kills its processes.
    pub async fn kill(&self) -> Result<(), ControlPlaneError> {
        self.running.lock().await.kill().await
    }

    /// Stops it if it runs, and starts it on the same port, with the same data and the current keys
    /// and issuers.
    pub async fn restart(&self) -> Result<(), ControlPlaneError> {
        self.stop().await?;
        self.run_on_kept_port().await
    }

    /// Stops it, and starts another minor version on the same port, with the same data and keys.
    pub async fn change_minor(&self, minor: Minor) -> Result<(), ControlPlaneError> {
        self.stop().await?;
        *self.minor.lock() = minor;
        self.run_on_kept_port().await
    }

    /// Suspends the kube-apiserver: connections stay open, but requests get no response.
    pub async fn suspend(&self) -> Result<(), ControlPlaneError> {
        self.running.lock().await.suspend().await
    }

    /// Resumes the kube-apiserver after [`Self::suspend`].
    pub async fn resume(&self) -> Result<(), ControlPlaneError> {
        self.running.lock().await.resume().await
    }

    /// Creates a further key pair, which is unused until [`Self::set_signing`] names it.
    pub fn create_signing_key(
        &self,
        kind: SigningKeyKind,
        name: &str,
    ) -> Result<SigningKey, ControlPlaneError> {
        Ok(SigningKey::create(kind, name, &self.folder)?)
    }

    /// The keys and issuers of the next start.
    pub async fn signing(&self) -> TokenSigning {
        self.signing.lock().await.clone()
    }

    /// Sets the keys and issuers that take effect at the next [`Self::restart`].
    pub async fn set_signing(&self, signing: TokenSigning) {
        *self.signing.lock().await = signing;
    }

    fn dns_names(&self) -> Vec<String> {
        dns_names(&self.spec)
    }

    fn prepare(
        spec: ControlPlaneSpec,
        parts: &Parts,
        etcd_url: &str,
        parent: &Path,
        port: u16,
    ) -> Result<Self, ControlPlaneError> {
        if spec.controller_manager && spec.minor != Minor::newest() {
            return Err(ControlPlaneError::NoControllerManager {
                minor: spec.minor.git_version(),
            });
        }
        let folder = parent.join(&spec.name);
        std::fs::create_dir_all(&folder)
            .map_err(|source| ControlPlaneError::file(&folder, source))?;
        let ca = TestCa::create(&format!("{} test CA", spec.name), &folder)?;
        let serving = ca.serving("kube-apiserver", &dns_names(&spec))?;
        let certificate = ca.client("harness-admin", "system:masters")?;
        let admin = RestClient::with_certificate(&url_of(port), ca.cert_pem(), &certificate)?;
        let kubeconfig = folder.join("admin.kubeconfig");
        let credential = Credential::ClientCertificate {
            cert: &certificate.cert_path,
            key: &certificate.key_path,
        };
        let admin_kubeconfig = write_kubeconfig(
            kubeconfig.clone(),
            &url_of(port),
            ca.cert_pem(),
            &credential,
        )
        .map_err(|source| ControlPlaneError::file(&kubeconfig, source))?;
        let signing = TokenSigning {
            issuers: spec.issuers.clone(),
            signing_key: SigningKey::create(spec.signing_key, "service-account", &folder)?,
            further_keys: Vec::new(),
        };
        Ok(Self {
            authentication_config: authentication::write_first(&spec, &folder)?,
            audit: audit::write_policy(&spec, &folder)?,
            parts: parts.clone(),
            etcd_url: etcd_url.to_owned(),
            signing: Mutex::new(signing),
            running: Mutex::default(),
            minor: parking_lot::Mutex::new(spec.minor),
            spec,
            folder,
            port,
            ca,
            serving,
            admin,
            admin_kubeconfig,
        })
    }
}

/// The names in its serving certificate, beside this machine's own.
fn dns_names(spec: &ControlPlaneSpec) -> Vec<String> {
    let mut names = vec![
        format!("{}.keyferry.test", spec.name),
        "kubernetes.default.svc".to_owned(),
    ];
    names.extend(spec.further_names.iter().cloned());
    names
}

fn url_of(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}
