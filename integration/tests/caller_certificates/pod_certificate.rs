//! Pod certificates (KEP-4317) as client certificates of callers: a node requests one for its Pod,
//! a signer with the right to sign issues it, and the Pod presents it to Keyferry.
//!
//! The hub authorises and restricts nodes as a cluster does. There is no kubelet: the test sends the
//! request that a kubelet sends, with the node's own client certificate, and keeps the key. So it
//! does not show that a kubelet mounts and renews the files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{Fixture, NotStarted, TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, Ground, TENANT, Target, put_secret, shipped,
};
use keyferry_keys::testing::client_certificates::{TestAuthority, valid};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::{Value, json};

use super::caller::authority;

const SIGNER: &str = "keyferry.test/callers";
const CA_SECRET: &str = "keyferry-callers-ca";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/tenant-a/podcertificaterequests";
/// How long the apiserver's admission may take to see an object that was just created.
const SOON: Duration = Duration::from_secs(30);

/// A hub with two nodes, a Pod on the first one, and a signer's account.
pub(crate) struct Stage {
    ground: Ground,
    hub: Arc<ControlPlane>,
    authority: TestAuthority,
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
        sign_right(&hub).await?;
        Ok(Self {
            ground,
            hub,
            authority: authority("callers of Pods"),
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

    /// A client of the hub with this ServiceAccount.
    async fn account(&self, name: &str) -> Result<RestClient, TestError> {
        let audience = format!("https://{}.keyferry.test", self.hub.name());
        let token = self
            .hub
            .token_request("signer", name, &[&audience], 3600)
            .await?;
        Ok(self.hub.as_bearer(&token.token)?)
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
        while let Err(error) = node.create(REQUESTS, &request).await {
            if Instant::now() > limit {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let signer = self.account("signer").await?;
        signer
            .patch(&status_path(name), &self.signed(name, &change).await?)
            .await?;
        // As a kubelet reads it.
        Ok((key, node.get(&format!("{REQUESTS}/{name}")).await?))
    }

    /// Makes the certificate as the signer does: with the ServiceAccount from the request, which
    /// the hub checked, and only the key from the CSR.
    async fn signed(
        &self,
        name: &str,
        change: impl Fn(&mut CertificateParams),
    ) -> Result<Value, TestError> {
        let signer = self.account("signer").await?;
        let request = signer.get(&format!("{REQUESTS}/{name}")).await?;
        let account = request["spec"]["serviceAccountName"]
            .as_str()
            .ok_or("no account")?;
        let csr = request["spec"]["stubPKCS10Request"]
            .as_str()
            .ok_or("no CSR")?;
        let (mut begin, mut end) = (Timestamp::now(), Timestamp::now());
        let pem = self
            .authority
            .sign_request(&STANDARD.decode(csr)?, &uri(account), |params| {
                change(params);
                begin =
                    Timestamp::from_second(params.not_before.unix_timestamp()).unwrap_or_default();
                end = Timestamp::from_second(params.not_after.unix_timestamp()).unwrap_or_default();
            });
        let issued = json!({
            "type": "Issued", "status": "True", "reason": "Signed", "message": "",
            "lastTransitionTime": Timestamp::now().round(jiff::Unit::Second)?,
        });
        Ok(json!({ "status": {
            "conditions": [issued], "certificateChain": pem,
            "notBefore": begin, "notAfter": end,
            "beginRefreshAt": begin + SignedDuration::from_mins(20),
        } }))
    }
}

fn uri(account: &str) -> String {
    format!("spiffe://hub.test/ns/{TENANT}/sa/{account}")
}

fn status_path(name: &str) -> String {
    format!("{REQUESTS}/{name}/status")
}

/// A signer's rights, as the documentation of signers lists them, and an account without the last.
async fn sign_right(hub: &ControlPlane) -> TestResult {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    let group = "certificates.k8s.io";
    let status = [
        rule(group, "podcertificaterequests", &["get", "list", "watch"]),
        rule(group, "podcertificaterequests/status", &["update", "patch"]),
    ];
    let sign = json!({
        "apiGroups": [group], "resources": ["signers"], "verbs": ["sign"],
        "resourceNames": [SIGNER],
    });
    for (account, rules) in [
        ("signer", [&status[..], &[sign]].concat()),
        ("stranger", status.to_vec()),
    ] {
        hub.create_namespace_with_service_account("signer", account)
            .await?;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": account }, "rules": rules,
        });
        let base = "/apis/rbac.authorization.k8s.io/v1";
        hub.admin()
            .create(&format!("{base}/clusterroles"), &role)
            .await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": account },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account,
            },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": "signer" }],
        });
        hub.admin()
            .create(&format!("{base}/clusterrolebindings"), &binding)
            .await?;
    }
    Ok(())
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
    put_secret(hub, CA_SECRET, &[("ca.crt", stage.authority.pem())]).await?;
    let rights = shipped("examples/in-cluster/caller-certificates.yaml");
    apply_manifests(hub, &[&rights]).await?;
    let account = format!("/api/v1/namespaces/{TENANT}/serviceaccounts/{ACCOUNT}");
    let uid = stage.uid(&account).await?;
    let rule = format!(
        "  clientCertificates:\n    - caSecretRef: {{ name: {CA_SECRET} }}\n      uriSAN: {}\n      \
         serviceAccount: {{ namespace: {TENANT}, name: {ACCOUNT}, uid: {} }}\n",
        uri(ACCOUNT),
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
    let refused = stage.node("node-2")?.create(REQUESTS, &foreign).await;
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
    assert_eq!(record["callerCertificate"]["uri"], uri(ACCOUNT));

    let (stranger, name) = (stage.account("stranger").await?, "unsigned");
    let request = stage
        .request(name, &KeyPair::generate()?, "node-1", 3600)
        .await?;
    stage.node("node-1")?.create(REQUESTS, &request).await?;
    let forged = stranger
        .patch(&status_path(name), &stage.signed(name, |_| {}).await?)
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
