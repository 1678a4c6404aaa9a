//! Both installations on a real apiserver with its controllers. There is no kubelet, so the test
//! proves that Pods are admitted, not that they run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::setup::{Hubs, NAMESPACE};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn pods_start_under_restricted_pod_security(hubs: Arc<Hubs>) -> TestResult {
    for plane in [&hubs.base, &hubs.chart] {
        let namespace = plane
            .admin()
            .get(&format!("/api/v1/namespaces/{NAMESPACE}"))
            .await?;
        assert_eq!(
            namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            "restricted",
            "{}",
            plane.name()
        );
        let pods = pods(plane, "app.kubernetes.io/name=keyferry", 2).await?;
        for pod in &pods {
            let mounted = pod["spec"]["volumes"].as_array().map_or(0, Vec::len);
            assert_eq!(
                mounted, 6,
                "the ServiceAccount admission adds no token of its own: {}",
                pod["spec"]["volumes"]
            );
        }
        refuses_a_plain_pod(plane).await?;
    }
    // The approver of client certificates is admitted in the same namespace.
    let files = ["approver", "deployment"].map(|name| {
        shipped(&format!(
            "examples/install/certificate-approver/{name}.yaml"
        ))
    });
    apply_manifests(&hubs.base, &[&files[0], &files[1]]).await?;
    let selector = "app.kubernetes.io/name=keyferry-certificate-approver";
    pods(&hubs.base, selector, 1).await?;
    Ok(())
}

/// Checks that the namespace does refuse Pods: the same Deployment without its security contexts
/// gets none.
async fn refuses_a_plain_pod(plane: &ControlPlane) -> TestResult {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let shipped = plane.admin().get(&format!("{path}/keyferry")).await?;
    let mut spec = shipped["spec"].clone();
    let labels = json!({ "app.kubernetes.io/name": "loose" });
    spec["selector"]["matchLabels"] = labels.clone();
    spec["template"]["metadata"]["labels"] = labels;
    spec["template"]["spec"]["securityContext"] = Value::Null;
    spec["template"]["spec"]["containers"][0]["securityContext"] = Value::Null;
    let loose = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "loose" }, "spec": spec });
    plane.admin().create(&path, &loose).await?;
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let status =
            plane.admin().get(&format!("{path}/loose")).await?["status"]["conditions"].to_string();
        if status.contains("ReplicaFailure") {
            assert!(status.contains("violates PodSecurity"), "{status}");
            break;
        }
        if Instant::now() > deadline {
            return Err(
                format!("a Pod without security contexts was not refused: {status}").into(),
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    plane.admin().delete(&format!("{path}/loose")).await?;
    Ok(())
}

async fn pods(
    plane: &ControlPlane,
    selector: &str,
    wanted: usize,
) -> Result<Vec<Value>, TestError> {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let list = plane
            .admin()
            .get(&format!(
                "/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
            ))
            .await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        if items.len() == wanted {
            return Ok(items);
        }
        if Instant::now() > deadline {
            let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/keyferry");
            let status = plane.admin().get(&path).await?["status"].to_string();
            return Err(format!(
                "{}: {} Pods in the place of {wanted}: {status}",
                plane.name(),
                items.len()
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
