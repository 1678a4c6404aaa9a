//! The whole setup: a hub, two targets that trust it through Keyferry, and Keyferry itself.
//! Keyferry runs as its own ServiceAccount with exactly the rights that its manifests grant.

mod broker;
mod caller;
mod configuration;
mod ground;
pub mod on_hub;
mod tenant;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, ControlPlaneSpec};
use crate::fleet::{Fleet, FleetSpec};
use crate::keyferry_process::KeyferryBinary;
use crate::parts::Minor;
use crate::pki::{SigningKeyKind, TestCa};
use crate::rbac::apply_manifests;
use crate::runner::{Fixture, NotStarted, TestError};

pub use broker::{Broker, BrokerSpec, BrokerTimes, SHARED_NAMESPACE};
pub use caller::{Answer, caller_token, claims, exchange_at, exchange_form};
pub use configuration::{Access, Target};
pub use ground::{Ground, TrustingTarget};
pub use tenant::{Subject, let_mint, make_tenant, take_back, token_requests};

/// The tenant that most tests use, created by `examples/in-cluster/tenant-a.yaml`.
pub const TENANT: &str = "tenant-a";
/// The ServiceAccount of [`TENANT`].
pub const ACCOUNT: &str = "reconciler";
/// The audience of the first target. It accepts the hub's tokens only with this audience.
pub const AUDIENCE_A: &str = "https://target-a.keyferry.test";
/// The audience of the second target.
pub const AUDIENCE_B: &str = "https://target-b.keyferry.test";
/// The audience of caller tokens.
pub const CALLER_AUDIENCE: &str = "keyferry.dev";

/// Two hubs, two targets and one Keyferry between the first hub and the targets.
pub struct World {
    fleet: Fleet,
    hub: Arc<ControlPlane>,
    old_hub: Arc<ControlPlane>,
    target_a: ControlPlane,
    target_b: ControlPlane,
    ca: TestCa,
    binary: KeyferryBinary,
    broker: Broker,
}

impl Fixture for World {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl World {
    /// Starts two hubs (the newest minor and 1.33), Keyferry for the first, and two targets (the
    /// same) that trust the first hub's issuer through Keyferry and differ only in their audience.
    ///
    /// # Errors
    /// [`NotStarted`]: a real part is missing, or something failed.
    pub async fn start() -> Result<Self, NotStarted> {
        let hub = ControlPlaneSpec {
            controller_manager: true,
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        };
        let old_hub = ControlPlaneSpec {
            minor: Minor::V1_33,
            signing_key: SigningKeyKind::EcdsaP256,
            ..ControlPlaneSpec::named("old-hub")
        };
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![hub, old_hub],
        })
        .await?;
        Self::build(fleet).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet) -> Result<Self, TestError> {
        let (hub, old_hub) = (fleet.control_plane("hub")?, fleet.control_plane("old-hub")?);
        let folder = fleet.folder().join("keyferry");
        std::fs::create_dir_all(&folder)?;
        let ca = TestCa::create("keyferry", &folder)?;
        let binary = KeyferryBinary::build().await?;
        prepare_hub(&hub).await?;
        prepare_hub(&old_hub).await?;
        // Start Keyferry first: a target that cannot read the discovery document retries only after
        // ten seconds.
        let spec = BrokerSpec::of_hub("main", &hub);
        let discovery = spec.discovery_url()?;
        let broker = Broker::start(&binary, &hub, &folder, &ca, spec).await?;
        let target_a = fleet.start_control_plane(target(
            "target-a",
            Minor::newest(),
            AUDIENCE_A,
            &discovery,
            &ca,
        )?);
        let target_b = fleet.start_control_plane(target(
            "target-b",
            Minor::V1_33,
            AUDIENCE_B,
            &discovery,
            &ca,
        )?);
        let (target_a, target_b) = tokio::try_join!(target_a, target_b)?;
        // A Secret like those of other tools: a client certificate and its key beside the CA.
        let client = target_a.ca().client("cluster-admin", "system:masters")?;
        put_secret(
            &hub,
            "target-a-ca",
            &[
                ("ca.crt", target_a.ca_pem()),
                ("tls.crt", &client.cert_pem),
                ("tls.key", &client.key_pem),
            ],
        )
        .await?;
        put_secret(&old_hub, "target-a-ca", &[("ca.crt", target_a.ca_pem())]).await?;
        broker
            .reconfigure(|targets, accesses| {
                let by_secret = Some("target-a-ca".to_owned());
                targets.push(Target {
                    ca_secret: by_secret,
                    ..Target::of(&target_a, AUDIENCE_A).allowing(TENANT, &[ACCOUNT])
                });
                targets.push(Target::of(&target_b, AUDIENCE_B).allowing(TENANT, &["other"]));
                accesses.push(Access::of(TENANT, "a", "target-a", ACCOUNT));
                accesses.push(Access::of(TENANT, "b", "target-b", ACCOUNT));
            })
            .await?;
        until_trusted(&hub, &target_a).await?;
        until_trusted(&hub, &target_b).await?;
        Ok(Self {
            fleet,
            hub,
            old_hub,
            target_a,
            target_b,
            ca,
            binary,
            broker,
        })
    }

    /// The hub (the newest minor).
    pub fn hub(&self) -> &Arc<ControlPlane> {
        &self.hub
    }

    /// Another hub (1.33), which does not check the UID of a TokenRequest.
    pub fn old_hub(&self) -> &Arc<ControlPlane> {
        &self.old_hub
    }

    /// The target (the newest minor) that `tenant-a/reconciler` may use through the access `tenant-a/a`.
    pub fn target_a(&self) -> &ControlPlane {
        &self.target_a
    }

    /// The target (1.33) that `tenant-a/reconciler` may not use; `tenant-a/b` asks for it.
    pub fn target_b(&self) -> &ControlPlane {
        &self.target_b
    }

    /// The Keyferry that all tests share.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The built binary.
    pub fn binary(&self) -> &KeyferryBinary {
        &self.binary
    }

    /// The CA of every Keyferry's serving certificate.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// The fleet that runs the control planes.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Starts a Keyferry for one test, beside the shared one.
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

    /// Runs a Keyferry that is expected to refuse to start, and returns its output.
    ///
    /// # Errors
    /// It was still running after a minute.
    pub async fn refused_start(
        &self,
        hub: &Arc<ControlPlane>,
        spec: BrokerSpec,
    ) -> Result<Output, TestError> {
        let folder = self
            .fleet
            .folder()
            .join(format!("keyferry-{}", spec.name()));
        std::fs::create_dir_all(&folder)?;
        Broker::refused_start(&self.binary, hub, &folder, &self.ca, spec).await
    }
}

/// Waits until a target has read the discovery document. From then on it judges the hub's tokens;
/// before, it reports that it cannot.
///
/// # Errors
/// The target has not read it within two minutes.
pub async fn until_trusted(hub: &ControlPlane, target: &ControlPlane) -> Result<(), TestError> {
    let token = hub
        .token_request(TENANT, ACCOUNT, &["https://nobody.keyferry.test"], 600)
        .await?
        .token;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let limit = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = target
            .admin()
            .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
            .await?;
        let cause = answer["status"]["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if cause.contains("expected audience") {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(
                format!("{} does not judge the hub's tokens: {cause}", target.name()).into(),
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Applies what a platform admin applies on a hub: Keyferry's manifests and a tenant.
///
/// # Errors
/// Any error from kubectl.
pub async fn prepare_hub(hub: &ControlPlane) -> Result<(), TestError> {
    let manifests = ["namespace.yaml", "rbac.yaml", "tenant-a.yaml"]
        .map(|name| shipped("examples/in-cluster").join(name));
    let manifests: Vec<&Path> = manifests.iter().map(PathBuf::as_path).collect();
    apply_manifests(hub, &manifests).await?;
    Ok(())
}

/// Installs the shipped manifests again, in another namespace. Does nothing for
/// [`SHARED_NAMESPACE`], where they already are.
///
/// # Errors
/// Any error from kubectl.
pub async fn install(hub: &ControlPlane, namespace: &str, folder: &Path) -> Result<(), TestError> {
    if namespace == SHARED_NAMESPACE {
        return Ok(());
    }
    // The ClusterRole too: the hub may have that of the installation with objects, which has more
    // rights.
    let own = |text: &str| text.replace("name: keyferry\n", &format!("name: {namespace}\n"));
    let role = "kind: ClusterRole\nmetadata:\n  name: keyferry\n";
    let binding = "kind: ClusterRoleBinding\nmetadata:\n  name: keyferry\n";
    let role_ref = "  kind: ClusterRole\n  name: keyferry\n";
    let renamed = own(binding);
    let mut text = String::new();
    for manifest in ["namespace.yaml", "rbac.yaml"] {
        let shipped = std::fs::read_to_string(shipped("examples/in-cluster").join(manifest))?;
        text.push_str(
            &shipped
                .replace(role, &own(role))
                .replace(binding, &renamed)
                .replace(role_ref, &own(role_ref))
                .replace(SHARED_NAMESPACE, namespace),
        );
        text.push_str("---\n");
    }
    if !text.contains(&renamed) {
        return Err("examples/in-cluster/rbac.yaml holds no ClusterRoleBinding keyferry".into());
    }
    let file = folder.join("installation.yaml");
    std::fs::write(&file, text)?;
    Ok(apply_manifests(hub, &[&file]).await?)
}

/// The path of a file or folder of the repository.
pub fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The shipped AuthenticationConfiguration, with this machine's addresses instead of the examples'.
///
/// # Errors
/// The file is missing, or it does not contain the text to replace.
pub fn authentication_configuration(
    audience: &str,
    discovery_url: &str,
    ca_pem: &str,
) -> Result<String, TestError> {
    let text = std::fs::read_to_string(shipped("auth-configs/hub.yaml"))?;
    let (before, rest) = text
        .split_once("        -----BEGIN CERTIFICATE-----")
        .ok_or("auth-configs/hub.yaml holds no certificate")?;
    let (_, after) = rest
        .split_once("-----END CERTIFICATE-----\n")
        .ok_or("auth-configs/hub.yaml holds no certificate")?;
    let indented: String = ca_pem
        .lines()
        .map(|line| format!("        {line}\n"))
        .collect();
    let text = format!("{before}{indented}{after}");
    for needle in [
        "https://keyferry.example.com/.well-known/openid-configuration",
        "https://prod.example.com",
    ] {
        if !text.contains(needle) {
            return Err(format!("auth-configs/hub.yaml does not hold {needle}").into());
        }
    }
    Ok(text
        .replace(
            "https://keyferry.example.com/.well-known/openid-configuration",
            discovery_url,
        )
        .replace("https://prod.example.com", audience))
}

fn target(
    name: &str,
    minor: Minor,
    audience: &str,
    discovery_url: &str,
    ca: &TestCa,
) -> Result<ControlPlaneSpec, TestError> {
    let configuration = authentication_configuration(audience, discovery_url, ca.cert_pem())?;
    Ok(ControlPlaneSpec {
        minor,
        signing_key: SigningKeyKind::EcdsaP256,
        authentication_config: Some(configuration),
        audit_log: true,
        ..ControlPlaneSpec::named(name)
    })
}

/// Puts a Secret into Keyferry's namespace.
///
/// # Errors
/// Any error from the hub.
pub async fn put_secret(
    hub: &ControlPlane,
    name: &str,
    data: &[(&str, &str)],
) -> Result<(), TestError> {
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text))))
        .collect();
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
    hub.admin()
        .apply(
            &format!("/api/v1/namespaces/keyferry-system/secrets/{name}"),
            &secret,
        )
        .await?;
    Ok(())
}
