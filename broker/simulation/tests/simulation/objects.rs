//! The hub's objects: two targets, two accesses with a delivery, and their ServiceAccounts.

use keyferry_issuer::testing::CONFIGURATION;
use serde_json::{Value, json};

use crate::world::World;

/// The ServiceAccounts, by namespace and name: those of the accesses first.
pub(crate) const ACCOUNTS: [(&str, &str); 4] = [
    ("tenant-a", "reconciler"),
    ("tenant-b", "reconciler"),
    ("tenant-a", "deployer"),
    ("keyferry-system", "keyferry-canary"),
];
/// The targets: one trusts the hub's issuer, one has a managed issuer.
pub(crate) const TARGETS: [&str; 2] = ["prod", "edge"];
/// The accesses, one for each target.
pub(crate) const ACCESSES: [&str; 2] = ["tenant-a/apps", "tenant-b/apps"];

const GROUP: &str = "/apis/keyferry.dev/v1alpha1";

/// The path of a target.
pub(crate) fn target_path(target: usize) -> String {
    format!("{GROUP}/targetclusters/{}", TARGETS[target])
}

fn access_path(access: usize) -> String {
    let (namespace, name) = ACCESSES[access].split_once('/').unwrap();
    format!("{GROUP}/namespaces/{namespace}/targetaccesses/{name}")
}

/// The settings of a server that may have managed issuers.
pub(crate) fn configuration() -> String {
    CONFIGURATION.replace(
        "hubName: hub",
        "hubName: hub\nmanagedIssuers: {enabled: true}",
    )
}

/// The rules of a target that allows its tenant, or nobody.
fn allow_rules(target: usize, allowed: bool) -> Value {
    let (namespace, name) = ACCOUNTS[target];
    let rule = json!({
        "namespaces": [namespace], "serviceAccounts": [name],
        "deliveries": ["HTTP", "KubeConfigSecret"],
    });
    if allowed { json!([rule]) } else { json!([]) }
}

/// Creates everything.
pub(crate) fn create_all(world: &World) {
    for index in 0..TARGETS.len() {
        put_target(world, index);
        let (namespace, name) = ACCESSES[index].split_once('/').unwrap();
        let mut spec = json!({
            "targetClusterRef": { "name": TARGETS[index] },
            "serviceAccountName": ACCOUNTS[index].1,
            "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }, { "name": "h", "type": "HTTP" }],
            "probe": "Off",
        });
        if index == 0 {
            spec["callers"] = json!(["deployer"]);
        }
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "spec": spec,
            "metadata": {
                "name": name, "namespace": namespace, "generation": 1,
                "creationTimestamp": world.wall().to_string(),
            },
        });
        world.objects.put_foreign(&access_path(index), object);
    }
}

/// Creates a target.
fn put_target(world: &World, index: usize) {
    let name = TARGETS[index];
    let mut spec = json!({
        "address": format!("https://{name}.example.test"),
        "audience": format!("https://{name}.example.test"),
        "allow": allow_rules(index, true),
    });
    if index == 1 {
        spec["issuer"] = json!("Keyferry");
    }
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "spec": spec,
        "metadata": {
            "name": name, "generation": 1, "creationTimestamp": world.wall().to_string(),
        },
    });
    world.objects.put_foreign(&target_path(index), object);
}

/// Changes whether a target allows its tenant.
pub(crate) fn set_allowed(world: &World, target: usize, allowed: bool) {
    world.objects.edit(&target_path(target), |object| {
        object["spec"]["allow"] = allow_rules(target, allowed);
        let generation = object["metadata"]["generation"].as_i64().unwrap();
        object["metadata"]["generation"] = json!(generation + 1);
    });
}

/// Whether a target was deleted and drains.
pub(crate) fn is_draining(world: &World, target: usize) -> bool {
    let object = world.objects.object(&target_path(target));
    object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
}

/// Deletes a target, which Keyferry's finalizer keeps until it has drained.
pub(crate) fn delete_target(world: &World, target: usize) {
    let now = world.wall().to_string();
    world.objects.edit(&target_path(target), |object| {
        object["metadata"]["deletionTimestamp"] = json!(now);
        object["metadata"]["finalizers"] = json!(["keyferry.dev/drain"]);
    });
}
