//! A locked-down Flux: every Kustomization impersonates a ServiceAccount of the target, also one that
//! names none. The flags and the RBAC are those of `examples/impersonation`.

use std::path::Path;
use std::sync::Arc;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::flux::{FluxSpec, GitSource, until_ready, until_said};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::until_gone;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::stage::{Stage, access_to, config_map_path, declare, user, who_applied};

const TENANT: &str = "tenant-a";
/// The ServiceAccount of the example, on the hub and at the target.
const DEPLOYER: &str = "deployer";
const SHARD: &str = "locked-down";

pub(crate) async fn acts_as_the_targets_service_account(stage: Arc<Stage>) -> TestResult {
    let (hub, name) = (&stage.hub, "locked-down");
    let target = stage
        .target_without_rights("target-locked", &[TENANT])
        .await?;
    let rbac = shipped("examples/impersonation/constrained.yaml");
    apply_manifests(&target, &[&rbac]).await?;
    let refused = format!("User \"{}\" cannot", user(TENANT));
    declare(hub, &target, &target.url(), &[(TENANT, "KubeConfigSecret")]).await?;
    access_to("target-locked", hub, TENANT, name, "KubeConfigSecret").await?;
    // Flux looks for it on the hub before it prunes.
    hub.create_service_account(TENANT, DEPLOYER).await?;
    let (repository, _) = stage.repository_of(name).await?;
    let source = GitSource {
        namespace: TENANT,
        name,
        url: repository.url(),
    };
    source.apply(hub.admin()).await?;
    let _flux = stage
        .shard(
            SHARD,
            &FluxSpec {
                further: vec![flag_of_the_example()?],
                ..FluxSpec::default()
            },
        )
        .await?;

    // Without the flag, Flux is the hub user, who has no such right in the example.
    let open = kustomization(name, "not-locked-down", None);
    let open_path = path("not-locked-down");
    hub.admin().apply(&open_path, &open).await?;
    until_said(hub, &open_path, &refused).await?;
    assert!(!target.admin().exists(&config_map_path(name)).await?);
    hub.admin().delete(&open_path).await?;
    until_gone(hub.admin(), &open_path).await?;

    applies_as_the_deployer(&stage, &target, name).await?;

    // The same with the rights of a target of any release, in the place of the constrained ones.
    remove_rights(&target, &rbac).await?;
    let locked = kustomization(name, "without-rights", Some(SHARD));
    let locked_path = path("without-rights");
    hub.admin().apply(&locked_path, &locked).await?;
    // Flux cannot even list the API groups as the impersonated user.
    until_said(hub, &locked_path, "dry-run failed (Forbidden)").await?;
    assert!(!target.admin().exists(&config_map_path(name)).await?);
    hub.admin().delete(&locked_path).await?;
    until_gone(hub.admin(), &locked_path).await?;
    apply_manifests(&target, &[&shipped("examples/impersonation/legacy.yaml")]).await?;
    applies_as_the_deployer(&stage, &target, name).await
}

/// A locked-down Kustomization applies as the deployer, and prunes as it.
async fn applies_as_the_deployer(stage: &Stage, target: &ControlPlane, name: &str) -> TestResult {
    let hub = &stage.hub;
    let locked = kustomization(name, name, Some(SHARD));
    hub.admin().apply(&path(name), &locked).await?;
    until_ready(hub, &path(name)).await?;
    assert!(target.admin().exists(&config_map_path(name)).await?);
    let deployer = format!("system:serviceaccount:{TENANT}:{DEPLOYER}");
    let applied: Vec<String> = who_applied(target, name)?
        .into_iter()
        .filter(|one| one.contains(" as "))
        .collect();
    assert_eq!(applied, [format!("{} as {deployer}", user(TENANT))]);
    hub.admin().delete(&path(name)).await?;
    until_gone(hub.admin(), &path(name)).await?;
    assert!(
        !target.admin().exists(&config_map_path(name)).await?,
        "the target ends clean"
    );
    Ok(())
}

/// Deletes the roles and bindings of a file, and nothing else of it.
async fn remove_rights(target: &ControlPlane, file: &Path) -> TestResult {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file)?)?;
    let mut removed = 0;
    for object in &objects {
        let plural = match object["kind"].as_str() {
            Some("Role") => "roles",
            Some("RoleBinding") => "rolebindings",
            Some("ClusterRole") => "clusterroles",
            Some("ClusterRoleBinding") => "clusterrolebindings",
            _ => continue,
        };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let scope = match text("namespace") {
            "" => String::new(),
            namespace => format!("/namespaces/{namespace}"),
        };
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1{scope}/{plural}/{}",
            text("name")
        );
        target.admin().delete(&path).await?;
        removed += 1;
    }
    assert!(removed > 3, "{removed} roles and bindings");
    Ok(())
}

/// The flag that the example adds to the controllers.
fn flag_of_the_example() -> Result<String, TestError> {
    let text = std::fs::read_to_string(shipped("examples/impersonation/flux-lock-down.yaml"))?;
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("value: "))
        .ok_or("the example adds no flag")?;
    assert_eq!(value, format!("--default-service-account={DEPLOYER}"));
    Ok(value.to_owned())
}

fn path(name: &str) -> String {
    format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{TENANT}/kustomizations/{name}")
}

/// A Kustomization without `spec.serviceAccountName`.
fn kustomization(source: &str, name: &str, shard: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": name, "namespace": TENANT },
        "spec": {
            "interval": "5s", "retryInterval": "2s", "timeout": "20s", "prune": true,
            "path": "./apps", "sourceRef": { "kind": "GitRepository", "name": source },
            "kubeConfig": { "secretRef": { "name": source } },
        },
    });
    if let Some(shard) = shard {
        object["metadata"]["labels"] = json!({ "sharding.fluxcd.io/key": shard });
    }
    object
}
