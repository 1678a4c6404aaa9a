//! A hub, a server of its documents, and a target that trusts it by the shipped
//! AuthenticationConfiguration.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::document_server::DocumentServer;
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::{Ground, TrustingTarget};
use serde_json::{Value, json};

pub(super) const TENANT: &str = "tenant-a";
pub(super) const AUDIENCE: &str = "https://doctor.keyferry.test";

/// A hub, a server of its documents, and a target.
pub(super) struct Federation {
    pub(super) ground: Ground,
    pub(super) hub: Arc<ControlPlane>,
    pub(super) documents: DocumentServer,
    pub(super) target: ControlPlane,
    /// The URL of the hub's discovery document.
    pub(super) discovery_url: String,
    /// The target's sound AuthenticationConfiguration.
    pub(super) configuration: String,
}

impl Fixture for Federation {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Federation {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let hub = ground
            .hub(ControlPlaneSpec {
                audit_log: true,
                ..ControlPlaneSpec::named("hub")
            })
            .await?;
        for account in ["rightless", "developer", "stranger"] {
            hub.create_service_account(TENANT, account).await?;
        }
        let documents = DocumentServer::start(ground.ca()).await?;
        let discovery_url = documents.publish(&hub).await?;
        let subjects = ["reconciler", "rightless", "developer", "goner"]
            .map(|account| format!("{TENANT}:{account}"));
        let trusting = TrustingTarget {
            name: "target",
            minor: Minor::newest(),
            issuer: "https://hub.keyferry.test",
            audience: AUDIENCE,
            discovery_url: &discovery_url,
            subjects: &subjects,
        };
        let target = ground.target(trusting).await?;
        let configuration =
            std::fs::read_to_string(target.folder().join("authentication/config.yaml"))?;
        let reader = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reader" },
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] }],
        });
        target
            .admin()
            .create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &reader)
            .await?;
        target
            .bind_user_to_cluster_role("hub:system:serviceaccount:tenant-a:reconciler", "reader")
            .await?;
        let federation = Self {
            ground,
            hub,
            documents,
            target,
            discovery_url,
            configuration,
        };
        federation.until_initialized().await?;
        Ok(federation)
    }

    /// Waits until the hub serves the collection of a new kind.
    pub(super) async fn until_served(&self, path: &str) -> Result<(), TestError> {
        let limit = Instant::now() + Duration::from_secs(30);
        while self.hub.admin().get(path).await.is_err() {
            if Instant::now() > limit {
                return Err(format!("{path} is not served").into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Mints a token of the hub.
    pub(super) async fn token(
        &self,
        account: &str,
        audiences: &[&str],
    ) -> Result<String, TestError> {
        Ok(self
            .hub
            .token_request(TENANT, account, audiences, 3600)
            .await?
            .token)
    }

    /// Writes a file for one test.
    pub(super) fn file(&self, name: &str, content: &str) -> Result<PathBuf, TestError> {
        let path = self.ground.folder().join(name);
        std::fs::write(&path, content)?;
        Ok(path)
    }

    /// Waits until the target has the discovery document of the issuer that the token names.
    pub(super) async fn until_initialized(&self) -> Result<(), TestError> {
        let token = self
            .token("reconciler", &["https://nobody.keyferry.test"])
            .await?;
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
        let limit = Instant::now() + Duration::from_secs(40);
        loop {
            let answer = self
                .target
                .admin()
                .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
                .await?;
            let said = answer["status"]["error"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if !said.contains("not initialized") {
                return Ok(());
            }
            if Instant::now() > limit {
                return Err(
                    format!("the target has not read the discovery document: {said}").into(),
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Runs doctor, and checks that its output does not contain the token.
    pub(super) async fn doctor(
        &self,
        arguments: &[String],
        token: &str,
    ) -> Result<(Option<i32>, Value), TestError> {
        let mut all = vec!["doctor", "-o", "json"];
        all.extend(arguments.iter().map(String::as_str));
        let Output {
            status,
            stdout,
            stderr,
        } = self.ground.binary().run(&all, &[]).await?;
        let (stdout, stderr) = (String::from_utf8(stdout)?, String::from_utf8(stderr)?);
        for part in token.split('.').filter(|part| part.len() > 8) {
            assert!(
                !stdout.contains(part) && !stderr.contains(part),
                "doctor prints a token"
            );
        }
        let report = serde_json::from_str(&stdout)
            .map_err(|error| format!("{all:?}: {error}: {stdout}{stderr}"))?;
        Ok((status.code(), report))
    }

    /// The flags that describe the target.
    pub(super) fn target_flags(&self, target: &ControlPlane) -> Result<Vec<String>, TestError> {
        let ca = self.file(&format!("{}-ca.crt", target.name()), target.ca_pem())?;
        Ok(vec![
            "--target-address".to_owned(),
            target.url(),
            "--target-certificate-authority".to_owned(),
            ca.display().to_string(),
        ])
    }
}
