//! A hub and two targets that all sign as kubeadm's clusters do, and a Keyferry that signs for the
//! targets itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::fleet::{Fleet, FleetSpec};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::parts::Minor;
use keyferry_integration::pki::{SigningKeyKind, TestCa};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::rest::RestError;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, BrokerTimes, TENANT, Target, caller_token, make_tenant,
    prepare_hub, shipped,
};
use serde_json::{Value, json};

/// The issuer of every cluster that kubeadm or kind creates.
pub(super) const CLUSTER_DEFAULT: &str = "https://kubernetes.default.svc.cluster.local";
/// The namespace of the ServiceAccounts that make load.
pub(super) const LOAD: &str = "load";
/// How many of these ServiceAccounts exist. A token is signed for each of them alone.
pub(super) const ACCOUNTS: usize = 200;
/// The names of the targets, and of their control planes.
pub(super) const TARGETS: [&str; 2] = ["target-a", "target-b"];
/// Further targets that [`Stage::start_target`] starts. Each has a role `view`.
pub(super) const WITH_ROLE: [(&str, &str); 2] =
    [("role-new", "role-new-view"), ("role-old", "role-old-view")];
/// A further target, whose keys are revoked.
pub(super) const REVOKED: &str = "target-c";

pub(crate) struct Stage {
    pub(super) hub: Arc<ControlPlane>,
    pub(super) targets: [ControlPlane; 2],
    pub(super) revoked: ControlPlane,
    pub(super) broker: Broker,
    pub(super) binary: KeyferryBinary,
    fleet: Fleet,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.fleet.log_tails()
    }
}

impl Stage {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let hub = ControlPlaneSpec {
            issuers: vec![CLUSTER_DEFAULT.to_owned()],
            audit_log: true,
            ..ControlPlaneSpec::named("hub")
        };
        let fleet = Fleet::start(FleetSpec {
            control_planes: vec![hub],
        })
        .await?;
        Self::build(fleet).await.map_err(NotStarted::failed)
    }

    async fn build(fleet: Fleet) -> Result<Self, TestError> {
        let hub = fleet.control_plane("hub")?;
        let folder = fleet.folder().join("keyferry");
        std::fs::create_dir_all(&folder)?;
        let ca = TestCa::create("keyferry", &folder)?;
        let binary = KeyferryBinary::build().await?;
        prepare_hub(&hub).await?;
        allow_key_sets(&hub, fleet.folder()).await?;
        let accounts: Vec<String> = (0..ACCOUNTS).map(account).collect();
        make_tenant(
            &hub,
            LOAD,
            &accounts.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await?;
        let spec = BrokerSpec::of_hub("main", &hub);
        let public_url = spec.own_url()?;
        // A verifier that has just read the keys keeps them for max-age less 30 s: below 60 s there
        // would be nothing to lose. The activation delay of keys is then 120 s.
        let spec = spec
            .with_times(BrokerTimes {
                max_stale: 300,
                max_age: 60,
            })
            .with_server_lines("managedIssuers:\n  enabled: true\n");
        let starting = |name: &str, minor| -> Result<_, TestError> {
            let configuration = authentication_configuration(&public_url, name, ca.cert_pem())?;
            let plane = ControlPlaneSpec {
                minor,
                issuers: vec![CLUSTER_DEFAULT.to_owned()],
                signing_key: SigningKeyKind::EcdsaP256,
                authentication_config: Some(configuration),
                ..ControlPlaneSpec::named(name)
            };
            Ok(fleet.start_control_plane(plane))
        };
        let (a, b) = (
            starting(TARGETS[0], Minor::newest())?,
            starting(TARGETS[1], Minor::V1_33)?,
        );
        let revoked = starting(REVOKED, Minor::newest())?;
        let (broker, a, b, revoked) = tokio::join!(
            Broker::start(&binary, &hub, &folder, &ca, spec),
            a,
            b,
            revoked
        );
        let (broker, a, b, revoked) = (broker?, a?, b?, revoked?);
        let stage = Self {
            hub,
            targets: [a, b],
            revoked,
            broker,
            binary,
            fleet,
        };
        stage.configure().await?;
        stage.until_active().await?;
        Ok(stage)
    }

    async fn configure(&self) -> Result<(), TestError> {
        let accounts: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let accounts: Vec<&str> = accounts.iter().map(String::as_str).collect();
        let reconfigured = self.broker.reconfigure(|targets, accesses| {
            let own = |target: Target| Target {
                further: "  issuer: Keyferry\n".to_owned(),
                ..target
            };
            targets.push(own(
                Target::of(&self.revoked, &audience(REVOKED)).allowing(TENANT, &[ACCOUNT])
            ));
            accesses.push(Access::of(TENANT, REVOKED, REVOKED, ACCOUNT));
            for plane in &self.targets {
                let target = Target::of(plane, &audience(plane.name()))
                    .allowing(TENANT, &[ACCOUNT])
                    .allowing(LOAD, &accounts);
                let hubs = Target::of(plane, &format!("{}/hub", audience(plane.name())))
                    .named(&format!("{}-by-hub", plane.name()));
                targets.push(own(target));
                targets.push(hubs.allowing(TENANT, &[ACCOUNT]));
                for target in [plane.name().to_owned(), format!("{}-by-hub", plane.name())] {
                    accesses.push(Access::of(TENANT, &target, &target, ACCOUNT));
                }
                accesses.extend(accounts.iter().map(|account| {
                    Access::of(
                        LOAD,
                        &format!("{}-{account}", plane.name()),
                        plane.name(),
                        account,
                    )
                }));
            }
        });
        reconfigured.await
    }

    /// Waits until the first keys may sign. Until then it accepts no other refusal than that
    /// reason.
    async fn until_active(&self) -> Result<(), TestError> {
        let caller = caller_token(&self.hub, TENANT, ACCOUNT).await?;
        for target in TARGETS.into_iter().chain([REVOKED]) {
            self.until_granted(&caller, &format!("{TENANT}/{target}"))
                .await?;
        }
        Ok(())
    }

    /// Exchanges until the keys of the target may sign, and returns the token. Until then it
    /// accepts no other refusal than that reason.
    pub(super) async fn until_granted(
        &self,
        caller: &str,
        access: &str,
    ) -> Result<String, TestError> {
        let limit = Instant::now() + Duration::from_secs(160);
        loop {
            let answer = self.broker.exchange(caller, access).await?;
            match answer.status {
                200 => return answer.token(),
                503 if answer.body.contains("IssuerKeysSettling") && Instant::now() < limit => {}
                _ => {
                    return Err(format!(
                        "{access} before its keys are active: {} {}",
                        answer.status, answer.body
                    )
                    .into());
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Starts a further target, which trusts no issuer yet.
    pub(super) async fn start_target(
        &self,
        name: &str,
        minor: Minor,
    ) -> Result<ControlPlane, TestError> {
        let trusts_nobody = "apiVersion: apiserver.config.k8s.io/v1beta1\n\
                      kind: AuthenticationConfiguration\njwt: []\n";
        let plane = ControlPlaneSpec {
            minor,
            issuers: vec![CLUSTER_DEFAULT.to_owned()],
            authentication_config: Some(trusts_nobody.to_owned()),
            ..ControlPlaneSpec::named(name)
        };
        Ok(self.fleet.start_control_plane(plane).await?)
    }

    /// The folder of all files.
    pub(super) fn folder(&self) -> &std::path::Path {
        self.fleet.folder()
    }

    /// The stored key set of a target, as the admin reads it.
    pub(super) async fn stored(&self, target: &str) -> Result<Value, TestError> {
        use base64::Engine;
        let secret = self.hub.admin().get(&secret_path(target)).await?;
        let document = secret["data"]["keys.json"]
            .as_str()
            .ok_or("the Secret holds no keys.json")?;
        Ok(serde_json::from_slice(
            &base64::engine::general_purpose::STANDARD.decode(document)?,
        )?)
    }

    /// `iss` of a target's tokens.
    pub(super) fn issuer(&self, target: &str) -> String {
        format!("{}/issuers/{target}", self.broker.discovery_url())
    }
}

pub(super) fn account(index: usize) -> String {
    format!("account-{index}")
}

pub(super) fn audience(target: &str) -> String {
    format!("https://{target}.keyferry.test")
}

/// The API path of a target's key set on the hub.
pub(super) fn secret_path(target: &str) -> String {
    format!("/api/v1/namespaces/keyferry-system/secrets/keyferry-issuer-{target}")
}

/// The user that the target sees for a token.
pub(super) async fn whoami(plane: &ControlPlane, token: &str) -> Result<Value, RestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let client =
        keyferry_integration::rest::RestClient::with_bearer(&plane.url(), plane.ca_pem(), token)?;
    Ok(client
        .create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .await?["status"]["userInfo"]
        .take())
}

/// Grants the shipped right to store key sets, for these targets.
async fn allow_key_sets(hub: &ControlPlane, folder: &std::path::Path) -> Result<(), TestError> {
    let text = std::fs::read_to_string(shipped("examples/in-cluster/managed-issuers.yaml"))?;
    let names: Vec<String> = TARGETS
        .into_iter()
        .chain([REVOKED])
        .chain(WITH_ROLE.into_iter().flat_map(|(base, role)| [base, role]))
        .map(|target| format!("keyferry-issuer-{target}"))
        .collect();
    let file = folder.join("managed-issuers.yaml");
    std::fs::write(
        &file,
        replaced(&text, "keyferry-issuer-prod", &names.join(", "))?,
    )?;
    apply_manifests(hub, &[&file]).await?;
    Ok(())
}

/// The shipped AuthenticationConfiguration, for this target and every ServiceAccount that makes
/// load.
fn authentication_configuration(
    public_url: &str,
    target: &str,
    ca_pem: &str,
) -> Result<String, TestError> {
    let text = std::fs::read_to_string(shipped("auth-configs/managed-issuer.yaml"))?;
    let (before, rest) = text
        .split_once("        -----BEGIN CERTIFICATE-----")
        .ok_or("the file holds no certificate")?;
    let (_, after) = rest
        .split_once("-----END CERTIFICATE-----\n")
        .ok_or("the file holds no certificate")?;
    let indented: String = ca_pem
        .lines()
        .map(|line| format!("        {line}\n"))
        .collect();
    let text = replaced(
        &format!("{before}{indented}{after}"),
        "https://keyferry.example.com/issuers/prod",
        &format!("{public_url}/issuers/{target}"),
    )?;
    let text = replaced(&text, "https://prod.example.com", &audience(target))?;
    let one = "'system:serviceaccount:tenant-a:reconciler'";
    let load: String = (0..ACCOUNTS)
        .map(|index| format!(", 'system:serviceaccount:{LOAD}:{}'", account(index)))
        .collect();
    replaced(&text, one, &format!("{one}{load}"))
}

fn replaced(text: &str, needle: &str, by: &str) -> Result<String, TestError> {
    if text.contains(needle) {
        Ok(text.replace(needle, by))
    } else {
        Err(format!("the shipped file does not hold {needle}").into())
    }
}
