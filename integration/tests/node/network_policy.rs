//! The shipped NetworkPolicy, enforced by kube-router at the addresses of Pods.

use std::net::Ipv4Addr;
use std::time::Duration;

use keyferry_integration::node::{External, POD_TOOL};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use serde_json::{Value, json};

use super::attacker::dial;
use super::setup::{Cluster, SYSTEM};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Where clouds have their metadata services.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// A Pod under Keyferry's NetworkPolicy whose program can dial.
const PROBE: &str = "under-the-policy";

/// Tests it from the attacker's Pod, and from one that has Keyferry's label. Each refused connection
/// is made without the policy.
pub(crate) async fn it_holds(cluster: &Cluster, replica: &str) -> TestResult {
    cluster
        .node
        .connect(&External {
            name: "metadata.keyferry.test".to_owned(),
            address: METADATA,
            port: 80,
            served_at: cluster.targets[0].port(),
        })
        .await?;
    cluster.run(&probe()).await?;
    let [documents, api, metrics] = [8443, 9443, 8080].map(|port| format!("{replica}:{port}"));
    for open in [&documents, &api] {
        let dialled = dial(cluster, open).await?;
        assert!(dialled.contains("connected"), "{dialled}");
    }
    let target = format!("{}.keyferry.test:6443", cluster.targets[0].name());
    assert!(leaves(cluster, &target).await?, "{target}");
    let metadata = format!("{METADATA}:80");
    let closed = || async {
        let enters = dial(cluster, &metrics).await?.contains("connected");
        Ok::<_, TestError>([enters, leaves(cluster, &metadata).await?])
    };
    until("the policy holds", WAIT_LIMIT, || async {
        Ok(closed().await? == [false, false])
    })
    .await?;

    let path = format!("/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies/keyferry");
    let admin = cluster.hub.admin();
    let mut policy = admin.get(&path).await?;
    admin.delete(&path).await?;
    until("both are open without the policy", WAIT_LIMIT, || async {
        Ok(closed().await? == [true, true])
    })
    .await?;
    if let Some(metadata) = policy["metadata"].as_object_mut() {
        let own = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|field, _| own.contains(&field.as_str()));
    }
    admin.apply(&path, &policy).await?;
    until("the policy holds again", WAIT_LIMIT, || async {
        Ok(closed().await? == [false, false])
    })
    .await?;
    let delete = ["delete", "pod", "-n", SYSTEM, PROBE, "--timeout=50s"];
    cluster.kubectl(&delete).await?;
    Ok(())
}

/// Whether a Pod under the policy can connect to an address.
async fn leaves(cluster: &Cluster, address: &str) -> Result<bool, TestError> {
    let command = ["pod-tool", "dial", address];
    let dialled = cluster.exec(SYSTEM, PROBE, &command).await?;
    Ok(dialled.contains("connected"))
}

fn probe() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": PROBE, "namespace": SYSTEM, "labels": { "app.kubernetes.io/name": "keyferry" },
        },
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "probe", "image": POD_TOOL, "imagePullPolicy": "Never",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}
