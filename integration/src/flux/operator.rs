//! Flux Operator on a hub, and Flux's controllers with the flags that it gives their Deployments.
//! The hub has no nodes, so a FluxInstance installs everything but the processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::installation::binding;
use super::{Controller, FLUX_NAMESPACE, TOKEN_SECONDS};
use crate::control_plane::ControlPlane;
use crate::parts::{Part, Parts};
use crate::ports::free_port;
use crate::process::Process;
use crate::rbac::{ServiceAccountKubeconfig, apply_manifests, service_account_kubeconfig};
use crate::runner::TestError;
use crate::wait::until_object;

/// The components of the FluxInstance, which the test starts.
const COMPONENTS: [Part; 3] = [
    Part::SourceController,
    Part::KustomizeController,
    Part::HelmController,
];
/// How long the operator may take to apply the Deployments.
const DEPLOYED_WITHIN: Duration = Duration::from_secs(60);
/// Flags of a Deployment that hold only inside a cluster, or that the test sets itself.
const OF_THE_CLUSTER: [&str; 6] = [
    "--events-addr",
    "--enable-leader-election",
    "--log-encoding",
    "--storage-",
    "--metrics-addr",
    "--health-addr",
];

/// A running Flux Operator. Dropping it ends it.
#[derive(Debug)]
pub struct FluxOperator {
    process: Process,
    _kubeconfig: ServiceAccountKubeconfig,
}

impl FluxOperator {
    /// Applies the operator's CRDs, makes it an administrator of the hub, as its own installation
    /// does, and starts it with its files in the folder.
    ///
    /// # Errors
    /// The part is missing, or the operator does not become ready.
    pub async fn start(
        hub: &Arc<ControlPlane>,
        parts: &Parts,
        folder: &Path,
    ) -> Result<Self, TestError> {
        let part = Part::FluxOperator;
        let name = part.binary();
        std::fs::create_dir_all(folder)?;
        hub.create_namespace_with_service_account(FLUX_NAMESPACE, name)
            .await?;
        let module = parts.module(part).await?;
        let role = folder.join("flux-operator-rbac.yaml");
        std::fs::write(&role, binding(name, "cluster-admin", name))?;
        apply_manifests(hub, &[&module.join("config/crd/bases"), &role]).await?;
        let kubeconfig =
            service_account_kubeconfig(hub, FLUX_NAMESPACE, name, TOKEN_SECONDS).await?;
        let controller = Controller {
            part,
            name: name.to_owned(),
            parts,
            folder,
            flags: vec![
                // The manifests of Flux's releases, which its container has at /data.
                format!("--storage-path={}", module.join("config/data").display()),
                "--enable-leader-election=false".to_owned(),
                "--web-server-port=0".to_owned(),
                "--requeue-dependency=1s".to_owned(),
            ],
            kubeconfig: &kubeconfig,
            // It refuses to run without this mode.
            env: vec![("GODEBUG".to_owned(), "fips140=on".into())],
        };
        Ok(Self {
            process: controller.start().await?,
            _kubeconfig: kubeconfig,
        })
    }

    /// The end of its log.
    pub fn log(&self, lines: usize) -> String {
        self.process.logs_tail(lines)
    }
}

/// The controllers of a FluxInstance, as processes. Dropping them ends them.
#[derive(Debug)]
pub struct DeployedFlux {
    controllers: Vec<(Process, ServiceAccountKubeconfig)>,
    flags: Vec<(Part, Vec<String>)>,
}

impl DeployedFlux {
    /// Waits for the Deployments of the FluxInstance, and starts each controller as its
    /// ServiceAccount and with its flags. Registries may have certificates of the CA in this file.
    ///
    /// # Errors
    /// A part is missing, the operator applies no Deployment, or a controller does not become
    /// ready.
    pub async fn start(
        hub: &Arc<ControlPlane>,
        parts: &Parts,
        folder: &Path,
        authority: &Path,
    ) -> Result<Self, TestError> {
        let mut deployed = Self {
            controllers: Vec::new(),
            flags: Vec::new(),
        };
        for part in COMPONENTS {
            let operator_flags = deployed_flags(hub, part).await?;
            let name = part.binary();
            let kubeconfig =
                service_account_kubeconfig(hub, FLUX_NAMESPACE, name, TOKEN_SECONDS).await?;
            let mut flags = own_flags(&operator_flags);
            flags.extend(match part {
                Part::SourceController => storage_flags(folder)?,
                _ => vec!["--requeue-dependency=1s".to_owned()],
            });
            let controller = Controller {
                part,
                name: name.to_owned(),
                parts,
                folder,
                flags,
                kubeconfig: &kubeconfig,
                env: vec![("SSL_CERT_FILE".to_owned(), OsString::from(authority))],
            };
            let process = controller.start().await?;
            deployed.controllers.push((process, kubeconfig));
            deployed.flags.push((part, operator_flags));
        }
        Ok(deployed)
    }

    /// The flags of a controller's Deployment.
    pub fn flags(&self, part: Part) -> &[String] {
        let mut all = self.flags.iter();
        all.find(|(of, _)| *of == part)
            .map_or(&[], |(_, flags)| flags.as_slice())
    }

    /// The ends of the controllers' logs.
    pub fn log(&self, lines: usize) -> String {
        let logs = self.controllers.iter().zip(COMPONENTS);
        logs.map(|((process, _), part)| {
            format!("--- {}\n{}\n", part.binary(), process.logs_tail(lines))
        })
        .collect()
    }
}

async fn deployed_flags(hub: &ControlPlane, part: Part) -> Result<Vec<String>, TestError> {
    let name = part.binary();
    let path = format!("/apis/apps/v1/namespaces/{FLUX_NAMESPACE}/deployments/{name}");
    let arguments = |object: &Value| {
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        container["args"].as_array().cloned()
    };
    let deployment = until_object(hub.admin(), &path, "applied", DEPLOYED_WITHIN, |object| {
        arguments(object).is_some()
    })
    .await?;
    let flags = arguments(&deployment).unwrap_or_default();
    Ok(flags
        .iter()
        .filter_map(|flag| flag.as_str().map(str::to_owned))
        .collect())
}

fn own_flags(deployed: &[String]) -> Vec<String> {
    let of_the_cluster = |flag: &&String| OF_THE_CLUSTER.iter().any(|one| flag.starts_with(one));
    deployed
        .iter()
        .filter(|flag| !of_the_cluster(flag))
        .cloned()
        .collect()
}

fn storage_flags(folder: &Path) -> Result<Vec<String>, TestError> {
    let storage: PathBuf = folder.join("storage");
    std::fs::create_dir_all(&storage)?;
    let address = format!("127.0.0.1:{}", free_port()?);
    Ok(vec![
        format!("--storage-path={}", storage.display()),
        format!("--storage-addr={address}"),
        format!("--storage-adv-addr={address}"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_cluster_are_left_out() {
        let deployed = [
            "--events-addr=http://notification-controller.flux-system.svc./",
            "--watch-all-namespaces=true",
            "--storage-path=/data",
            "--no-cross-namespace-refs=true",
        ];
        let deployed = deployed.map(str::to_owned);
        assert_eq!(
            own_flags(&deployed),
            [
                "--watch-all-namespaces=true",
                "--no-cross-namespace-refs=true"
            ]
        );
    }
}
