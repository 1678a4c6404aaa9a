//! Two hubs: one with Keyferry from the kustomize base, the other with Keyferry from the chart.

use std::path::PathBuf;
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::{Fleet, FleetError, FleetSpec};
use keyferry_integration::network_namespace::NetworkNamespace;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::shipped;

use super::helm::helm;

/// Keyferry's namespace.
pub(crate) const NAMESPACE: &str = "keyferry-system";
/// A tenant in whose namespace Keyferry may mint.
pub(crate) const TENANT: &str = "tenant-a";
/// A namespace in which Keyferry may not mint.
pub(crate) const UNMINTABLE_NAMESPACE: &str = "tenant-b";

/// A hub with the kustomize base and a hub with the chart.
pub(crate) struct Hubs {
    fleet: Fleet,
    /// A node of the hub with the base, if this machine can have one.
    node: Option<NetworkNamespace>,
    /// The hub with the base.
    pub(crate) base: Arc<ControlPlane>,
    /// The hub with the chart.
    pub(crate) chart: Arc<ControlPlane>,
}

impl Fixture for Hubs {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl Hubs {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        // Its address is in the certificate of the base's hub, so it exists before.
        let logs = tempfile::tempdir().map_err(NotStarted::failed)?;
        let node = NetworkNamespace::start(logs.path()).await.ok();
        let plane = |name: &str| ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            further_names: node.iter().map(|node| node.address().to_string()).collect(),
            ..ControlPlaneSpec::named(name)
        };
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![plane("base"), plane("chart")],
        })
        .await?;
        // Build them now, because a build takes longer than a test may.
        for part in [Part::Helm, Part::PrometheusRules] {
            fleet.parts().locate(part).await.map_err(FleetError::from)?;
        }
        Self::build(fleet, node).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet, node: Option<NetworkNamespace>) -> Result<Self, TestError> {
        let hubs = Self {
            node,
            base: fleet.control_plane("base")?,
            chart: fleet.control_plane("chart")?,
            fleet,
        };
        for plane in [&hubs.base, &hubs.chart] {
            for namespace in [TENANT, UNMINTABLE_NAMESPACE] {
                plane.create_namespace(namespace).await?;
            }
        }
        for folder in ["base", "tenant"] {
            let folder = shipped("examples/install")
                .join(folder)
                .display()
                .to_string();
            kubectl(&hubs.base, &["apply", "--server-side", "-k", &folder]).await?;
        }
        restricted_namespace(&hubs.chart).await?;
        let values = values("tenants");
        helm(
            &hubs.fleet,
            Some(&hubs.chart),
            &[
                "install",
                "keyferry",
                &chart(),
                "-n",
                NAMESPACE,
                "-f",
                &values,
            ],
        )
        .await?
        .success()?;
        Ok(hubs)
    }

    /// The node of the hub with the base.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn node(&self) -> Result<&NetworkNamespace, TestError> {
        match &self.node {
            Some(node) => Ok(node),
            None => Err(match NetworkNamespace::start(self.fleet.folder()).await {
                Err(error) => error.into(),
                Ok(_) => "there was no network namespace when the suite began".into(),
            }),
        }
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }
}

/// Creates Keyferry's namespace as the base has it, and as docs/guides/hub.md tells users of the
/// chart to create it.
pub(crate) async fn restricted_namespace(plane: &ControlPlane) -> Result<(), TestError> {
    let file = shipped("examples/install/base/namespace.yaml")
        .display()
        .to_string();
    kubectl(plane, &["apply", "--server-side", "-f", &file]).await?;
    Ok(())
}

/// The path of the chart's folder.
pub(crate) fn chart() -> String {
    shipped("examples/helm/keyferry").display().to_string()
}

/// The path of a file of values.
pub(crate) fn values(name: &str) -> String {
    let path: PathBuf = shipped("integration/tests/install/values").join(format!("{name}.yaml"));
    path.display().to_string()
}

/// The output of the real kubectl as the admin. A failure becomes the test's failure, with
/// kubectl's message.
pub(crate) async fn kubectl(plane: &ControlPlane, args: &[&str]) -> Result<String, TestError> {
    let output = plane.kubectl(args).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("kubectl {}: {said}", args.join(" ")).into());
    }
    if said.contains("Warning:") {
        return Err(format!("kubectl {} warned: {said}", args.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
