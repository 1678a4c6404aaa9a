//! Flux on a hub: the real source-controller and kustomize-controller as separate processes, with
//! the CRDs and the roles that Flux gives them.

mod attempts;
mod installation;
mod objects;
mod operator;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use attempts::Attempts;
pub use objects::{
    GitSource, KubeConfigRef, KustomizationSpec, condition, until_ready, until_said,
};
pub use operator::{DeployedFlux, FluxOperator};

use crate::control_plane::ControlPlane;
use crate::http_client::plain_client;
use crate::parts::{Part, PartError, Parts};
use crate::ports::free_port;
use crate::process::{Process, ProcessSpec, larger_heap};
use crate::rbac::{ServiceAccountKubeconfig, service_account_kubeconfig};
use crate::readiness::wait_until_ready;
use crate::runner::TestError;

/// The namespace that Flux is installed in.
pub const FLUX_NAMESPACE: &str = "flux-system";
const READY_WITHIN: Duration = Duration::from_secs(90);
const TOKEN_SECONDS: u64 = 7200;

/// The settings of a Flux installation.
#[derive(Debug, Clone, Default)]
pub struct FluxSpec {
    /// Feature gates of kustomize-controller to enable.
    pub feature_gates: Vec<&'static str>,
    /// Flux's multi-tenancy lock-down: no references across namespaces, no remote bases, and this
    /// ServiceAccount for objects that name none.
    pub lock_down: Option<String>,
    /// Further flags of kustomize-controller.
    pub further: Vec<String>,
}

impl FluxSpec {
    /// Enables the feature gate that `configMapRef` needs before Flux 2.10.
    pub fn with_workload_identity() -> Self {
        Self {
            feature_gates: vec!["ObjectLevelWorkloadIdentity"],
            ..Self::default()
        }
    }

    /// The flags of kustomize-controller.
    fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        if !self.feature_gates.is_empty() {
            let gates: Vec<String> = self
                .feature_gates
                .iter()
                .map(|gate| format!("{gate}=true"))
                .collect();
            flags.push(format!("--feature-gates={}", gates.join(",")));
        }
        if let Some(account) = &self.lock_down {
            flags.push("--no-cross-namespace-refs=true".to_owned());
            flags.push("--no-remote-bases=true".to_owned());
            flags.push(format!("--default-service-account={account}"));
        }
        flags.extend(self.further.iter().cloned());
        flags
    }
}

/// Running Flux controllers. Dropping them ends them.
#[derive(Debug)]
pub struct Flux {
    kustomize: Process,
    _source: FluxSource,
    kubeconfig: ServiceAccountKubeconfig,
    folder: PathBuf,
}

/// A running source-controller on a hub with Flux's CRDs and roles. Dropping it ends it.
#[derive(Debug)]
pub struct FluxSource {
    _process: Process,
    _kubeconfig: ServiceAccountKubeconfig,
}

impl FluxSource {
    /// Installs Flux on the hub, and starts source-controller with its files in the folder. It
    /// serves artifacts at this address.
    ///
    /// # Errors
    /// As [`Flux::start`].
    pub async fn start(
        hub: &Arc<ControlPlane>,
        parts: &Parts,
        folder: &Path,
        address: Ipv4Addr,
    ) -> Result<Self, TestError> {
        std::fs::create_dir_all(folder.join("storage"))?;
        installation::apply(hub, parts, folder).await?;
        let part = Part::SourceController;
        let kubeconfig =
            service_account_kubeconfig(hub, FLUX_NAMESPACE, part.binary(), TOKEN_SECONDS).await?;
        let storage = free_port()?;
        let controller = Controller {
            part,
            name: part.binary().to_owned(),
            parts,
            folder,
            flags: vec![
                format!("--storage-path={}", folder.join("storage").display()),
                format!("--storage-addr={address}:{storage}"),
                format!("--storage-adv-addr={address}:{storage}"),
            ],
            kubeconfig: &kubeconfig,
            env: Vec::new(),
        };
        Ok(Self {
            _process: controller.start().await?,
            _kubeconfig: kubeconfig,
        })
    }
}

/// A further kustomize-controller for the objects of one shard. Dropping it ends it.
#[derive(Debug)]
pub struct FluxShard {
    _kustomize: Process,
}

/// The label of Flux's sharding.
const SHARD: &str = "sharding.fluxcd.io/key";

impl Flux {
    /// Builds the missing controllers beforehand, because on a new machine that takes longer than a
    /// test may.
    ///
    /// # Errors
    /// [`PartError::Unavailable`] if a controller cannot be built.
    pub async fn prepare(parts: &Parts) -> Result<(), PartError> {
        for part in [Part::SourceController, Part::KustomizeController] {
            parts.locate(part).await?;
            parts.module(part).await?;
        }
        Ok(())
    }

    /// Applies Flux's CRDs and roles to the hub, for controllers that run as Pods.
    ///
    /// # Errors
    /// Any error from kubectl.
    pub async fn install(
        hub: &ControlPlane,
        parts: &Parts,
        folder: &Path,
    ) -> Result<(), TestError> {
        installation::apply(hub, parts, folder).await
    }

    /// Installs Flux on the hub, starts it with its files in `<folder>/flux`, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// A part is missing, or a controller does not become ready.
    pub async fn start(
        hub: &Arc<ControlPlane>,
        parts: &Parts,
        folder: &Path,
        spec: &FluxSpec,
    ) -> Result<Self, TestError> {
        let folder = folder.join("flux");
        let source = FluxSource::start(hub, parts, &folder, Ipv4Addr::LOCALHOST).await?;
        let part = Part::KustomizeController;
        let kubeconfig =
            service_account_kubeconfig(hub, FLUX_NAMESPACE, part.binary(), TOKEN_SECONDS).await?;
        let mut flags = spec.flags();
        // The others have a controller of their own.
        flags.push(format!("--watch-label-selector=!{SHARD}"));
        let controller = Controller {
            part,
            name: part.binary().to_owned(),
            parts,
            folder: &folder,
            flags,
            kubeconfig: &kubeconfig,
            env: Vec::new(),
        };
        let kustomize = controller.start().await?;
        Ok(Self {
            kustomize,
            _source: source,
            kubeconfig,
            folder,
        })
    }

    /// Starts a kustomize-controller with these settings for the objects with the label
    /// `sharding.fluxcd.io/key: <shard>`, as Flux shards an installation.
    ///
    /// # Errors
    /// The controller does not become ready.
    pub async fn start_shard(
        &self,
        parts: &Parts,
        shard: &str,
        spec: &FluxSpec,
    ) -> Result<FluxShard, TestError> {
        let part = Part::KustomizeController;
        let mut flags = spec.flags();
        flags.push(format!("--watch-label-selector={SHARD}={shard}"));
        let controller = Controller {
            part,
            name: format!("{}-{shard}", part.binary()),
            parts,
            folder: &self.folder,
            flags,
            kubeconfig: &self.kubeconfig,
            env: Vec::new(),
        };
        Ok(FluxShard {
            _kustomize: controller.start().await?,
        })
    }

    /// The end of kustomize-controller's log.
    pub fn log(&self, lines: usize) -> String {
        self.kustomize.logs_tail(lines)
    }
}

/// One controller to start.
struct Controller<'a> {
    part: Part,
    name: String,
    parts: &'a Parts,
    folder: &'a Path,
    flags: Vec<String>,
    kubeconfig: &'a ServiceAccountKubeconfig,
    /// Environment variables beside those of every controller.
    env: Vec<(String, OsString)>,
}

impl Controller<'_> {
    async fn start(self) -> Result<Process, TestError> {
        let name = self.name.as_str();
        let health = format!("127.0.0.1:{}", free_port()?);
        let mut args: Vec<OsString> = vec![
            format!("--health-addr={health}").into(),
            "--metrics-addr=127.0.0.1:0".into(),
            "--log-encoding=console".into(),
        ];
        args.extend(self.flags.into_iter().map(OsString::from));
        let home: PathBuf = self.folder.join(format!("{name}-home"));
        std::fs::create_dir_all(&home)?;
        let entry = |name: &str, value: OsString| (name.to_owned(), value);
        let mut env = vec![
            entry("KUBECONFIG", self.kubeconfig.path().into()),
            entry("RUNTIME_NAMESPACE", FLUX_NAMESPACE.into()),
            entry("HOME", home.clone().into()),
            entry("TMPDIR", home.into()),
            larger_heap(),
        ];
        env.extend(self.env);
        let mut process = Process::spawn(&ProcessSpec {
            name: name.to_owned(),
            program: self.parts.locate(self.part).await?,
            args,
            env,
            log: self.folder.join(format!("{name}.log")),
        })
        .await?;
        wait_until_ready(
            name,
            &mut process,
            &plain_client()?,
            &format!("http://{health}/readyz"),
            READY_WITHIN,
        )
        .await?;
        Ok(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_down_is_three_flags() {
        assert!(FluxSpec::default().flags().is_empty());
        let spec = FluxSpec {
            lock_down: Some("default".to_owned()),
            ..FluxSpec::with_workload_identity()
        };
        assert_eq!(
            spec.flags(),
            [
                "--feature-gates=ObjectLevelWorkloadIdentity=true",
                "--no-cross-namespace-refs=true",
                "--no-remote-bases=true",
                "--default-service-account=default",
            ]
        );
    }
}
