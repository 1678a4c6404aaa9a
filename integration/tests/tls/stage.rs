//! One hub with Keyferry's manifests, and Secrets with serving certificates.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::{Broker, BrokerSpec, Ground, SHARED_NAMESPACE, shipped};
use serde_json::json;
use tokio::process::Command;

/// A hub, and what is needed to start a Keyferry for it.
pub(super) struct Stage {
    ground: Ground,
    hub: Arc<ControlPlane>,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Stage {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        let hub = ground
            .hub(ControlPlaneSpec::named("hub"))
            .await
            .map_err(NotStarted::failed)?;
        Ok(Self { ground, hub })
    }

    pub(super) fn ground(&self) -> &Ground {
        &self.ground
    }

    pub(super) fn hub(&self) -> &Arc<ControlPlane> {
        &self.hub
    }

    /// A folder for the files of one test.
    pub(super) fn folder(&self, test: &str) -> Result<PathBuf, TestError> {
        let folder = self.ground.folder().join(test);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Creates or replaces a Secret of Keyferry's namespace.
    pub(super) async fn put(
        &self,
        name: &str,
        kind: &str,
        certificate: &str,
        key: &str,
    ) -> Result<(), TestError> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name },
            "type": kind,
            "stringData": { "tls.crt": certificate, "tls.key": key },
        });
        let path = format!("/api/v1/namespaces/{SHARED_NAMESPACE}/secrets/{name}");
        self.hub.admin().apply(&path, &secret).await?;
        Ok(())
    }

    /// Gives Keyferry the shipped right to watch these Secrets.
    pub(super) async fn allow_watching(&self, names: [&str; 2]) -> Result<(), TestError> {
        let shipped = std::fs::read_to_string(shipped("examples/in-cluster/tls-secrets.yaml"))?;
        let [discovery, api] = names;
        let text = shipped
            .replace("keyferry-discovery-tls", discovery)
            .replace("keyferry-api-tls", api)
            .replace("name: keyferry-tls-secrets", &format!("name: {discovery}"));
        assert!(text.contains(&format!("[{discovery}, {api}]")), "{text}");
        let file = self.folder(discovery)?.join("rights.yaml");
        std::fs::write(&file, text)?;
        Ok(apply_manifests(&self.hub, &[&file]).await?)
    }

    /// Puts good Secrets of these names, and starts a Keyferry that reads them.
    pub(super) async fn start_with_secrets(
        &self,
        name: &str,
        secrets: [&str; 2],
    ) -> Result<Broker, TestError> {
        for secret in secrets {
            let certified = self.ground.ca().serving(secret, &[])?;
            self.put(
                secret,
                "kubernetes.io/tls",
                &certified.cert_pem,
                &certified.key_pem,
            )
            .await?;
        }
        let [discovery, api] = secrets;
        let spec = BrokerSpec::of_hub(name, &self.hub).with_args(&[
            "--discovery-tls-secret",
            discovery,
            "--api-tls-secret",
            api,
        ]);
        self.ground.start_broker(&self.hub, spec).await
    }
}

/// How long a changed Secret may take to be used. Without the right to watch it is read every 10 s.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Runs `openssl s_client` against a Keyferry, with these arguments.
pub(super) async fn s_client(url: &str, ca: &Path, args: &[&str]) -> Result<Output, TestError> {
    let address = url.strip_prefix("https://").ok_or("not an https URL")?;
    let ran = Command::new("openssl")
        .args(["s_client", "-connect", address, "-CAfile"])
        .arg(ca)
        .args(["-verify_return_error", "-servername", "localhost"])
        .args(args)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    Ok(tokio::time::timeout(Duration::from_secs(20), ran).await??)
}
