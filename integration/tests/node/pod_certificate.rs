//! A credential bundle that a kubelet mounts (KEP-4317) is a caller's client certificate.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::node::{External, NODE, POD_TOOL};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::{
    ACCOUNT, Access, Broker, BrokerSpec, TENANT, Target, claims, prepare_hub, put_secret, shipped,
};
use serde_json::{Value, json};

use super::setup::Cluster;
use crate::caller_certificates::signer::{SIGNER, Signer, requests, uri};

const HOST: &str = "keyferry.keyferry.test";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 21);
const CA_SECRET: &str = "keyferry-callers-ca";
/// Another account of the tenant, which no rule names.
const OTHER: &str = "other";
const WAIT_LIMIT: Duration = Duration::from_secs(90);

pub(crate) async fn a_mounted_certificate_is_a_caller(cluster: Arc<Cluster>) -> TestResult {
    let hub = &cluster.hub;
    prepare_hub(hub).await?;
    hub.create_service_account(TENANT, OTHER).await?;
    let signer = Signer::install(hub).await?;
    let broker = start_broker(&cluster, &signer).await?;
    let authority = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "keyferry-ca", "namespace": TENANT },
        "data": { "ca.crt": cluster.ground.ca().cert_pem() },
    });
    let path = format!("/api/v1/namespaces/{TENANT}/configmaps/keyferry-ca");
    hub.admin().apply(&path, &authority).await?;

    let answer = exchange(&cluster, &signer, ACCOUNT).await?;
    let body = answer.strip_prefix("200\n").ok_or_else(|| answer.clone())?;
    let answer: Value = serde_json::from_str(body)?;
    let token = answer["access_token"].as_str().ok_or("no token")?;
    let subject = format!("system:serviceaccount:{TENANT}:{ACCOUNT}");
    assert_eq!(claims(token)?["sub"], subject);
    let record = broker.audit()?.last().cloned().ok_or("no record")?;
    assert_eq!(record["callerCertificate"]["uri"], uri(TENANT, ACCOUNT));

    // The kubelet gets a Pod of another account a certificate for that account only.
    let answer = exchange(&cluster, &signer, OTHER).await?;
    assert!(answer.starts_with("400\n"), "{answer}");
    let record = broker.audit()?.last().cloned().ok_or("no record")?;
    assert_eq!(record["callerCertificate"]["fault"], "OtherUri");
    Ok(())
}

/// Starts a Keyferry on this machine that Pods reach by its name.
async fn start_broker(cluster: &Cluster, signer: &Signer) -> Result<Broker, TestError> {
    let hub = &cluster.hub;
    put_secret(hub, CA_SECRET, &[("ca.crt", signer.authority_pem())]).await?;
    let rights = shipped("examples/in-cluster/caller-certificates.yaml");
    apply_manifests(hub, &[&rights]).await?;
    let account = format!("/api/v1/namespaces/{TENANT}/serviceaccounts/{ACCOUNT}");
    let account = hub.admin().get(&account).await?;
    let rule = format!(
        "  clientCertificates:\n    - caSecretRef: {{ name: {CA_SECRET} }}\n      uriSAN: {}\n      \
         serviceAccount: {{ namespace: {TENANT}, name: {ACCOUNT}, uid: {} }}\n",
        uri(TENANT, ACCOUNT),
        account["metadata"]["uid"].as_str().ok_or("no UID")?
    );
    let spec = BrokerSpec::of_hub("pods", hub)
        .published_at(&format!("https://{HOST}"))
        .with_api_lines(&rule)
        .with_target(Target::audience("vault", "https://vault.keyferry.test"))
        .with_access(Access::of(TENANT, "vault", "vault", ACCOUNT));
    let broker = cluster.ground.start_broker(hub, spec).await?;
    let url = broker.api_url();
    let (_, port) = url.rsplit_once(':').ok_or("no port")?;
    cluster
        .node
        .connect(&External {
            name: HOST.to_owned(),
            address: ADDRESS,
            port: 443,
            served_at: port.parse()?,
        })
        .await?;
    Ok(broker)
}

/// Runs a Pod of this account, signs what its kubelet requests, and returns Keyferry's answer to
/// the Pod.
async fn exchange(cluster: &Cluster, signer: &Signer, account: &str) -> Result<String, TestError> {
    let admin = cluster.hub.admin();
    let path = format!("/api/v1/namespaces/{TENANT}/pods/{account}");
    admin.apply(&path, &pod(account)).await?;
    let of_pod = |list: &Value| -> Option<Value> {
        let mut all = list["items"].as_array().into_iter().flatten();
        all.find(|one| one["spec"]["podName"] == account).cloned()
    };
    let requested = |list: &Value| of_pod(list).is_some();
    let list = until_object(admin, &requests(TENANT), "requested", WAIT_LIMIT, requested).await?;
    let request = of_pod(&list).ok_or("no request")?;
    assert_eq!(request["spec"]["nodeName"], NODE);
    assert_eq!(request["spec"]["serviceAccountName"], account);
    let name = request["metadata"]["name"].as_str().ok_or("no name")?;
    signer.sign(TENANT, name, |_| {}).await?;
    cluster.until_ready(TENANT, account).await?;
    let url = format!("https://{HOST}/v1/token");
    let form = "grant_type=client_credentials&audience=tenant-a%2Fvault";
    let post = [
        "pod-tool",
        "post",
        &url,
        "/authority/ca.crt",
        "/identity/bundle.pem",
        form,
    ];
    cluster.exec(TENANT, account, &post).await
}

fn pod(account: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": account, "namespace": TENANT },
        "spec": {
            "serviceAccountName": account,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "caller", "image": POD_TOOL, "imagePullPolicy": "Never",
                "volumeMounts": [
                    { "name": "identity", "mountPath": "/identity", "readOnly": true },
                    { "name": "authority", "mountPath": "/authority", "readOnly": true },
                ],
            }],
            "volumes": [
                { "name": "authority", "configMap": { "name": "keyferry-ca" } },
                { "name": "identity", "projected": { "sources": [{ "podCertificate": {
                    "signerName": SIGNER, "keyType": "ECDSAP256",
                    "maxExpirationSeconds": 3600, "credentialBundlePath": "bundle.pem",
                } }] } },
            ],
        },
    })
}
