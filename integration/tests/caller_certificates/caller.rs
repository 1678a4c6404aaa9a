//! Callers with client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{
    ACCOUNT, AUDIENCE_A, Access, Broker, BrokerSpec, TENANT, Target, World, make_tenant,
    put_secret, shipped,
};
use keyferry_keys::testing::client_certificates::{TestAuthority, TestCertificate};
use serde_json::{Value, json};

/// How long a changed Secret may take to be used, on a busy machine.
const SOON: Duration = Duration::from_secs(20);
pub(crate) const URI: &str = "spiffe://example.com/ns/tenant-a/sa/reconciler";
const NOT_ACCEPTED: [(u16, &str); 2] = [
    (400, "the subject_token was not accepted"),
    (401, "the bearer token was not accepted"),
];

pub(crate) fn authority(name: &str) -> TestAuthority {
    TestAuthority::new(name, Timestamp::now(), |_| {})
}

pub(crate) fn rule(secret: &str, account: [&str; 2], uid: &str, further: &str) -> String {
    let [namespace, name] = account;
    format!(
        "  clientCertificates:\n    - caSecretRef: {{ name: {secret} }}\n      uriSAN: {URI}\n      \
         serviceAccount: {{ namespace: {namespace}, name: {name}, uid: {uid} }}\n{further}"
    )
}

/// The shipped rights, for a Secret of this name.
pub(crate) async fn grant(world: &World, secret: &str) -> TestResult {
    let text = std::fs::read_to_string(shipped("examples/in-cluster/caller-certificates.yaml"))?;
    let text = text.replace("keyferry-callers-ca", secret);
    let file: PathBuf = world.fleet().folder().join(format!("{secret}.yaml"));
    std::fs::write(&file, text)?;
    Ok(apply_manifests(world.hub(), &[&file]).await?)
}

pub(crate) async fn uid(
    hub: &ControlPlane,
    [namespace, name]: [&str; 2],
) -> Result<String, TestError> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
    let account = hub.admin().get(&path).await?;
    let uid = account["metadata"]["uid"].as_str().ok_or("no UID")?;
    Ok(uid.to_owned())
}

/// A client that presents this certificate.
fn client(broker: &Broker, certificate: &TestCertificate) -> Result<reqwest::Client, TestError> {
    let ca = std::fs::read(broker.ca_path())?;
    let identity = reqwest::Identity::from_pem(certificate.to_pem().as_bytes())?;
    Ok(reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca)?])
        .identity(identity)
        .build()?)
}

/// The status and the body of the exchange, and of the kubeconfig.
async fn both(
    broker: &Broker,
    certificate: &TestCertificate,
    namespace: &str,
) -> Result<[(u16, String); 2], TestError> {
    let client = client(broker, certificate)?;
    let exchange = client
        .post(format!("{}/v1/token", broker.api_url()))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!(
            "grant_type=client_credentials&audience={namespace}%2Fa"
        ))
        .send()
        .await?;
    let path = format!("/v1/namespaces/{namespace}/accesses/a/kubeconfig");
    let kubeconfig = client
        .get(format!("{}{path}", broker.api_url()))
        .send()
        .await?;
    Ok([
        (exchange.status().as_u16(), exchange.text().await?),
        (kubeconfig.status().as_u16(), kubeconfig.text().await?),
    ])
}

pub(crate) async fn is_refused(
    broker: &Broker,
    certificate: &TestCertificate,
    namespace: &str,
) -> TestResult {
    let answers = both(broker, certificate, namespace).await?;
    for ((status, body), (wanted, text)) in answers.iter().zip(NOT_ACCEPTED) {
        assert_eq!(*status, wanted, "{body}");
        assert!(body.contains(text), "{body}");
    }
    Ok(())
}

/// Waits until the exchange has this status.
pub(crate) async fn until(
    broker: &Broker,
    certificate: &TestCertificate,
    namespace: &str,
    status: u16,
) -> TestResult {
    let limit = Instant::now() + SOON;
    loop {
        let [(found, body), _] = both(broker, certificate, namespace).await?;
        if found == status {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("still {found} after {SOON:?}: {body}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn last(broker: &Broker, member: &str) -> Result<Value, TestError> {
    Ok(broker.audit()?.last().ok_or("no record")?[member].clone())
}

pub(crate) async fn a_certificate_is_the_account_of_its_rule(world: Arc<World>) -> TestResult {
    // The target accepts no other account.
    let (hub, namespace, secret) = (world.hub(), TENANT, "mtls-callers-ca");
    let first = authority("first callers");
    put_secret(hub, secret, &[("ca.crt", first.pem())]).await?;
    grant(&world, secret).await?;
    let uid = uid(hub, [TENANT, ACCOUNT]).await?;
    let spec = BrokerSpec::of_hub("mtls", hub)
        .with_api_lines(&rule(secret, [TENANT, ACCOUNT], &uid, ""))
        .with_target(
            Target::of(world.target_a(), AUDIENCE_A)
                .named("a")
                .allowing(TENANT, &[ACCOUNT]),
        )
        .with_access(Access::of(TENANT, "a", "a", ACCOUNT));
    let broker = world.start_broker(hub, spec).await?;

    let good = first.issue(URI, |_| {});
    let [(status, body), (kubeconfig, document)] = both(&broker, &good, namespace).await?;
    assert_eq!((status, kubeconfig), (200, 200), "{body} {document}");
    let answer: Value = serde_json::from_str(&body)?;
    let token = answer["access_token"].as_str().ok_or("no token")?;
    // The target accepts the token, as the ServiceAccount of the rule.
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let review = world
        .target_a()
        .admin()
        .create("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await?;
    assert_eq!(review["status"]["authenticated"], true, "{review}");
    let user = review["status"]["user"]["username"].as_str();
    let wanted = format!("system:serviceaccount:{TENANT}:{ACCOUNT}");
    assert!(user.is_some_and(|user| user.ends_with(&wanted)), "{user:?}");
    let note = last(&broker, "callerCertificate")?;
    assert_eq!(note["uri"], URI, "{note}");
    assert!(note["serial"].is_string() && note["authority"].is_string());

    command_line(&world, &broker, &good, namespace).await?;

    let other = first.issue("spiffe://example.com/ns/tenant-a/sa/other", |_| {});
    is_refused(&broker, &other, namespace).await?;
    let note = last(&broker, "callerCertificate")?;
    assert_eq!(note["fault"], "OtherUri", "{note}");
    // The hub's own client certificates are signed by another CA.
    let stranger = authority("strangers").issue(URI, |_| {});
    is_refused(&broker, &stranger, namespace).await?;

    rotated(&world, &broker, secret, namespace, &first).await?;

    hub.recreate_service_account(TENANT, ACCOUNT).await?;
    let next = authority("first callers");
    put_secret(hub, secret, &[("ca.crt", next.pem())]).await?;
    let good = next.issue(URI, |_| {});
    let limit = Instant::now() + SOON;
    while last(&broker, "reason")? != "CallerIdentityChanged" {
        assert!(Instant::now() < limit, "the account is another one");
        both(&broker, &good, namespace).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    is_refused(&broker, &good, namespace).await
}

/// Replaces the CA of the callers without a restart.
async fn rotated(
    world: &World,
    broker: &Broker,
    secret: &str,
    namespace: &str,
    first: &TestAuthority,
) -> TestResult {
    let (hub, second) = (world.hub(), authority("second callers"));
    let (old, new) = (first.issue(URI, |_| {}), second.issue(URI, |_| {}));
    let announced = format!("{}{}", first.pem(), second.pem());
    is_refused(broker, &new, namespace).await?;
    put_secret(hub, secret, &[("ca.crt", &announced)]).await?;
    until(broker, &new, namespace, 200).await?;
    until(broker, &old, namespace, 200).await?;
    put_secret(hub, secret, &[("ca.crt", second.pem())]).await?;
    until(broker, &old, namespace, 400).await?;
    until(broker, &new, namespace, 200).await?;

    let failures = "keyferry_caller_authority_reloads_total{result=\"failure\"}";
    let before = broker.metric(failures).await?;
    put_secret(hub, secret, &[("ca.crt", "text")]).await?;
    let limit = Instant::now() + SOON;
    while broker.metric(failures).await? <= before {
        assert!(Instant::now() < limit, "the bad CA was not looked at");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    until(broker, &new, namespace, 200).await?;
    let events = hub
        .admin()
        .get("/apis/events.k8s.io/v1/namespaces/keyferry-system/events")
        .await?;
    let about = |event: &Value| {
        event["regarding"]["name"] == secret && event["reason"] == "CallerAuthorityInvalid"
    };
    let events = events["items"].as_array().ok_or("no list")?;
    assert!(
        events.iter().any(about),
        "an Event of the Secret: {events:?}"
    );

    let path = format!("/api/v1/namespaces/keyferry-system/secrets/{secret}");
    hub.admin().delete(&path).await?;
    until(broker, &new, namespace, 400).await
}

/// `keyferry token` with the certificate instead of a token.
async fn command_line(
    world: &World,
    broker: &Broker,
    certificate: &TestCertificate,
    namespace: &str,
) -> TestResult {
    let folder = world.fleet().folder().join(format!("{namespace}-client"));
    std::fs::create_dir_all(&folder)?;
    let pem = certificate.to_pem();
    let key = pem.find("-----BEGIN PRIVATE KEY").ok_or("no key")?;
    let write = |name: &str, text: &str| -> Result<String, TestError> {
        let path: PathBuf = Path::new(&folder).join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let (certificate, key) = (
        write("tls.crt", &pem[..key])?,
        write("tls.key", &pem[key..])?,
    );
    let (access, ca) = (
        format!("{namespace}/a"),
        broker.ca_path().display().to_string(),
    );
    let server = broker.api_url();
    let arguments = [
        &access,
        "--server",
        &server,
        "--certificate-authority",
        &ca,
        "--client-certificate",
        &certificate,
        "--client-key",
        &key,
    ];
    for command in ["token", "kubeconfig"] {
        let arguments: Vec<&str> = [command].into_iter().chain(arguments).collect();
        let ran = world.binary().run(&arguments, &[]).await?;
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{command}: {said}");
        assert!(text.contains("eyJ"), "{command}: {text}");
    }
    Ok(())
}

pub(crate) async fn the_hubs_own_client_ca_is_refused(world: Arc<World>) -> TestResult {
    let (hub, namespace, secret) = (world.hub(), "mtls-hub", "mtls-hub-ca");
    make_tenant(hub, namespace, &["owner"]).await?;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = hub.admin().get(path).await?;
    let pem = published["data"]["client-ca-file"]
        .as_str()
        .ok_or("the hub has no client CA")?;
    put_secret(hub, secret, &[("ca.crt", pem)]).await?;
    let account = [namespace, "owner"];
    let uid = uid(hub, account).await?;
    let spec = |name: &str, further: &str| {
        BrokerSpec::of_hub(name, hub).with_api_lines(&rule(secret, account, &uid, further))
    };
    grant(&world, secret).await?;
    let refused = world
        .refused_start(hub, spec("mtls-hub-refused", ""))
        .await?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        said.contains("CallerAuthorityInvalid")
            && said.contains("users of the hub's own apiserver"),
        "{said}"
    );
    let allowed = spec("mtls-hub-allowed", "      allowHubClientCA: true\n");
    world.start_broker(hub, allowed).await?;
    Ok(())
}
