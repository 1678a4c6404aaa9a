//! Pod certificates (KEP-4317) as client certificates of callers: a node requests one for its Pod,
//! a signer with the right to sign issues it, and the Pod presents it to Keyferry.
//!
//! The hub authorises and restricts nodes as a cluster does. There is no kubelet: the test sends the
//! request that a kubelet sends, with the node's own client certificate, and keeps the key. The suite
//! `node` has a kubelet that mounts the files. No test shows that it renews them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, Ground, TENANT, Target, put_secret, shipped,
};
use keyferry_keys::testing::client_certificates::valid;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::{Value, json};

use super::signer::{SIGNER, Signer, request_path, requests, uri};

const CA_SECRET: &str = "keyferry-callers-ca";
/// How long the apiserver's admission may take to see an object that was just created.
const SOON: Duration = Duration::from_secs(30);

/// A hub with two nodes, a Pod on the first one, and a signer's account.
pub(crate) struct Stage {
    ground: Ground,
    hub: Arc<ControlPlane>,
    signer: Signer,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.ground.log_tails()
    }
}

impl Stage {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let ground = Ground::start().await?;
        Self::build(ground).await.map_err(NotStarted::failed)
    }

    async fn build(ground: Ground) -> Result<Self, TestError> {
        let spec = ControlPlaneSpec {
            // Added to RBAC, which every control plane of the tests has.
            extra_args: vec![
                "--authorization-mode=Node".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
            ],
            ..ControlPlaneSpec::named("hub")
        };
        let hub = ground.hub(spec).await?;
        let admin = hub.admin();
        for node in ["node-1", "node-2"] {
            let object =
                json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } });
            admin.create("/api/v1/nodes", &object).await?;
        }
        let volume = json!({
            "name": "identity",
            "projected": { "sources": [{ "podCertificate": {
                "signerName": SIGNER, "keyType": "ECDSAP256",
                "credentialBundlePath": "bundle.pem",
            } }] },
        });
        let container = json!({
            "name": "main", "image": "example.test/none",
            "volumeMounts": [{ "name": "identity", "mountPath": "/identity" }],
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "caller" },
            "spec": {
                "serviceAccountName": ACCOUNT, "nodeName": "node-1",
                "automountServiceAccountToken": false,
                "containers": [container], "volumes": [volume],
            },
        });
        admin
            .create("/api/v1/namespaces/tenant-a/pods", &pod)
            .await?;
        let signer = Signer::install(&hub).await?;
        Ok(Self {
            ground,
            hub,
            signer,
        })
    }

    fn node(&self, name: &str) -> Result<RestClient, TestError> {
        let pair = self
            .hub
            .ca()
            .client(&format!("system:node:{name}"), "system:nodes")?;
        Ok(RestClient::with_certificate(
            &self.hub.url(),
            self.hub.ca_pem(),
            &pair,
        )?)
    }

    async fn uid(&self, path: &str) -> Result<Value, TestError> {
        Ok(self.hub.admin().get(path).await?["metadata"]["uid"].clone())
    }

    /// The request that a kubelet sends for the Pod. Its CSR has only the key.
    async fn request(
        &self,
        name: &str,
        key: &KeyPair,
        node: &str,
        life: u32,
    ) -> Result<Value, TestError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let stub = params.serialize_request(key)?;
        let account = format!("/api/v1/namespaces/{TENANT}/serviceaccounts/{ACCOUNT}");
        Ok(json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
            "metadata": { "name": name },
            "spec": {
                "signerName": SIGNER, "maxExpirationSeconds": life,
                "podName": "caller",
                "podUID": self.uid("/api/v1/namespaces/tenant-a/pods/caller").await?,
                "serviceAccountName": ACCOUNT,
                "serviceAccountUID": self.uid(&account).await?,
                "nodeName": node,
                "nodeUID": self.uid(&format!("/api/v1/nodes/{node}")).await?,
                "stubPKCS10Request": STANDARD.encode(stub.der()),
            },
        }))
    }

    /// Requests a certificate as the node of the Pod, and has it signed with these changes.
    async fn certificate(
        &self,
        name: &str,
        life: u32,
        change: impl Fn(&mut CertificateParams),
    ) -> Result<(KeyPair, Value), TestError> {
        let (key, node) = (KeyPair::generate()?, self.node("node-1")?);
        let request = self.request(name, &key, "node-1", life).await?;
        let limit = Instant::now() + SOON;
        while let Err(error) = node.create(&requests(TENANT), &request).await {
            if Instant::now() > limit {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.signer.sign(TENANT, name, change).await?;
        // As a kubelet reads it.
        Ok((key, node.get(&request_path(TENANT, name)).await?))
    }
}

/// The Pod's request to Keyferry, with the chain from the hub and its own key.
async fn exchange(
    broker: &Broker,
    key: &KeyPair,
    request: &Value,
) -> Result<(u16, String), TestError> {
    let chain = request["status"]["certificateChain"]
        .as_str()
        .ok_or("no certificate")?;
    let ca = std::fs::read(broker.ca_path())?;
    let pem = format!("{chain}{}", key.serialize_pem());
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca)?])
        .identity(reqwest::Identity::from_pem(pem.as_bytes())?)
        .build()?;
    let answer = client
        .post(format!("{}/v1/token", broker.api_url()))
        .header("content-type", "application/x-www-form-urlencoded")
        .body("grant_type=client_credentials&audience=tenant-a%2Fvault")
        .send()
        .await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

pub(crate) async fn a_pod_certificate_is_a_caller(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.hub;
    put_secret(hub, CA_SECRET, &[("ca.crt", stage.signer.authority_pem())]).await?;
    let rights = shipped("examples/in-cluster/caller-certificates.yaml");
    apply_manifests(hub, &[&rights]).await?;
    let account = format!("/api/v1/namespaces/{TENANT}/serviceaccounts/{ACCOUNT}");
    let uid = stage.uid(&account).await?;
    let rule = format!(
        "  clientCertificates:\n    - caSecretRef: {{ name: {CA_SECRET} }}\n      uriSAN: {}\n      \
         serviceAccount: {{ namespace: {TENANT}, name: {ACCOUNT}, uid: {} }}\n",
        uri(TENANT, ACCOUNT),
        uid.as_str().ok_or("no UID")?
    );
    let spec = BrokerSpec::of_hub("pods", hub)
        .with_api_lines(&rule)
        .with_target(Target::audience("vault", "https://vault.keyferry.test"))
        .with_access(Access::of(TENANT, "vault", "vault", ACCOUNT));
    let broker = stage.ground.start_broker(hub, spec).await?;

    // Only the node of the Pod may request for it, and only a signer may sign.
    let key = KeyPair::generate()?;
    let foreign = stage.request("foreign", &key, "node-1", 3600).await?;
    let refused = stage
        .node("node-2")?
        .create(&requests(TENANT), &foreign)
        .await;
    assert_eq!(refused.err().and_then(|error| error.status()), Some(403));

    let (key, good) = stage.certificate("good", 3600, |_| {}).await?;
    let (status, body) = exchange(&broker, &key, &good).await?;
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body)?;
    let token = answer["access_token"].as_str().ok_or("no token")?;
    let claims = keyferry_integration::world::claims(token)?;
    assert_eq!(
        claims["sub"],
        format!("system:serviceaccount:{TENANT}:{ACCOUNT}")
    );
    let record = broker.audit()?.last().cloned().ok_or("no record")?;
    assert_eq!(record["callerCertificate"]["uri"], uri(TENANT, ACCOUNT));

    let (stranger, name) = (stage.signer.account("stranger").await?, "unsigned");
    let request = stage
        .request(name, &KeyPair::generate()?, "node-1", 3600)
        .await?;
    stage
        .node("node-1")?
        .create(&requests(TENANT), &request)
        .await?;
    let forged = stranger
        .patch(
            &format!("{}/status", request_path(TENANT, name)),
            &stage.signer.signed(TENANT, name, |_| {}).await?,
        )
        .await;
    assert!(forged.is_err(), "an account without the right to sign");

    // Certificates that the hub issues and Keyferry does not accept.
    let now = Timestamp::now();
    let two_days = |params: &mut CertificateParams| valid(params, now, -60, 2 * 86_400);
    let without_uri = |params: &mut CertificateParams| params.subject_alt_names.clear();
    for (name, fault, (key, request)) in [
        (
            "long",
            "TooLong",
            stage.certificate("long", 3 * 86_400, two_days).await?,
        ),
        (
            "nameless",
            "NoUri",
            stage.certificate("nameless", 3600, without_uri).await?,
        ),
    ] {
        let (status, body) = exchange(&broker, &key, &request).await?;
        assert_eq!(status, 400, "{name}: {body}");
        let record = broker.audit()?.last().cloned().ok_or("no record")?;
        assert_eq!(record["callerCertificate"]["fault"], fault, "{name}");
    }
    Ok(())
}
