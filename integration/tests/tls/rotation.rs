//! New certificates in the Secrets of a running Keyferry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use keyferry_integration::pki::{CertifiedKey, TestCa};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::{Broker, BrokerSpec};
use serde_json::{Value, json};

use super::stage::{SOON, Stage, s_client};

const TLS: &str = "kubernetes.io/tls";
const LOADS: usize = 4;

/// A client that trusts each of these CAs.
fn trusting_each(cas: &[String]) -> Result<reqwest::Client, TestError> {
    let cas: Result<Vec<_>, _> = cas
        .iter()
        .map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()))
        .collect();
    Ok(reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only(cas?)
        .build()?)
}

/// The result of a reload, by its listener.
async fn reloads(broker: &Broker, listener: &str, result: &str) -> Result<f64, TestError> {
    broker
        .metric(&format!(
            "keyferry_serving_certificate_reloads_total{{listener=\"{listener}\",result=\"{result}\"}}"
        ))
        .await
}

/// Whether this is the certificate that a listener serves.
async fn serves(url: &str, ca: &TestCa, certified: &CertifiedKey) -> Result<bool, TestError> {
    let output = s_client(url, ca.cert_path(), &[]).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.contains(certified.cert_pem.trim()))
}

pub(super) async fn under_load(stage: Arc<Stage>) -> TestResult {
    let secrets = ["rotated-discovery", "rotated-api"];
    stage.allow_watching(secrets).await?;
    let broker = Arc::new(stage.start_with_secrets("rotated", secrets).await?);
    let old_ca = stage.ground().ca();
    let new_ca = TestCa::create("the next CA", &stage.folder("next-ca")?)?;
    // Clients trust both CAs before the second is used.
    let both = [old_ca, &new_ca].map(|ca| ca.cert_pem().to_owned());
    let (stop, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut loads = tokio::task::JoinSet::new();
    for _ in 0..LOADS {
        let (stop, answered, both) = (Arc::clone(&stop), Arc::clone(&answered), both.clone());
        let documents = format!("{}/openid/v1/jwks", broker.discovery_url());
        let tokens = format!("{}/v1/token", broker.api_url());
        loads.spawn(async move {
            let kept = trusting_each(&both)?;
            while !stop.load(Ordering::Relaxed) {
                // One connection lives through the rotation, and each round opens new ones.
                let fresh = trusting_each(&both)?;
                for client in [&kept, &fresh] {
                    let read = client.get(&documents).send().await?;
                    assert_eq!(read.status(), 200);
                    read.bytes().await?;
                    // Without a form it is refused, by the token API itself.
                    let refused = client.post(&tokens).send().await?;
                    assert!(refused.status().is_client_error(), "{}", refused.status());
                    refused.bytes().await?;
                    answered.fetch_add(2, Ordering::Relaxed);
                }
            }
            Ok::<_, TestError>(())
        });
    }
    let urls = [broker.discovery_url(), broker.api_url()];
    for round in 0..6 {
        let ca = if round < 3 { old_ca } else { &new_ca };
        let before = answered.load(Ordering::Relaxed);
        for (secret, url) in secrets.iter().zip(&urls) {
            let certified = ca.serving(&format!("{secret}-{round}"), &[])?;
            stage
                .put(secret, TLS, &certified.cert_pem, &certified.key_pem)
                .await?;
            until("the new certificate is served", SOON, || {
                serves(url, ca, &certified)
            })
            .await?;
        }
        until("the load goes on", SOON, || async {
            Ok(answered.load(Ordering::Relaxed) > before + 8)
        })
        .await?;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(load) = loads.join_next().await {
        load??;
    }
    for listener in ["discovery", "api"] {
        assert!((reloads(&broker, listener, "success").await? - 6.0).abs() < 0.5);
        assert!(reloads(&broker, listener, "failure").await? < 0.5);
    }
    Ok(())
}

pub(super) async fn a_bad_secret(stage: Arc<Stage>) -> TestResult {
    let secrets = ["spoilt-discovery", "spoilt-api"];
    stage.allow_watching(secrets).await?;
    let broker = stage.start_with_secrets("spoilt", secrets).await?;
    let ca = stage.ground().ca();
    let expiry = "keyferry_serving_certificate_not_after_timestamp_seconds{listener=\"api\"}";
    let (served, other) = (
        ca.serving("spoilt-served", &[])?,
        ca.serving("spoilt-other", &[])?,
    );
    let [_, api] = secrets;
    stage
        .put(api, TLS, &served.cert_pem, &served.key_pem)
        .await?;
    let url = broker.api_url();
    until("the certificate is served", SOON, || {
        serves(&url, ca, &served)
    })
    .await?;
    let not_after = broker.metric(expiry).await?;
    assert!(not_after > 0.0);

    stage
        .put(api, TLS, &served.cert_pem, &other.key_pem)
        .await?;
    until("the bad certificate is counted", SOON, || async {
        Ok(reloads(&broker, "api", "failure").await? > 0.5)
    })
    .await?;
    assert!(serves(&url, ca, &served).await?, "the old one stays");
    assert!((broker.metric(expiry).await? - not_after).abs() < 0.5);
    let events = "/apis/events.k8s.io/v1/namespaces/keyferry-system/events";
    until("an Event names the Secret and the fault", SOON, || async {
        let list = stage.hub().admin().get(events).await?;
        let found = list["items"].as_array().into_iter().flatten();
        let mut found = found.filter(|event| event["regarding"]["name"] == api);
        Ok(found.any(|event: &Value| {
            event["reason"] == "ServingCertificateInvalid"
                && event["type"] == "Warning"
                && event["regarding"]["kind"] == "Secret"
                && event["note"].as_str().is_some_and(|note| {
                    note.contains("tls.key: it is not the key of the certificate; fix: ")
                })
        }))
    })
    .await?;

    let secret = format!("/api/v1/namespaces/keyferry-system/secrets/{api}");
    stage.hub().admin().delete(&secret).await?;
    until("the missing Secret is counted", SOON, || async {
        Ok(reloads(&broker, "api", "failure").await? > 1.5)
    })
    .await?;
    assert!(serves(&url, ca, &served).await?, "the old one stays");
    stage.put(api, TLS, &other.cert_pem, &other.key_pem).await?;
    until("the next good certificate is served", SOON, || {
        serves(&url, ca, &other)
    })
    .await?;
    let log = broker.log()?;
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    Ok(())
}

/// The shipped Role of Keyferry lets it read Secrets of its namespace by name; without the further
/// right to watch, it reads them at intervals.
pub(super) async fn without_the_right_to_watch(stage: Arc<Stage>) -> TestResult {
    let secrets = ["unwatched-discovery", "unwatched-api"];
    let broker = stage.start_with_secrets("unwatched", secrets).await?;
    let ca = stage.ground().ca();
    let next = ca.serving("unwatched-next", &[])?;
    let url = broker.api_url();
    let [_, api] = secrets;
    stage.put(api, TLS, &next.cert_pem, &next.key_pem).await?;
    until("the new certificate is served", SOON, || {
        serves(&url, ca, &next)
    })
    .await?;
    let log = broker.log()?;
    assert!(
        log.contains("watching Secret keyferry-system/unwatched-api") && log.contains("403"),
        "{log}"
    );
    Ok(())
}

/// `ca.crt` of the discovery listener's Secret is published for targets to trust.
pub(super) async fn an_authority_of_another_certificate(stage: Arc<Stage>) -> TestResult {
    let secrets = ["authority-discovery", "authority-api"];
    let [discovery, _] = secrets;
    let broker = stage.start_with_secrets("authority", secrets).await?;
    let other_ca = TestCa::create("another CA", &stage.folder("another-ca")?)?;
    let path = format!("/api/v1/namespaces/keyferry-system/secrets/{discovery}");
    let with_authority = async |pem: &str| {
        let change = json!({ "stringData": { "ca.crt": pem } });
        stage.hub().admin().patch(&path, &change).await
    };
    with_authority(other_ca.cert_pem()).await?;
    let events = "/apis/events.k8s.io/v1/namespaces/keyferry-system/events";
    until("an Event names the Secret and the fault", SOON, || async {
        let list = stage.hub().admin().get(events).await?;
        let found = list["items"].as_array().into_iter().flatten();
        let mut found = found.filter(|event| event["regarding"]["name"] == discovery);
        Ok(found.any(|event: &Value| {
            event["reason"] == "DiscoveryAuthorityMismatch"
                && event["note"].as_str().is_some_and(|note| {
                    note.contains("does not verify it") && note.contains("fix: ")
                })
        }))
    })
    .await?;
    assert!(
        reloads(&broker, "discovery", "failure").await? < 0.5,
        "the certificate is good"
    );

    let check = async || -> Result<String, TestError> {
        let (config, kubeconfig) = (
            broker.config().display().to_string(),
            broker.kubeconfig().path().display().to_string(),
        );
        let args = [
            ["serve", "--check"],
            ["--config", config.as_str()],
            ["--kubeconfig", kubeconfig.as_str()],
            ["--discovery-tls-secret", discovery],
        ];
        let output = stage
            .ground()
            .binary()
            .run(args.as_flattened(), &[])
            .await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        Ok(said)
    };
    let said = check().await?;
    assert!(
        said.contains("warning: DiscoveryAuthorityMismatch: Secret keyferry-system/"),
        "{said}"
    );
    let both = format!("{}{}", other_ca.cert_pem(), stage.ground().ca().cert_pem());
    with_authority(&both).await?;
    let said = check().await?;
    assert!(!said.contains("DiscoveryAuthorityMismatch"), "{said}");
    Ok(())
}

/// Without a Secret, the Event is about the Pod.
pub(super) async fn a_bad_file(stage: Arc<Stage>) -> TestResult {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "keyferry-0" },
        "spec": {
            "serviceAccountName": "keyferry", "automountServiceAccountToken": false,
            "containers": [{ "name": "keyferry", "image": "keyferry:0.1.0" }],
        },
    });
    // The installation creates the Pod's ServiceAccount.
    let first = BrokerSpec::of_hub("with-files", stage.hub());
    let broker = stage
        .ground()
        .start_broker(stage.hub(), first.clone())
        .await?;
    broker.into_process().stop().await?;
    let pods = "/api/v1/namespaces/keyferry-system/pods";
    let made = stage.hub().admin().create(pods, &pod).await?;
    let uid = made["metadata"]["uid"].as_str().ok_or("no UID")?;
    let spec = first.with_args(
        [
            ["--pod-namespace", "keyferry-system"],
            ["--pod-name", "keyferry-0"],
            ["--pod-uid", uid],
        ]
        .as_flattened(),
    );
    let broker = stage.ground().start_installed(stage.hub(), spec).await?;
    let (certificate, _) = broker.certificate();
    let good = std::fs::read(certificate)?;
    std::fs::write(certificate, "no certificate\n")?;
    broker.process().hang_up().await?;
    until("kubectl shows the Event beside the Pod", SOON, || async {
        let said = stage
            .hub()
            .kubectl(&["events", "-n", "keyferry-system", "--for", "pod/keyferry-0"])
            .await?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        Ok(said.contains("ServingCertificateInvalid") && said.contains("fix: "))
    })
    .await?;
    std::fs::write(certificate, good)?;
    Ok(())
}
