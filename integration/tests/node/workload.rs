//! A tenant's Pods, from the shipped examples as they are.

use std::time::Duration;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::shipped;
use serde_json::Value;

use super::setup::{Cluster, SYSTEM, TENANT};

const WITHIN: Duration = Duration::from_secs(60);

/// The agent as a native sidecar, and a command with the exec plugin's way to a token, for both
/// targets.
pub(crate) async fn the_examples_reach_both_targets(cluster: &Cluster) -> TestResult {
    for access in ["prod", "stage"] {
        for file in ["agent.yaml", "caller.yaml"] {
            let text = std::fs::read_to_string(shipped("examples/in-cluster").join(file))?;
            let text = text.replace("prod", access);
            let file = cluster.ground.folder().join(file);
            std::fs::write(&file, text)?;
            let file = file.display().to_string();
            cluster.kubectl(&["apply", "-f", &file]).await?;
        }
        cluster.until_ready(TENANT, "reader").await?;
        // It lists the target's namespaces, with the token that the sidecar wrote.
        until_logged(cluster, "reader", Some("reader"), "kube-system").await?;
        until_logged(cluster, "deployer", None, "kube-system").await?;
        let delete = ["delete", "pod", "-n", TENANT, "reader", "deployer"];
        let waiting = [&delete[..], &["--wait", "--timeout=50s"]].concat();
        cluster.kubectl(&waiting).await?;
    }
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
    let logged = until(&format!("{pod} prints {text}"), WITHIN, || async {
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
