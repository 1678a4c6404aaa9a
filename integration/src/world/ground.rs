//! An etcd, a CA and a built Keyferry, for tests that start their own hubs and targets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Broker, BrokerSpec, authentication_configuration, install, prepare_hub};
use crate::control_plane::{ControlPlane, ControlPlaneSpec};
use crate::etcd::Etcd;
use crate::fleet::{Fleet, FleetSpec};
use crate::keyferry_process::KeyferryBinary;
use crate::parts::{Minor, Parts};
use crate::pki::{SigningKeyKind, TestCa};
use crate::rbac::ServiceAccountKubeconfig;
use crate::runner::{Fixture, NotStarted, TestError};

/// An etcd, a CA and a built Keyferry.
pub struct Ground {
    fleet: Fleet,
    ca: TestCa,
    binary: KeyferryBinary,
}

impl Fixture for Ground {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl Ground {
    /// Starts the etcd and builds Keyferry.
    ///
    /// # Errors
    /// [`NotStarted`]: a real part is missing, or something failed.
    pub async fn start() -> Result<Self, NotStarted> {
        let fleet = Fleet::start(FleetSpec {
            control_planes: Vec::new(),
        })
        .await?;
        let binary = KeyferryBinary::build().await.map_err(NotStarted::failed)?;
        Self::build(fleet, binary).map_err(NotStarted::failed)
    }

    /// Starts the etcd for a Keyferry that is already built.
    ///
    /// # Errors
    /// As [`Ground::start`].
    pub async fn start_with(binary: KeyferryBinary) -> Result<Self, NotStarted> {
        let fleet = Fleet::start(FleetSpec {
            control_planes: Vec::new(),
        })
        .await?;
        Self::build(fleet, binary).map_err(NotStarted::failed)
    }

    fn build(fleet: Fleet, binary: KeyferryBinary) -> Result<Self, TestError> {
        let folder = fleet.folder().join("keyferry");
        std::fs::create_dir_all(&folder)?;
        let ca = TestCa::create("keyferry", &folder)?;
        Ok(Self { fleet, ca, binary })
    }

    /// Starts a control plane.
    ///
    /// # Errors
    /// It does not start.
    pub async fn control_plane(&self, spec: ControlPlaneSpec) -> Result<ControlPlane, TestError> {
        Ok(self.fleet.start_control_plane(spec).await?)
    }

    /// Starts a hub with Keyferry's manifests and the tenant of `examples/in-cluster`.
    ///
    /// # Errors
    /// It does not start.
    pub async fn hub(&self, spec: ControlPlaneSpec) -> Result<Arc<ControlPlane>, TestError> {
        let hub = Arc::new(self.control_plane(spec).await?);
        prepare_hub(&hub).await?;
        Ok(hub)
    }

    /// Starts a target that trusts an issuer by the shipped AuthenticationConfiguration.
    ///
    /// # Errors
    /// It does not start.
    pub async fn target(&self, trusting: TrustingTarget<'_>) -> Result<ControlPlane, TestError> {
        let TrustingTarget {
            name,
            minor,
            issuer,
            audience,
            discovery_url,
            subjects,
        } = trusting;
        let configuration =
            authentication_configuration(audience, discovery_url, self.ca.cert_pem())?;
        let subjects = subjects
            .iter()
            .map(|subject| format!("'system:serviceaccount:{subject}'"))
            .collect::<Vec<_>>()
            .join(", ");
        let changed = configuration
            .replace(SHIPPED_ISSUER, issuer)
            .replace(SHIPPED_SUBJECT, &subjects);
        if !changed.contains(issuer) || !changed.contains(&subjects) {
            return Err(format!(
                "auth-configs/hub.yaml does not hold {SHIPPED_ISSUER} and {SHIPPED_SUBJECT}"
            )
            .into());
        }
        let spec = ControlPlaneSpec {
            minor,
            signing_key: SigningKeyKind::EcdsaP256,
            authentication_config: Some(changed),
            audit_log: true,
            ..ControlPlaneSpec::named(name)
        };
        self.control_plane(spec).await
    }

    /// Installs and starts a Keyferry for a hub.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn start_broker(
        &self,
        hub: &Arc<ControlPlane>,
        spec: BrokerSpec,
    ) -> Result<Broker, TestError> {
        let folder = self
            .fleet
            .folder()
            .join(format!("keyferry-{}", spec.name()));
        std::fs::create_dir_all(&folder)?;
        install(hub, spec.namespace(), &folder).await?;
        Broker::start(&self.binary, hub, &folder, &self.ca, spec).await
    }

    /// Writes the configuration file and the kubeconfig of a Keyferry that is not started. The
    /// kubeconfig is removed with the returned value.
    ///
    /// # Errors
    /// A file cannot be written.
    pub async fn files(
        &self,
        hub: &Arc<ControlPlane>,
        spec: &BrokerSpec,
    ) -> Result<(PathBuf, ServiceAccountKubeconfig), TestError> {
        let folder = self
            .fleet
            .folder()
            .join(format!("keyferry-{}", spec.name()));
        std::fs::create_dir_all(&folder)?;
        Broker::written(hub, &folder, &self.ca, spec).await
    }

    /// Starts a Keyferry for a hub on which it is already installed.
    ///
    /// # Errors
    /// It did not become ready.
    pub async fn start_installed(
        &self,
        hub: &Arc<ControlPlane>,
        spec: BrokerSpec,
    ) -> Result<Broker, TestError> {
        let folder = self
            .fleet
            .folder()
            .join(format!("keyferry-{}", spec.name()));
        std::fs::create_dir_all(&folder)?;
        Broker::start(&self.binary, hub, &folder, &self.ca, spec).await
    }

    /// The built binary.
    pub fn binary(&self) -> &KeyferryBinary {
        &self.binary
    }

    /// The etcd of all control planes.
    pub fn etcd(&self) -> &Etcd {
        self.fleet.etcd()
    }

    /// The real binaries.
    pub fn parts(&self) -> &Parts {
        self.fleet.parts()
    }

    /// The CA of every Keyferry's serving certificate.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// The folder of all files. It is deleted with the fleet.
    pub fn folder(&self) -> &Path {
        self.fleet.folder()
    }
}

/// A target, and the issuer that it trusts.
#[derive(Clone, Copy, Debug)]
pub struct TrustingTarget<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its Kubernetes version.
    pub minor: Minor,
    /// The issuer that it trusts.
    pub issuer: &'a str,
    /// The only audience that it accepts.
    pub audience: &'a str,
    /// The URL of the issuer's provider metadata.
    pub discovery_url: &'a str,
    /// The ServiceAccounts that it accepts, as `namespace:name`.
    pub subjects: &'a [String],
}

/// The issuer that the shipped AuthenticationConfiguration trusts.
const SHIPPED_ISSUER: &str = "https://hub.keyferry.test";
/// The ServiceAccount that the shipped AuthenticationConfiguration accepts.
const SHIPPED_SUBJECT: &str = "'system:serviceaccount:tenant-a:reconciler'";
