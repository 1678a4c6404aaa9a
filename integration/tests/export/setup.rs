//! A hub on which only bound accounts may read the documents, and the command line.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec, Whom};
use keyferry_integration::fleet::{Fleet, FleetSpec};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::pki::TestCa;
use keyferry_integration::rbac::{ServiceAccountKubeconfig, service_account_kubeconfig_at};
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use serde_json::json;

/// The namespace of the accounts that export.
pub(super) const NAMESPACE: &str = "exporting";
/// The two paths that they may get.
const PATHS: [&str; 2] = ["/.well-known/openid-configuration", "/openid/v1/jwks"];
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A hub without anonymous access to its documents, and Keyferry's binary.
pub(super) struct ExportingHub {
    pub(super) hub: Arc<ControlPlane>,
    pub(super) binary: KeyferryBinary,
    pub(super) ca: TestCa,
    pub(super) fleet: Fleet,
}

impl Fixture for ExportingHub {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl ExportingHub {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![ControlPlaneSpec::named("hub")],
        })
        .await?;
        Self::build(fleet).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet) -> Result<Self, TestError> {
        let hub = fleet.control_plane("hub")?;
        // By default every ServiceAccount may read them.
        hub.admin()
            .delete(&format!(
                "{RBAC}/clusterrolebindings/system:service-account-issuer-discovery"
            ))
            .await?;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "two-paths" },
            "rules": [{ "nonResourceURLs": PATHS, "verbs": ["get"] }],
        });
        hub.admin()
            .create(&format!("{RBAC}/clusterroles"), &role)
            .await?;
        let folder = fleet.folder().join("export");
        std::fs::create_dir_all(&folder)?;
        let ca = TestCa::create("static server", &folder)?;
        Ok(Self {
            hub,
            binary: KeyferryBinary::build().await?,
            ca,
            fleet,
        })
    }

    /// A kubeconfig of a new ServiceAccount, which may read the two paths if requested.
    pub(super) async fn account(
        &self,
        name: &str,
        bound: bool,
        hub_url: &str,
    ) -> Result<ServiceAccountKubeconfig, TestError> {
        self.hub
            .create_namespace_with_service_account(NAMESPACE, name)
            .await?;
        if bound {
            self.bind(name).await?;
        }
        Ok(service_account_kubeconfig_at(&self.hub, hub_url, NAMESPACE, name, 3600).await?)
    }

    pub(super) async fn bind(&self, account: &str) -> Result<(), TestError> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": account },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "two-paths" },
            "subjects": [{ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": account }],
        });
        self.hub
            .admin()
            .create(&format!("{RBAC}/clusterrolebindings"), &binding)
            .await?;
        let role = self
            .hub
            .admin()
            .get(&format!("{RBAC}/clusterroles/two-paths"))
            .await?;
        let username = format!("system:serviceaccount:{NAMESPACE}:{account}");
        Ok(self
            .hub
            .until_it_counts(Whom::User(&username), "", &role["rules"][0])
            .await?)
    }

    /// A folder for one test, with a configuration file.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, TestError> {
        let folder = self.fleet.folder().join(name);
        std::fs::create_dir_all(&folder)?;
        let tls = "  tls: { certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key }\n";
        let text = format!(
            "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: https://keyferry.example.com\n\
             discovery:\n  address: 127.0.0.1:1\n{tls}api:\n  address: 127.0.0.1:2\n{tls}health:\n  address: 127.0.0.1:3\n"
        );
        std::fs::write(folder.join("config.yaml"), text)?;
        Ok(folder)
    }

    /// The arguments of an export from `folder/config.yaml` to `folder/out`.
    pub(super) fn arguments(
        &self,
        folder: &Path,
        kubeconfig: &Path,
        further: &[&str],
    ) -> Vec<String> {
        let path = |path: PathBuf| path.display().to_string();
        let mut arguments = vec![
            "export".to_owned(),
            path(folder.join("out")),
            "--without-record".to_owned(),
        ];
        arguments.extend(["--config".to_owned(), path(folder.join("config.yaml"))]);
        arguments.extend(["--kubeconfig".to_owned(), path(kubeconfig.to_owned())]);
        arguments.extend(further.iter().map(|one| (*one).to_owned()));
        arguments
    }

    pub(super) async fn export(
        &self,
        folder: &Path,
        kubeconfig: &Path,
        further: &[&str],
    ) -> Result<Output, TestError> {
        let arguments = self.arguments(folder, kubeconfig, further);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Ok(self.binary.run(&arguments, &[]).await?)
    }
}
