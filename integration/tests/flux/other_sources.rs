//! Which sources cannot be read from a Pod through the hub's apiserver, in source-controller's own
//! words: docs/guides/flux.md quotes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::flux::condition;
use keyferry_integration::pod_host::PodHost;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::{Value, json};

use super::stage::Stage;

const NAMESPACE: &str = "other-sources";
const SECRET: &str = "client-tls";
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const GROUP: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/other-sources";

pub(crate) async fn cannot_name_the_proxys_path(stage: Arc<Stage>) -> TestResult {
    let hub = &stage.hub;
    hub.create_namespace_with_service_account(NAMESPACE, "default")
        .await?;
    let host = PodHost::start(stage.folder(), "/v2/", "{}").await?;
    host.create_pod(hub, NAMESPACE, "registry-0").await?;
    // An admin's certificate: what fails is not for lack of rights.
    let pair = hub.ca().client("sources-admin", "system:masters")?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": SECRET },
        "stringData": {
            "tls.crt": pair.cert_pem, "tls.key": pair.key_pem, "ca.crt": hub.ca_pem(),
        },
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
    hub.admin().apply(&path, &secret).await?;
    let keys = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys" },
        "stringData": { "accesskey": "a", "secretkey": "b" },
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/keys");
    hub.admin().apply(&path, &keys).await?;

    let apiserver = format!("127.0.0.1:{}", hub.port());
    let pods = format!("api/v1/namespaces/{NAMESPACE}/pods/registry-0");
    let with_port = format!("{pods}:{}/proxy", host.port());
    let without_port = format!("{pods}/proxy");
    let oci = |name: &str, path: &str| {
        let url = format!("oci://{apiserver}/{path}/app");
        let certificate = json!({ "name": SECRET });
        let spec = json!({ "interval": "5m", "url": url, "certSecretRef": certificate });
        source("OCIRepository", name, &spec)
    };
    let helm = json!({
        "interval": "5m", "type": "oci", "url": format!("oci://{apiserver}/{with_port}"),
        "certSecretRef": { "name": SECRET },
    });
    let bucket = json!({
        "interval": "5m", "provider": "generic", "bucketName": "app",
        "endpoint": format!("{apiserver}/{with_port}"),
        "certSecretRef": { "name": SECRET }, "secretRef": { "name": "keys" },
    });
    let cases = [
        (
            "ocirepositories",
            oci("with-port", &with_port),
            "repository can only contain the characters",
        ),
        // The name becomes a part of a path that begins with /v2/, which the apiserver does not
        // serve.
        (
            "ocirepositories",
            oci("without-port", &without_port),
            &format!("https://{apiserver}/v2/"),
        ),
        (
            "buckets",
            source("Bucket", "bucket", &bucket),
            "Endpoint url cannot have fully qualified paths",
        ),
    ];
    for (resource, object, _) in &cases {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{GROUP}/{resource}/{name}");
        hub.admin().apply(&path, object).await?;
    }
    for (resource, object, wanted) in &cases {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let said = until_failed(&stage, &format!("{GROUP}/{resource}/{name}")).await?;
        eprintln!("{resource}/{name}: {said}");
        assert!(said.contains(*wanted), "{resource}/{name}: {said}");
    }
    // A HelmRepository of this type is not reconciled; its charts are pulled as an OCIRepository's.
    let object = source("HelmRepository", "helm", &helm);
    let path = format!("{GROUP}/helmrepositories/helm");
    hub.admin().apply(&path, &object).await?;
    let chart = json!({
        "interval": "5m", "chart": "web", "version": "1.0.0",
        "sourceRef": { "kind": "HelmRepository", "name": "helm" },
    });
    let path = format!("{GROUP}/helmcharts/chart");
    let chart = source("HelmChart", "chart", &chart);
    hub.admin().apply(&path, &chart).await?;
    let said = until_failed(&stage, &path).await?;
    eprintln!("helmcharts/chart: {said}");
    assert!(said.contains("invalid reference"), "{said}");
    assert_eq!(host.reads(), 0, "the server in the Pod was not reached");
    Ok(())
}

fn source(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    })
}

/// Waits until source-controller reports that the source is not ready, and returns its message.
async fn until_failed(stage: &Stage, path: &str) -> Result<String, TestError> {
    let limit = Instant::now() + WAIT_LIMIT;
    loop {
        let object = stage.hub.admin().get(path).await?;
        let ready = condition(&object, "Ready");
        if ready["status"] == "True" {
            return Err(format!("{path} is ready: {ready}").into());
        }
        if ready["status"] == "False" {
            return Ok(ready["message"].as_str().unwrap_or_default().to_owned());
        }
        if Instant::now() > limit {
            return Err(format!("nothing is said of {path}: {object}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
