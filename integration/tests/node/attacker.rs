//! A Pod of another tenant on the same node: tests what it can reach.

use std::time::Duration;

use keyferry_integration::node::POD_TOOL;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::CALLER_AUDIENCE;
use keyferry_integration::world::on_hub::audience;
use serde_json::{Value, json};

use super::network_policy;
use super::setup::Cluster;

pub(crate) const NAMESPACE: &str = "tenant-b";
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "/var/run/secrets/keyferry.dev/token";

pub(crate) async fn another_tenant_reaches_what_the_docs_say(
    cluster: &Cluster,
    keyferry: &[Value],
) -> TestResult {
    let hub = &cluster.hub;
    hub.create_namespace_with_service_account(NAMESPACE, "attacker")
        .await?;
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    hub.admin().patch(&namespace, &restricted).await?;
    cluster.run(&attacker("attacker")).await?;
    let pod = keyferry.first().ok_or("Keyferry has no Pod")?;
    let address = pod["status"]["podIP"]
        .as_str()
        .ok_or("a Pod without an address")?;

    // Any Pod gets the published documents. The token API refuses it without a credential.
    let documents = ["/.well-known/openid-configuration", "/openid/v1/jwks"];
    for document in documents {
        let url = format!("https://keyferry-discovery.keyferry-system.svc{document}");
        assert_eq!(status(cluster, &[&url]).await?, "200", "{url}");
    }
    let api = "https://keyferry.keyferry-system.svc";
    for path in [
        "/v1/namespaces/tenant-a/accesses/prod/kubeconfig",
        "/v1/token",
    ] {
        let refused = status(cluster, &[&format!("{api}{path}")]).await?;
        assert!(
            ["401", "405"].contains(&refused.as_str()),
            "{path}: {refused}"
        );
    }
    network_policy::it_holds(cluster, address).await?;

    // Its own token is valid, and the other tenant's access gets the same answer as an absent one.
    let mut answers = Vec::new();
    for access in ["prod", "missing"] {
        let url = format!("{api}/v1/namespaces/tenant-a/accesses/{access}/kubeconfig");
        answers.push(get(cluster, &[&url, "", TOKEN]).await?);
    }
    assert!(answers[0].starts_with("403"), "{answers:?}");
    assert_eq!(without_ids(&answers[0]), without_ids(&answers[1]));

    // Neither the kubelet nor the hub's apiserver accepts it: it is for Keyferry alone.
    let kubelet = format!("https://{}:10250/pods", cluster.node.address());
    assert_eq!(status(cluster, &[&kubelet, "", TOKEN]).await?, "401");
    let apiserver = "https://kubernetes.default.svc/api/v1/secrets";
    assert_eq!(status(cluster, &[apiserver, "", TOKEN]).await?, "401");
    let read_only = format!("{}:10255", cluster.node.address());
    let dialled = dial(cluster, &read_only).await?;
    assert!(dialled.contains("refused"), "{dialled}");

    // It sees no process but its own, and no file of another Pod.
    let files = cluster
        .exec(NAMESPACE, "attacker", &["pod-tool", "ls", "/proc"])
        .await?;
    let processes: Vec<&str> = files
        .lines()
        .filter_map(|path| path.strip_prefix("/proc/"))
        .filter(|name| name.parse::<u32>().is_ok())
        .collect();
    assert!(processes.len() <= 2, "{processes:?}");
    let files = cluster
        .exec(NAMESPACE, "attacker", &["pod-tool", "ls", "/var", "/run"])
        .await;
    let files = files.unwrap_or_default();
    assert!(
        !files.contains("kubelet") && !files.contains("containerd"),
        "{files}"
    );

    // A Pod that could reach the node is refused before it runs.
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    for (name, field, value) in [
        ("host-network", "hostNetwork", json!(true)),
        ("host-pid", "hostPID", json!(true)),
        (
            "host-path",
            "volumes",
            json!([{ "name": "token", "hostPath": { "path": "/" } }]),
        ),
    ] {
        let mut pod = attacker(name);
        pod["spec"][field] = value;
        let refused = hub.admin().create(&pods, &pod).await;
        let refused = refused
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            refused.contains("violates PodSecurity"),
            "{name}: {refused}"
        );
    }
    // Nor does its own ServiceAccount get a token for a target: the kubelet's request is refused,
    // and the Pod does not start.
    let mut pod = attacker("another-audience");
    pod["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["audience"] =
        audience(cluster.targets[0].name()).into();
    hub.admin().create(&pods, &pod).await?;
    until("the kubelet is refused", WAIT_LIMIT, || async {
        let events = format!("/api/v1/namespaces/{NAMESPACE}/events");
        let events = hub.admin().get(&events).await?;
        let mut events = events["items"].as_array().into_iter().flatten();
        Ok(events.any(|event| {
            event["involvedObject"]["name"] == "another-audience"
                && event["reason"] == "FailedMount"
                && event["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("keyferry-pairing"))
        }))
    })
    .await?;
    let delete = ["delete", "namespace", NAMESPACE, "--timeout=50s"];
    cluster.kubectl(&delete).await?;
    Ok(())
}

/// What became of a connection of the attacker's Pod to an address.
pub(crate) async fn dial(cluster: &Cluster, address: &str) -> Result<String, TestError> {
    let command = ["pod-tool", "dial", address];
    cluster.exec(NAMESPACE, "attacker", &command).await
}

/// The status of an answer that the attacker gets.
async fn status(cluster: &Cluster, get_arguments: &[&str]) -> Result<String, TestError> {
    let answer = get(cluster, get_arguments).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

async fn get(cluster: &Cluster, arguments: &[&str]) -> Result<String, TestError> {
    let mut command = vec!["pod-tool", "get"];
    command.extend(arguments);
    cluster.exec(NAMESPACE, "attacker", &command).await
}

/// An answer without the request's own ID.
fn without_ids(answer: &str) -> String {
    let (status, body) = answer.split_once('\n').unwrap_or_default();
    let mut body: Value = serde_json::from_str(body).unwrap_or_default();
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|name, _| !name.contains("request"));
    }
    format!("{status} {body}")
}

fn attacker(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "serviceAccountName": "attacker",
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "attacker", "image": POD_TOOL, "imagePullPolicy": "Never",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
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
