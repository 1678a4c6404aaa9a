//! One Pod, and what its kubelet gives it.

use std::sync::Arc;

use keyferry_integration::node::{NODE, POD_TOOL};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{CALLER_AUDIENCE, claims};
use serde_json::{Value, json};

use super::setup::{Cluster, settings};

const NAMESPACE: &str = "one-pod";
const TOKEN: &str = "/var/run/secrets/keyferry.dev/token";

pub(crate) async fn a_pod_gets_a_token_from_the_kubelet(cluster: Arc<Cluster>) -> TestResult {
    let hub = &cluster.hub;
    let account = hub
        .create_namespace_with_service_account(NAMESPACE, "reconciler")
        .await?;
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    hub.admin().patch(&path, &restricted).await?;
    let pod = cluster.run(&caller()).await?;

    // The token is bound to the Pod and to its node, for Keyferry's audience alone.
    let token = cluster
        .exec(NAMESPACE, "caller", &["pod-tool", "cat", TOKEN])
        .await?;
    let claims = claims(token.trim())?;
    assert_eq!(claims["aud"], json!([CALLER_AUDIENCE]));
    let bound = &claims["kubernetes.io"];
    assert_eq!(bound["pod"]["uid"], pod["metadata"]["uid"]);
    assert_eq!(bound["node"]["name"], NODE);
    assert_eq!(bound["serviceaccount"]["uid"], account);

    // The restrictions that its namespace demands are effective, not only declared.
    let status = cluster
        .exec(
            NAMESPACE,
            "caller",
            &["pod-tool", "cat", "/proc/self/status"],
        )
        .await?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    assert_eq!(field("Seccomp:"), "2", "a filter is loaded: {status}");
    assert_eq!(field("NoNewPrivs:"), "1", "{status}");
    assert_eq!(field("CapEff:"), "0000000000000000", "{status}");
    assert!(field("Uid:").starts_with("65534\t"), "{status}");

    // It reaches the apiserver by the Service's name, and no address that is not connected.
    let get = ["pod-tool", "get", "https://kubernetes.default.svc/version"];
    let answer = cluster.exec(NAMESPACE, "caller", &get).await?;
    assert!(answer.starts_with("200\n"), "{answer}");
    let dial = ["pod-tool", "dial", "192.0.2.1:443"];
    let answer = cluster.exec(NAMESPACE, "caller", &dial).await?;
    assert!(answer.contains("refused"), "{answer}");
    Ok(())
}

pub(crate) async fn the_machine_keeps_its_settings(cluster: Arc<Cluster>) -> TestResult {
    assert_eq!(settings(), cluster.settings);
    Ok(())
}

fn caller() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "caller", "namespace": NAMESPACE },
        "spec": {
            "serviceAccountName": "reconciler",
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "caller", "image": POD_TOOL, "imagePullPolicy": "Never",
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "token", "mountPath": "/var/run/secrets/keyferry.dev", "readOnly": true }],
            }],
            "volumes": [{
                "name": "token",
                "projected": { "sources": [{
                    "serviceAccountToken": { "audience": CALLER_AUDIENCE, "expirationSeconds": 600, "path": "token" },
                }] },
            }],
        },
    })
}
