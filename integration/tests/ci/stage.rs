//! A hub, a target and a Keyferry with external issuers of several shapes.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use keyferry_integration::ci_issuer::{CiAlgorithm, CiIssuer};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::parts::Minor;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::on_hub::{install_for_objects, tenant_with_minter};
use keyferry_integration::world::{
    Access, Answer, Broker, BrokerSpec, Ground, Target, TrustingTarget, until_trusted,
};
use serde_json::json;

use super::foreign_cluster::ForeignCluster;
use super::shapes::{Shape, Shapes};

/// The audience of the jobs' tokens.
pub(crate) const AUDIENCE: &str = "https://keyferry-api.keyferry.test";
const TARGET_AUDIENCE: &str = "https://target.keyferry.test";
const ISSUER: &str = "https://hub.keyferry.test";
/// The settings of the token API, at an origin of its own. All clients of a test share one address.
const API_LINES: &str = "limits: {connectionsPerAddress: 0, newCallersPerAddress: 0, \
    newCallersPerNamespace: 0}\n  publicURL: https://keyferry-api.keyferry.test";
/// The audience of a relying party that is not a cluster.
pub(crate) const VAULT: &str = "https://vault.keyferry.test";
pub(crate) const GROUP: &str = "/apis/keyferry.dev/v1alpha1";

pub(crate) struct Stage {
    pub(crate) ground: Ground,
    pub(crate) hub: Arc<ControlPlane>,
    pub(crate) target: ControlPlane,
    /// The server of the first three shapes.
    pub(crate) issuer: Arc<CiIssuer>,
    pub(crate) broker: Broker,
    /// The cluster whose ServiceAccounts are callers: the oldest minor beside objects in a file,
    /// and the newest beside objects on the hub.
    pub(crate) foreign: ForeignCluster,
    shapes: Shapes,
    /// Whether TargetClusters and TargetAccesses are objects on the hub.
    pub(crate) objects: bool,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Stage {
    pub(crate) async fn by_file() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground, false).await.map_err(NotStarted::failed)
    }

    pub(crate) async fn on_hub() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground, true).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground, objects: bool) -> Result<Self, TestError> {
        Self::build_with(ground, objects, "").await
    }

    /// As the others, with another entry of `externalIssuers`.
    pub(crate) async fn build_with(
        ground: Ground,
        objects: bool,
        entry: &str,
    ) -> Result<Self, TestError> {
        let issuer = Arc::new(CiIssuer::start(ground.ca(), CiAlgorithm::Es256).await?);
        let spec = ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        };
        let hub = if objects {
            let hub = Arc::new(ground.control_plane(spec).await?);
            install_for_objects(&hub).await?;
            tenant_with_minter(&hub, "tenant-a", &["reconciler", "notifier"]).await?;
            hub
        } else {
            let hub = ground.hub(spec).await?;
            hub.create_service_account("tenant-a", "notifier").await?;
            hub
        };
        let account = "/api/v1/namespaces/tenant-a/serviceaccounts/reconciler";
        let account = hub.admin().get(account).await?;
        let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        let shapes = Shapes::start(&ground, &issuer, uid).await?;
        let minor = match objects {
            true => Minor::newest(),
            false => Minor::V1_33,
        };
        let foreign = ForeignCluster::start(&ground, &issuer, minor).await?;
        let lines = shapes.lines() + &foreign.entry(ground.ca().cert_pem()) + entry;
        let spec = BrokerSpec::of_hub("main", &hub)
            .with_server_lines(&lines)
            .with_limits(["limits: {connectionsPerAddress: 0}", API_LINES]);
        let discovery_url = spec.discovery_url()?;
        let broker = if objects {
            let spec = spec.with_server_lines("objects: CustomResources\n");
            ground.start_installed(&hub, spec).await?
        } else {
            ground.start_broker(&hub, spec).await?
        };
        let subjects = ["tenant-a:reconciler".to_owned()];
        let target = ground
            .target(TrustingTarget {
                name: "target",
                minor: Minor::newest(),
                issuer: ISSUER,
                audience: TARGET_AUDIENCE,
                discovery_url: &discovery_url,
                subjects: &subjects,
            })
            .await?;
        until_trusted(&hub, &target).await?;
        let stage = Self {
            ground,
            hub,
            target,
            issuer,
            broker,
            foreign,
            shapes,
            objects,
        };
        if objects {
            stage.put_objects().await?;
        } else {
            stage.write_objects().await?;
        }
        Ok(stage)
    }

    async fn write_objects(&self) -> TestResult {
        let target = Target::of(&self.target, TARGET_AUDIENCE)
            .allowing("tenant-a", &["reconciler", "notifier"]);
        self.broker
            .reconfigure(|targets, accesses| {
                targets.push(target);
                targets.push(Target::audience("vault", VAULT));
                let prod = Access::of("tenant-a", "prod", "target", "reconciler");
                accesses.push(prod.for_callers(&["notifier"]));
                accesses.push(Access::of("tenant-a", "own", "target", "notifier"));
                accesses.push(Access::of("tenant-a", "vault", "vault", "reconciler"));
            })
            .await
    }

    async fn put_objects(&self) -> TestResult {
        let target = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "target" },
            "spec": {
                "address": self.target.url(), "caBundle": self.target.ca_pem(),
                "audience": TARGET_AUDIENCE,
                "allow": [{
                    "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler", "notifier"],
                }],
            },
        });
        let admin = self.hub.admin();
        admin
            .apply(&format!("{GROUP}/targetclusters/target"), &target)
            .await?;
        let vault = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": "vault" },
            "spec": {
                "kind": "Audience", "audience": VAULT,
                "allow": [{
                    "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"],
                    "deliveries": ["HTTP"],
                }],
            },
        });
        admin
            .apply(&format!("{GROUP}/targetclusters/vault"), &vault)
            .await?;
        for (name, target, account, callers) in [
            ("prod", "target", "reconciler", json!(["notifier"])),
            ("own", "target", "notifier", json!([])),
            ("vault", "vault", "reconciler", json!([])),
        ] {
            let access = json!({
                "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
                "metadata": { "name": name, "namespace": "tenant-a" },
                "spec": {
                    "targetClusterRef": { "name": target }, "serviceAccountName": account,
                    "callers": callers,
                },
            });
            let path = format!("{GROUP}/namespaces/tenant-a/targetaccesses/{name}");
            admin.apply(&path, &access).await?;
        }
        Ok(())
    }

    /// All shapes, with claims that are valid now.
    pub(crate) fn all_shapes(&self) -> Result<Vec<Shape>, TestError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(self.shapes.at(now))
    }

    /// GitHub's ref, GitHub's environment and GitLab's branch, with claims that are valid now.
    pub(crate) fn shapes(&self) -> Result<[Shape; 3], TestError> {
        let mut all = self.all_shapes()?;
        all.truncate(3);
        all.try_into().map_err(|_| "there are three shapes".into())
    }

    /// The `externalIssuers` of the configuration.
    pub(crate) fn lines(&self) -> String {
        self.shapes.lines()
    }

    /// Asks for a token with the caller's token as `client_assertion` (RFC 7523).
    pub(crate) async fn assert_identity(
        &self,
        token: &str,
        access: &str,
    ) -> Result<Answer, TestError> {
        let form = [
            ("grant_type", "client_credentials".to_owned()),
            (
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer".to_owned(),
            ),
            ("client_assertion", token.to_owned()),
            ("audience", access.to_owned()),
        ];
        self.broker.post_form(&form).await
    }

    /// The token of a job of a shape, with a `jti` of its own.
    pub(crate) fn job(&self, shape: &Shape, id: &str) -> Result<String, TestError> {
        let mut claims = shape.claims.clone();
        claims["jti"] = json!(id);
        shape.issuer.token(&claims)
    }
}
