//! `certSecretRef`: the real source-controller reads a HelmRepository from a Pod through the hub's
//! apiserver, with a client certificate that Keyferry requested and renews.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::flux::{condition, until_ready, until_said};
use keyferry_integration::pki::CertifiedKey;
use keyferry_integration::pod_host::PodHost;
use keyferry_integration::rbac::{apply_manifests, service_account_kubeconfig};
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{RECONCILER, access_path, secret_path};
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::stage::Stage;

const TENANT: &str = "tenant-a";
const ACCESS: &str = "charts";
const SECRET: &str = "charts-client-tls";
const CHARTS: &str = "charts";
const TARGET: &str = "/apis/keyferry.dev/v1alpha1/targetclusters/this-hub";
const INDEX: &str = "apiVersion: v1\nentries:\n  web:\n  - apiVersion: v2\n    name: web\n    \
                     version: 1.0.0\n    urls: [web-1.0.0.tgz]\ngenerated: \
                     2026-01-01T00:00:00Z\n";
/// Keyferry makes at most one request in half a minute.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn reads_charts_through_the_hub(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.hub;
    let [requester, approver] = [
        "client-certificates/requester",
        "certificate-approver/approver",
    ]
    .map(|name| shipped(&format!("examples/install/{name}.yaml")));
    apply_manifests(hub, &[&requester, &approver]).await?;
    let host = PodHost::start(stage.folder(), "/index.yaml", INDEX).await?;
    hub.create_namespace_with_service_account(CHARTS, "default")
        .await?;
    for pod in ["charts-0", "charts-1"] {
        host.create_pod(hub, CHARTS, pod).await?;
    }
    put_target(&stage, json!({})).await?;
    for access in [ACCESS, "of-another", "expired"] {
        put_access(&stage, access).await?;
    }
    refuses_what_an_erring_signer_issues(&stage).await?;

    // A denial is final, and nothing is written.
    let first = until_pending(&stage, ACCESS, None).await?;
    decide(&stage, "deny", &first).await?;
    until_said(hub, &access_path(TENANT, ACCESS), "was denied").await?;
    let secret = secret_path(TENANT, SECRET);
    assert!(!hub.admin().exists(&secret).await?);
    request_again(&stage, "after the denial").await?;
    let forged = until_pending(&stage, ACCESS, Some(&first)).await?;

    // A certificate of the right user and CA, but for another key, as another signer may write it.
    let user = format!("keyferry:{TENANT}:{RECONCILER}");
    let other = hub.ca().client(&user, "")?;
    let status = json!({ "status": { "certificate": STANDARD.encode(&other.cert_pem) } });
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{forged}/status");
    hub.admin().patch(&path, &status).await?;
    until_said(
        hub,
        &access_path(TENANT, ACCESS),
        "it has another public key",
    )
    .await?;
    assert!(!hub.admin().exists(&secret).await?);
    request_again(&stage, "after the forgery").await?;
    let second = until_pending(&stage, ACCESS, Some(&forged)).await?;
    assert!(
        !hub.admin().exists(&secret).await?,
        "nothing before its approval"
    );
    decide(&stage, "approve", &second).await?;
    until_ready(hub, &access_path(TENANT, ACCESS)).await?;
    let written = hub.admin().get(&secret).await?;
    assert_eq!(written["type"], "kubernetes.io/tls");

    // The diagnosis describes the certificate, and asks for no token of the hub.
    let said = doctor(&stage).await?;
    let wanted = ["CertificateOfTheHub", "keyferry:tenant-a:reconciler"];
    assert!(wanted.iter().all(|text| said.contains(text)), "{said}");

    // Without the role, the user may do nothing.
    let path = |pod: &str| proxied(&host, pod);
    assert_eq!(
        status_of(hub.url(), &written, &path("charts-0")).await?,
        403
    );
    let role = stage
        .run(&[
            "proxy-role",
            "charts-0",
            "-n",
            CHARTS,
            "--port",
            &host.port().to_string(),
            "--account",
            &format!("{TENANT}/{RECONCILER}"),
        ])
        .await?;
    let file = stage.folder().join("proxy-role.yaml");
    std::fs::write(&file, role)?;
    apply_manifests(hub, &[&file]).await?;
    until_status(&stage, &written, &path("charts-0"), 200).await?;
    assert_eq!(
        status_of(hub.url(), &written, &path("charts-1")).await?,
        403
    );
    let bare = path("charts-0").replace(&format!(":{}", host.port()), "");
    assert_eq!(
        status_of(hub.url(), &written, &bare).await?,
        403,
        "its other ports"
    );
    let secrets = "/api/v1/namespaces/tenant-a/secrets";
    assert_eq!(status_of(hub.url(), &written, secrets).await?, 403);

    // Flux reads the index, and goes on while the certificate is renewed.
    put_repository(&stage, &host).await?;
    until_ready(hub, &repository()).await?;
    put_target(&stage, json!({ "maxLifetime": "12h" })).await?;
    let third = until_pending(&stage, ACCESS, Some(&second)).await?;
    reconciled(&stage, &host, "while the renewal waits").await?;
    assert_eq!(hub.admin().get(&secret).await?["data"], written["data"]);
    decide(&stage, "approve", &third).await?;
    let renewed = until_changed(&stage, &written).await?;
    reconciled(&stage, &host, "after the renewal").await?;
    assert_eq!(
        status_of(hub.url(), &written, &path("charts-0")).await?,
        200,
        "the old pair"
    );

    // Automatic: the approver's own account decides, by what it reads itself.
    put_target(
        &stage,
        json!({ "maxLifetime": "1h", "approval": "Automatic" }),
    )
    .await?;
    let kubeconfig = service_account_kubeconfig(
        hub,
        "keyferry-system",
        "keyferry-certificate-approver",
        3600,
    )
    .await?;
    let limit = Instant::now() + WAIT_LIMIT;
    let approve = [
        "approve-certificates",
        "--once",
        "--config",
        &stage.broker.config().display().to_string(),
        "--kubeconfig",
        &kubeconfig.path().display().to_string(),
    ];
    while hub.admin().get(&secret).await?["data"] == renewed["data"] {
        if Instant::now() > limit {
            return Err("the certificate was not renewed by the approver".into());
        }
        stage.run(&approve).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    reconciled(&stage, &host, "after the automatic renewal").await?;
    let failed = failures(&stage).await?;
    assert!(failed.is_empty(), "{failed:?}");

    // What policy takes back is deleted.
    let none = json!({ "spec": { "allow": [] } });
    hub.admin().patch(TARGET, &none).await?;
    let limit = Instant::now() + WAIT_LIMIT;
    while hub.admin().exists(&secret).await? {
        if Instant::now() > limit {
            return Err("the Secret was not deleted".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn put_target(stage: &Stage, rules: Value) -> TestResult {
    let spec = json!({
        "address": stage.hub.url(), "audience": "https://this-hub.keyferry.test", "hub": true,
        "clientCertificates": rules,
        "allow": [{
            "namespaces": [TENANT], "serviceAccounts": [RECONCILER],
            "deliveries": ["ClientCertificateSecret"],
        }],
    });
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "this-hub" }, "spec": spec,
    });
    stage.hub.admin().apply(TARGET, &target).await?;
    Ok(())
}

async fn put_access(stage: &Stage, name: &str) -> TestResult {
    let spec = json!({
        "targetClusterRef": { "name": "this-hub" }, "serviceAccountName": RECONCILER,
        "deliveries": [{ "name": "tls", "type": "ClientCertificateSecret" }],
    });
    let named = json!({ "name": name, "namespace": TENANT });
    let access = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": named, "spec": spec,
    });
    let path = access_path(TENANT, name);
    stage.hub.admin().apply(&path, &access).await?;
    Ok(())
}

/// Answers two requests with certificates of the requested key and the hub's own CA: one for
/// another user, one that has expired. Nothing is written, and the accesses say why.
async fn refuses_what_an_erring_signer_issues(stage: &Stage) -> TestResult {
    let hub = &stage.hub;
    let user = format!("keyferry:{TENANT}:{RECONCILER}");
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (access, user, life, why) in [
        (
            "of-another",
            "system:admin",
            minutes(120),
            "its subject is not",
        ),
        ("expired", user.as_str(), minutes(30), "it expires at"),
    ] {
        let name = until_pending(stage, access, None).await?;
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
        let request = hub.admin().get(&path).await?;
        let pem = request["spec"]["request"].as_str().unwrap_or_default();
        let pem = String::from_utf8(STANDARD.decode(pem)?)?;
        let issued = hub.ca().sign_request(&pem, user, life)?;
        let status = json!({ "status": { "certificate": STANDARD.encode(issued) } });
        hub.admin()
            .patch(&format!("{path}/status"), &status)
            .await?;
        until_said(hub, &access_path(TENANT, access), why).await?;
        let written = hub.admin().get(&access_path(TENANT, access)).await?;
        assert_eq!(
            condition(&written, "Ready")["reason"],
            "CertificateMismatch"
        );
        let secret = secret_path(TENANT, &format!("{access}-client-tls"));
        assert!(!hub.admin().exists(&secret).await?, "{access}");
        hub.admin().delete(&access_path(TENANT, access)).await?;
    }
    Ok(())
}

/// What `keyferry doctor` prints about the access. Its exit code says that hops are open.
async fn doctor(stage: &Stage) -> Result<String, TestError> {
    let kubeconfig = stage.hub.admin_kubeconfig().display().to_string();
    let start = format!("targetaccess/{ACCESS}");
    let args = ["doctor", &start, "-n", TENANT, "--kubeconfig", &kubeconfig];
    let output = stage.ground().binary().run(&args, &[]).await?;
    let printed = [output.stdout, output.stderr].map(String::from_utf8);
    let [stdout, stderr] = printed;
    Ok(format!("{}{}", stdout?, stderr?))
}

async fn request_again(stage: &Stage, when: &str) -> TestResult {
    let change = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": when } } });
    let path = access_path(TENANT, ACCESS);
    stage.hub.admin().patch(&path, &change).await?;
    Ok(())
}

fn repository() -> String {
    format!("/apis/source.toolkit.fluxcd.io/v1/namespaces/{TENANT}/helmrepositories/charts")
}

fn proxied(host: &PodHost, pod: &str) -> String {
    let port = host.port();
    format!("/api/v1/namespaces/{CHARTS}/pods/{pod}:{port}/proxy/index.yaml")
}

async fn put_repository(stage: &Stage, host: &PodHost) -> TestResult {
    let path = proxied(host, "charts-0");
    let url = format!("{}{}", stage.hub.url(), path.trim_end_matches("index.yaml"));
    let object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
        "metadata": { "name": "charts", "namespace": TENANT },
        "spec": { "interval": "5s", "url": url, "certSecretRef": { "name": SECRET } },
    });
    stage.hub.admin().apply(&repository(), &object).await?;
    Ok(())
}

/// Waits until the access reports a request that waits for its approval, other than the last.
async fn until_pending(
    stage: &Stage,
    access: &str,
    last: Option<&str>,
) -> Result<String, TestError> {
    let limit = Instant::now() + WAIT_LIMIT;
    loop {
        let object = stage.hub.admin().get(&access_path(TENANT, access)).await?;
        let ready = condition(&object, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        let named = message
            .split_once("kubectl certificate approve ")
            .map(|(_, name)| name.trim().to_owned());
        if ready["reason"] == "CertificatePending"
            && let Some(name) = named
            && last != Some(name.as_str())
        {
            return Ok(name);
        }
        if Instant::now() > limit {
            return Err(format!("no request waits: {ready}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn decide(stage: &Stage, verb: &str, name: &str) -> TestResult {
    let output = stage.hub.kubectl(&["certificate", verb, name]).await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

async fn until_changed(stage: &Stage, before: &Value) -> Result<Value, TestError> {
    let limit = Instant::now() + WAIT_LIMIT;
    loop {
        let secret = stage.hub.admin().get(&secret_path(TENANT, SECRET)).await?;
        if secret["data"]["tls.key"] != before["data"]["tls.key"] {
            return Ok(secret);
        }
        if Instant::now() > limit {
            return Err("the Secret was not renewed".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until Flux has read the index once more, and is Ready.
async fn reconciled(stage: &Stage, host: &PodHost, when: &str) -> TestResult {
    // The second read surely began after now.
    let wanted = host.reads() + 2;
    let limit = Instant::now() + WAIT_LIMIT;
    while host.reads() < wanted {
        if Instant::now() > limit {
            return Err(format!("Flux does not read the index {when}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until_ready(&stage.hub, &repository()).await?;
    Ok(())
}

/// The warnings that Flux sent about the HelmRepository.
async fn failures(stage: &Stage) -> Result<Vec<String>, TestError> {
    let path = format!("/api/v1/namespaces/{TENANT}/events");
    let events = stage.hub.admin().get(&path).await?;
    let all = events["items"].as_array().cloned().unwrap_or_default();
    let failed = all.iter().filter(|event| {
        event["type"] == "Warning" && event["involvedObject"]["kind"] == "HelmRepository"
    });
    Ok(failed
        .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect())
}

/// Asks the hub as a client that has only the Secret.
async fn status_of(hub: String, secret: &Value, path: &str) -> Result<u16, TestError> {
    let text = |key: &str| -> Result<String, TestError> {
        let encoded = secret["data"][key].as_str().unwrap_or_default();
        Ok(String::from_utf8(STANDARD.decode(encoded)?)?)
    };
    let pair = CertifiedKey {
        cert_pem: text("tls.crt")?,
        key_pem: text("tls.key")?,
        cert_path: Default::default(),
        key_path: Default::default(),
    };
    let client = RestClient::with_certificate(&hub, &text("ca.crt")?, &pair)?;
    let answer = client.request(http::Method::GET, path).send().await?;
    Ok(answer.status().as_u16())
}

async fn until_status(stage: &Stage, secret: &Value, path: &str, wanted: u16) -> TestResult {
    let limit = Instant::now() + WAIT_LIMIT;
    loop {
        let status = status_of(stage.hub.url(), secret, path).await?;
        if status == wanted {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("{path} answers {status}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
