//! Tests that one tenant's many accesses to a cluster leave room for those of other tenants.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::caller_token;
use keyferry_integration::world::on_hub::{RECONCILER, tenant_with_minter};
use serde_json::{Value, json};

use super::stage::{Reply, Stage, cluster_path, target_path};

const CLUSTER: &str = "shared";
const CROWD: &str = "crowd";
const NEIGHBOUR: &str = "neighbour";
/// How many accesses of one namespace to one target count.
const LIMIT: usize = 256;
const SURPLUS: usize = 4;

/// A tenant has more accesses to a cluster than count. The list of the cluster is whole, and another
/// tenant's new access is in it and gets its tokens.
pub(super) async fn one_tenants_accesses_leave_room_for_others(stage: Arc<Stage>) -> TestResult {
    for tenant in [CROWD, NEIGHBOUR] {
        tenant_with_minter(&stage.hub, tenant, &[RECONCILER]).await?;
    }
    put_shared_target(&stage).await?;
    let name = |index: usize| format!("crowd-{index:03}");
    let create = async |index: usize| put_access(&stage, CROWD, &name(index)).await;
    stream::iter(0..LIMIT + SURPLUS)
        .map(create)
        .buffer_unordered(8)
        .try_collect::<()>()
        .await?;
    let names: Vec<String> = (0..LIMIT + SURPLUS).map(name).collect();
    put_access(&stage, NEIGHBOUR, "apps").await?;
    let path = cluster_path(CLUSTER, "accesses");
    let is_whole = |reply: &Reply| {
        reply.status == 200
            && listed(reply, CROWD).len() == LIMIT
            && listed(reply, NEIGHBOUR) == ["apps"]
    };
    let reply = stage.until(&path, "as many as count", is_whole).await?;
    let caller = caller_token(&stage.hub, NEIGHBOUR, RECONCILER).await?;
    let granted = stage.broker.exchange(&caller, "neighbour/apps").await?;
    assert_eq!(granted.status, 200, "{granted:?}");

    // The others say why, and get no token.
    let counted = listed(&reply, CROWD);
    let surplus: Vec<&String> = names
        .iter()
        .filter(|name| !counted.contains(name))
        .collect();
    assert_eq!(surplus.len(), SURPLUS);
    let caller = caller_token(&stage.hub, CROWD, RECONCILER).await?;
    for name in &surplus {
        until_surplus(&stage, name).await?;
        let access = format!("{CROWD}/{name}");
        let refused = stage.broker.exchange(&caller, &access).await?;
        assert_eq!(refused.status, 400, "{name}");
    }
    let counting = counted.first().ok_or("nothing counts")?;
    let access = format!("{CROWD}/{counting}");
    let granted = stage.broker.exchange(&caller, &access).await?;
    assert_eq!(granted.status, 200);

    // One of them counts as soon as an older one is gone.
    stage
        .hub
        .admin()
        .delete(&access_path(CROWD, counting))
        .await?;
    let has_next = |reply: &Reply| {
        let listed = listed(reply, CROWD);
        listed.len() == LIMIT && !listed.contains(counting)
    };
    stage.until(&path, "the next one", has_next).await?;
    Ok(())
}

async fn put_shared_target(stage: &Stage) -> TestResult {
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": CLUSTER },
        "spec": {
            "address": "https://shared.keyferry.test:6443",
            "audience": "https://shared.keyferry.test", "probe": "Off",
            "identity": {
                "clusterName": CLUSTER, "clusterDNS": "shared.fleet.test",
                "environment": "production",
            },
            "allow": [{
                "namespaces": [CROWD, NEIGHBOUR], "serviceAccounts": [RECONCILER],
                "deliveries": ["HTTP"],
            }],
        },
    });
    stage
        .hub
        .admin()
        .apply(&target_path(CLUSTER), &object)
        .await?;
    Ok(())
}

fn access_path(namespace: &str, name: &str) -> String {
    format!("/apis/keyferry.dev/v1alpha1/namespaces/{namespace}/targetaccesses/{name}")
}

async fn put_access(stage: &Stage, namespace: &str, name: &str) -> Result<(), TestError> {
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "targetClusterRef": { "name": CLUSTER }, "serviceAccountName": RECONCILER,
            "deliveries": [{ "name": "h", "type": "HTTP" }],
        },
    });
    let path = access_path(namespace, name);
    stage.hub.admin().apply(&path, &object).await?;
    Ok(())
}

/// The names of the accesses of a namespace in a list.
fn listed(reply: &Reply, namespace: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let inputs = list["inputs"].as_array().into_iter().flatten();
    inputs
        .filter(|input| input["namespace"] == namespace)
        .filter_map(|input| input["name"].as_str().map(str::to_owned))
        .collect()
}

async fn until_surplus(stage: &Stage, name: &str) -> TestResult {
    let path = access_path(CROWD, name);
    keyferry_integration::wait::until(
        "the access says that it does not count",
        std::time::Duration::from_secs(60),
        async || {
            let access = stage.hub.admin().get(&path).await?;
            Ok(access["status"]["conditions"]
                .as_array()
                .is_some_and(|all| {
                    all.iter()
                        .any(|one| one["type"] == "Ready" && one["reason"] == "TooManyAccesses")
                }))
        },
    )
    .await
}
