//! A hub with four named targets, two tenants, and a Keyferry with credentials for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use jiff::Timestamp;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_integration::world::on_hub::{RECONCILER, install_for_objects, tenant_with_minter};
use keyferry_integration::world::{
    Broker, BrokerSpec, Ground, SHARED_NAMESPACE, put_secret, shipped,
};
use keyferry_keys::testing::client_certificates::{TestAuthority, TestCertificate};
use reqwest::Client;
use serde_json::{Value, json};

const GROUP: &str = "/apis/keyferry.dev/v1alpha1";
/// The credentials, and the flags that say what each reads.
const CREDENTIALS: [(&str, &[&str], &str); 5] = [
    (
        "prod-a",
        &["--cluster", "prod-a.fleet.test"],
        "scope: Read, cluster: prod-a.fleet.test",
    ),
    (
        "prod-b",
        &["--cluster", "prod-b.fleet.test"],
        "scope: Read, cluster: prod-b.fleet.test",
    ),
    (
        "team-a",
        &["--tenant-namespace", "tenant-a"],
        "scope: Read, namespace: tenant-a",
    ),
    ("platform", &["--admin"], "scope: Admin"),
    (
        "rotating",
        &["--cluster", "prod-b.fleet.test"],
        "scope: Read, cluster: prod-b.fleet.test",
    ),
];

/// The Secrets with the CAs of readers' client certificates; the second one is rotated.
const READERS_CA: &str = "input-readers-ca";
pub(super) const ROTATED_CA: &str = "input-readers-rotated-ca";

/// The credentials with a client certificate, by what each reads, and the Secret of their CA.
const CERTIFIED: [(&str, &str, &str); 5] = [
    (
        "prod-a",
        "scope: Read, cluster: prod-a.fleet.test",
        READERS_CA,
    ),
    (
        "prod-b",
        "scope: Read, cluster: prod-b.fleet.test",
        READERS_CA,
    ),
    ("team-a", "scope: Read, namespace: tenant-a", READERS_CA),
    ("platform", "scope: Admin", READERS_CA),
    (
        "rotating",
        "scope: Read, cluster: prod-b.fleet.test",
        ROTATED_CA,
    ),
];

/// A hub with its Keyferry.
pub(super) struct Stage {
    pub(super) ground: Ground,
    pub(super) hub: Arc<ControlPlane>,
    pub(super) broker: Broker,
    /// Signs the client certificates of readers.
    pub(super) readers: TestAuthority,
    /// Signs that of the credential whose CA is rotated.
    pub(super) rotated: TestAuthority,
    tokens: Vec<(&'static str, String)>,
}

/// An answer, without what differs in every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Stage {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let spec = ControlPlaneSpec {
            controller_manager: true,
            ..ControlPlaneSpec::named("hub")
        };
        let hub = Arc::new(ground.control_plane(spec).await?);
        install_for_objects(&hub).await?;
        for tenant in ["tenant-a", "tenant-b"] {
            tenant_with_minter(&hub, tenant, &[RECONCILER]).await?;
        }
        let mut tokens = Vec::new();
        for (name, flags, _) in CREDENTIALS {
            let [hub_file, child_file] = new_credential(&ground, name, flags).await?;
            apply_manifests(&hub, &[&hub_file]).await?;
            tokens.push((name, token_of(&child_file)?));
        }
        let (readers, rotated) = (authority("readers"), authority("rotated readers"));
        for (secret, authority) in [(READERS_CA, &readers), (ROTATED_CA, &rotated)] {
            put_secret(&hub, secret, &[("ca.crt", authority.pem())]).await?;
            grant_authority(&ground, &hub, secret, SHARED_NAMESPACE).await?;
        }
        let broker = ground
            .start_installed(
                &hub,
                BrokerSpec::of_hub("main", &hub).with_server_lines(&lines()),
            )
            .await?;
        let stage = Self {
            ground,
            hub,
            broker,
            readers,
            rotated,
            tokens,
        };
        for name in ["prod-a", "prod-b", "prod-c", "prod-d"] {
            stage
                .put_target(name, &format!("{name}.fleet.test"))
                .await?;
        }
        for (namespace, name, target) in [
            ("tenant-a", "a", "prod-a"),
            ("tenant-a", "b", "prod-b"),
            ("tenant-b", "a", "prod-a"),
        ] {
            stage.put_access(namespace, name, target).await?;
        }
        for name in ["prod-a", "prod-b", "prod-c"] {
            let data = json!({ "ingress": format!("version: \"4.13.0\"\nof: {name}\n") });
            stage.put_inputs(name, &data).await?;
        }
        // The policy has all objects once the last one is in it.
        stage
            .until_status("prod-c", "platform-components", 200)
            .await?;
        Ok(stage)
    }

    /// Creates or changes a TargetCluster with an identity, which tenant-a may use.
    pub(super) async fn put_target(&self, name: &str, dns: &str) -> Result<(), TestError> {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": name },
            "spec": {
                "address": format!("https://{name}.keyferry.test:6443"),
                "audience": format!("https://{name}.keyferry.test"),
                "probe": "Off",
                "identity": { "clusterName": name, "clusterDNS": dns, "environment": "production" },
                "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": [RECONCILER] }],
            },
        });
        self.hub.admin().apply(&target_path(name), &object).await?;
        Ok(())
    }

    pub(super) async fn put_access(
        &self,
        namespace: &str,
        name: &str,
        target: &str,
    ) -> Result<(), TestError> {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "targetClusterRef": { "name": target }, "serviceAccountName": RECONCILER },
        });
        let path = format!("{GROUP}/namespaces/{namespace}/targetaccesses/{name}");
        self.hub.admin().apply(&path, &object).await?;
        Ok(())
    }

    /// Creates or replaces the ConfigMap of a target's inputs.
    pub(super) async fn put_inputs(&self, target: &str, data: &Value) -> Result<(), TestError> {
        let name = format!("keyferry-inputs-{target}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data,
        });
        self.hub
            .admin()
            .apply(&inputs_path(target), &object)
            .await?;
        Ok(())
    }

    /// The token of a credential, as it was made.
    pub(super) fn token(&self, credential: &str) -> &str {
        let mut tokens = self.tokens.iter();
        tokens
            .find(|(name, _)| *name == credential)
            .map_or("", |(_, token)| token)
    }

    /// A client of Keyferry that presents this certificate.
    pub(super) fn client(&self, certificate: &TestCertificate) -> Result<Client, TestError> {
        client_of(&self.broker, certificate)
    }

    /// Sends a GET with these `Authorization` headers.
    pub(super) async fn get(&self, path: &str, values: &[String]) -> Result<Reply, TestError> {
        self.get_by(self.broker.http(), path, values).await
    }

    /// Sends a GET by this client.
    pub(super) async fn get_by(
        &self,
        client: &Client,
        path: &str,
        values: &[String],
    ) -> Result<Reply, TestError> {
        let mut request = client.get(format!("{}{path}", self.broker.api_url()));
        for value in values {
            request = request.header("authorization", value);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), kept(response.headers()));
        Ok(Reply {
            status,
            body: response.text().await?,
            headers,
        })
    }

    /// Sends a GET with the bearer token of a credential.
    pub(super) async fn read(&self, credential: &str, path: &str) -> Result<Reply, TestError> {
        self.get(path, &[bearer(self.token(credential))]).await
    }

    /// Reads a collection of a cluster as the platform, until it has this status.
    pub(super) async fn until_status(
        &self,
        target: &str,
        view: &str,
        status: u16,
    ) -> Result<Reply, TestError> {
        let path = cluster_path(target, view);
        self.until(&path, &format!("status {status}"), |reply| {
            reply.status == status
        })
        .await
    }

    /// Reads a path as the platform, until the answer satisfies the check.
    pub(super) async fn until(
        &self,
        path: &str,
        wanted: &str,
        is: impl Fn(&Reply) -> bool,
    ) -> Result<Reply, TestError> {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let reply = self.read("platform", path).await?;
            if is(&reply) {
                return Ok(reply);
            }
            if Instant::now() > limit {
                return Err(format!("{path} has not {wanted}: {reply:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The further lines of the server's configuration.
pub(super) fn lines() -> String {
    format!("objects: CustomResources\n{}", inputs_lines())
}

/// The `inputs` of the server's configuration.
pub(super) fn inputs_lines() -> String {
    let entries = CREDENTIALS.map(|(name, _, scope)| {
        format!("    - {{name: {name}, {scope}, secretRef: {{name: keyferry-input-{name}}}}}\n")
    });
    let certified = CERTIFIED.map(|(name, scope, secret)| {
        let uri = reader_uri(name);
        format!(
            "    - {{name: {name}-certificate, {scope}, \
             clientCertificate: {{caSecretRef: {{name: {secret}}}, uriSAN: '{uri}'}}}}\n"
        )
    });
    format!(
        "inputs:\n  enabled: true\n  requestsPerSecond: 0\n  credentials:\n{}{}",
        entries.concat(),
        certified.concat()
    )
}

/// The URI in the client certificate of a reader.
pub(super) fn reader_uri(name: &str) -> String {
    format!("spiffe://fleet.test/reader/{name}")
}

/// A CA that signs client certificates.
pub(super) fn authority(name: &str) -> TestAuthority {
    TestAuthority::new(name, Timestamp::now(), |_| {})
}

/// A client of a Keyferry that presents this certificate.
pub(super) fn client_of(
    broker: &Broker,
    certificate: &TestCertificate,
) -> Result<Client, TestError> {
    let ca = std::fs::read(broker.ca_path())?;
    Ok(Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca)?])
        .identity(reqwest::Identity::from_pem(
            certificate.to_pem().as_bytes(),
        )?)
        .build()?)
}

/// Gives Keyferry the shipped rights for a Secret with a CA.
pub(super) async fn grant_authority(
    ground: &Ground,
    hub: &ControlPlane,
    secret: &str,
    namespace: &str,
) -> Result<(), TestError> {
    let text = std::fs::read_to_string(shipped("examples/in-cluster/caller-certificates.yaml"))?;
    let text = text
        .replace("keyferry-callers-ca", secret)
        .replace("keyferry-hub-client-ca", &format!("{secret}-hub"))
        .replace("keyferry-system", namespace);
    let file = ground.folder().join(format!("{secret}.rights.yaml"));
    std::fs::write(&file, text)?;
    Ok(apply_manifests(hub, &[&file]).await?)
}

/// Makes a credential by the command, and returns the files of its two Secrets.
pub(super) async fn new_credential(
    ground: &Ground,
    name: &str,
    flags: &[&str],
) -> Result<[PathBuf; 2], TestError> {
    let files = ["hub", "child"].map(|kind| ground.folder().join(format!("{name}.{kind}.yaml")));
    let [hub, child] = files.each_ref().map(|file| file.display().to_string());
    let mut args = vec!["inputs", "credential", "new", name];
    args.extend_from_slice(flags);
    args.extend_from_slice(&["--hub-file", &hub, "--child-file", &child]);
    succeeds(ground, &args).await?;
    Ok(files)
}

/// Runs a command that must succeed, and returns what it prints.
pub(super) async fn succeeds(ground: &Ground, args: &[&str]) -> Result<String, TestError> {
    let output = ground.binary().run(args, &[]).await?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("keyferry {}: {said}", args.join(" ")).into())
}

/// The token in the file of a child's Secret.
pub(super) fn token_of(child_file: &Path) -> Result<String, TestError> {
    let text = std::fs::read_to_string(child_file)?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "));
    Ok(line
        .ok_or("the child's Secret has no token")?
        .trim_matches('"')
        .to_owned())
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(super) fn basic(user: &str, token: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{token}")))
}

pub(super) fn cluster_path(target: &str, view: &str) -> String {
    format!("/api/v2/flux/clusters/{target}.fleet.test/{view}")
}

pub(super) fn target_path(name: &str) -> String {
    format!("{GROUP}/targetclusters/{name}")
}

pub(super) fn inputs_path(target: &str) -> String {
    format!("/api/v1/namespaces/keyferry-system/configmaps/keyferry-inputs-{target}")
}

/// The headers but for those that differ in every answer, sorted.
fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut kept: Vec<_> = headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id"))
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();
    kept.sort();
    kept
}
