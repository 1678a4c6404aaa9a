//! A tenant's Pods, from the shipped examples as they are.

use std::time::Duration;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::setup::{ACCOUNT, Cluster, SYSTEM, TENANT};
use crate::flux::stage::{config_map, config_map_path, may_apply};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The agent as a native sidecar, and a command with the exec plugin's way to a token, for both
/// targets: first as the examples are, and then with a command that applies a ConfigMap.
pub(crate) async fn the_examples_apply_to_both_targets(cluster: &Cluster) -> TestResult {
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "app", "namespace": TENANT },
        "data": { "app.yaml": config_map("from-a-pod", "applied") },
    });
    let path = format!("/api/v1/namespaces/{TENANT}/configmaps/app");
    cluster.hub.admin().apply(&path, &config_map).await?;
    for (target, access) in cluster.targets.iter().zip(["prod", "stage"]) {
        for file in ["agent.yaml", "caller.yaml"] {
            let pod = example(file, access)?;
            create(cluster, &pod).await?;
        }
        cluster.until_ready(TENANT, "reader").await?;
        // It lists the target's namespaces, with the token that the sidecar wrote.
        until_logged(cluster, "reader", Some("reader"), "kube-system").await?;
        until_logged(cluster, "deployer", None, "kube-system").await?;
        delete(cluster, &["reader", "deployer"]).await?;

        may_apply(target, &[TENANT]).await?;
        create(cluster, &applying(access)?).await?;
        until_logged(cluster, "deployer", None, "configmap/from-a-pod created").await?;
        let written = target.admin().get(&config_map_path("from-a-pod")).await?;
        assert_eq!(written["data"]["text"], "applied");
        let by = format!("hub:system:serviceaccount:{TENANT}:{ACCOUNT}");
        let creator = target
            .audit_events()?
            .into_iter()
            .find(|event| event["verb"] == "create" && event["objectRef"]["name"] == "from-a-pod");
        let creator = creator.ok_or("the target's audit log does not have it")?;
        assert_eq!(creator["user"]["username"], by);
        delete(cluster, &["deployer"]).await?;
        target
            .admin()
            .delete(&config_map_path("from-a-pod"))
            .await?;
    }
    cluster.hub.admin().delete(&path).await?;
    Ok(())
}

/// A Pod of `examples/in-cluster`, for this access.
fn example(file: &str, access: &str) -> Result<Value, TestError> {
    let text = std::fs::read_to_string(shipped("examples/in-cluster").join(file))?;
    Ok(serde_saphyr::from_str(&text.replace("prod", access))?)
}

/// The example of a caller, with a command that applies the file of a ConfigMap.
fn applying(access: &str) -> Result<Value, TestError> {
    let mut pod = example("caller.yaml", access)?;
    let container = &mut pod["spec"]["containers"][0];
    let args = container["args"].as_array_mut().ok_or("no arguments")?;
    let command = args.iter().position(|argument| argument == "kubectl");
    args.truncate(command.ok_or("no kubectl")?);
    args.extend(["kubectl", "apply", "-f", "/etc/app/app.yaml"].map(Value::from));
    let mounts = container["volumeMounts"]
        .as_array_mut()
        .ok_or("no mounts")?;
    mounts.push(json!({ "name": "app", "mountPath": "/etc/app", "readOnly": true }));
    let volumes = pod["spec"]["volumes"].as_array_mut().ok_or("no volumes")?;
    volumes.push(json!({ "name": "app", "configMap": { "name": "app" } }));
    Ok(pod)
}

async fn create(cluster: &Cluster, pod: &Value) -> TestResult {
    let path = format!("/api/v1/namespaces/{TENANT}/pods");
    cluster.hub.admin().create(&path, pod).await?;
    Ok(())
}

async fn delete(cluster: &Cluster, pods: &[&str]) -> TestResult {
    let command = ["delete", "pod", "-n", TENANT, "--wait", "--timeout=50s"];
    cluster.kubectl(&[&command[..], pods].concat()).await?;
    Ok(())
}

async fn until_logged(
    cluster: &Cluster,
    pod: &str,
    container: Option<&str>,
    text: &str,
) -> TestResult {
    let mut args = vec!["logs", "-n", TENANT, pod];
    args.extend(
        container
            .into_iter()
            .flat_map(|container| ["-c", container]),
    );
    let logged = until(&format!("{pod} prints {text}"), WAIT_LIMIT, || async {
        Ok(cluster
            .kubectl(&args)
            .await
            .is_ok_and(|log| log.contains(text)))
    })
    .await;
    if let Err(error) = logged {
        let log = cluster.kubectl(&args).await.unwrap_or_default();
        let state = cluster
            .kubectl(&["describe", "pod", "-n", TENANT, pod])
            .await?;
        return Err(format!("{error}: {log}\n{state}").into());
    }
    Ok(())
}

/// What the kubelet says of Keyferry's Pods.
pub(crate) async fn figures(cluster: &Cluster, pods: &[Value]) -> TestResult {
    let stats = cluster.node.stats().await?;
    for pod in stats["pods"].as_array().into_iter().flatten() {
        if pod["podRef"]["namespace"] == SYSTEM {
            let memory = &pod["containers"][0]["memory"];
            eprintln!("{}: memory {memory}", pod["podRef"]["name"]);
            let limit = 512 * 1024 * 1024;
            assert!(
                memory["workingSetBytes"]
                    .as_u64()
                    .is_some_and(|used| used < limit),
                "{memory}"
            );
        }
    }
    for pod in pods {
        eprintln!("{} ready in {}", pod["metadata"]["name"], start_time(pod)?);
    }
    let node = cluster.hub.admin().get("/api/v1/nodes/node-1").await?;
    for image in node["status"]["images"].as_array().into_iter().flatten() {
        eprintln!("image {} {}", image["names"], image["sizeBytes"]);
    }
    Ok(())
}

/// From the start of the container to the Pod's readiness, in whole seconds as the API has them.
fn start_time(pod: &Value) -> Result<String, TestError> {
    let started = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "Ready");
    Ok(format!(
        "{started} to {}",
        ready.ok_or("not ready")?["lastTransitionTime"]
    ))
}
