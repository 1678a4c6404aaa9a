//! `configMapRef`: Flux mints by itself, with the settings of a ConfigMap.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::flux::{
    GitSource, KubeConfigRef, KustomizationSpec, until_ready, until_said,
};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::{
    RECONCILER, access_path, audience, has_condition, until_gone,
};
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::stage::{Stage, access, access_to, config_map_path, declare, user, who_applied};

pub(super) const TENANT: &str = "tenant-b";
const SOON: Duration = Duration::from_secs(30);

pub(crate) async fn leads_to_the_target_and_deletion_prunes(stage: Arc<Stage>) -> TestResult {
    let name = "by-config-map";
    let (hub, [other, target]) = (&stage.hub, &stage.targets);
    let (repository, commit) = stage.repository_of(name).await?;
    access(hub, TENANT, name, "FluxConfigMap").await?;
    let spec = apply(hub, name, repository.url()).await?;
    let object = until_ready(hub, &spec.path()).await?;
    assert!(
        object["status"]["lastAppliedRevision"]
            .as_str()
            .is_some_and(|revision| revision.contains(&commit)),
        "{object}"
    );
    assert_eq!(
        target.admin().get(&config_map_path(name)).await?["data"]["text"],
        "first"
    );
    assert_eq!(
        who_applied(target, name)?,
        [user(TENANT)],
        "the target knows who came"
    );
    assert!(
        !other.admin().exists(&config_map_path(name)).await?,
        "nothing is at the other target"
    );

    hub.admin().delete(&spec.path()).await?;
    until_gone(hub.admin(), &spec.path()).await?;
    assert!(
        !target.admin().exists(&config_map_path(name)).await?,
        "the target ends clean"
    );
    Ok(())
}

/// The platform deletes the TargetCluster before the tenant has deleted its Kustomization.
pub(crate) async fn of_a_deleted_target_still_prunes(stage: Arc<Stage>) -> TestResult {
    let (name, target_name) = ("left-behind", "target-left");
    let hub = &stage.hub;
    let target = stage.target_of(target_name, &[TENANT]).await?;
    declare(hub, &target, &target.url(), &[(TENANT, "FluxConfigMap")]).await?;
    let (repository, _) = stage.repository_of(name).await?;
    access_to(target_name, hub, TENANT, name, "FluxConfigMap").await?;
    let spec = apply(hub, name, repository.url()).await?;
    until_ready(hub, &spec.path()).await?;
    let target_path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{target_name}");
    let kept = |object: &Value| object["metadata"]["finalizers"] == json!(["keyferry.dev/drain"]);
    until_object(hub.admin(), &target_path, "with a finalizer", SOON, kept).await?;

    hub.admin().delete(&target_path).await?;
    let drains = |object: &Value| has_condition(object, "Ready", "False", "TargetDraining");
    let draining = until_object(hub.admin(), &target_path, "draining", SOON, drains).await?;
    assert!(
        draining.to_string().contains(&format!("{TENANT}/{name}")),
        "it names who is in the way: {draining}"
    );
    until_object(
        hub.admin(),
        &access_path(TENANT, name),
        "draining",
        SOON,
        drains,
    )
    .await?;
    assert!(
        hub.admin()
            .exists(&format!("/api/v1/namespaces/{TENANT}/configmaps/{name}"))
            .await?,
        "Flux has what it needs"
    );

    hub.admin().delete(&spec.path()).await?;
    until_gone(hub.admin(), &spec.path()).await?;
    assert!(
        !target.admin().exists(&config_map_path(name)).await?,
        "the target ends clean"
    );
    hub.admin().delete(&access_path(TENANT, name)).await?;
    until_gone(hub.admin(), &access_path(TENANT, name)).await?;
    until_gone(hub.admin(), &target_path).await
}

/// The hub mints no such token for Flux. Without the hub's policy, the target would still refuse
/// access.
pub(crate) async fn with_anothers_address_gets_nowhere(stage: Arc<Stage>) -> TestResult {
    let name = "anothers";
    let (hub, [anothers, _]) = (&stage.hub, &stage.targets);
    // The hub knows this audience as Keyferry's.
    access(hub, "tenant-a", "of-tenant-a", "KubeConfigSecret").await?;
    let (repository, _) = stage.repository_of(name).await?;
    put_config_map(hub, name, anothers).await?;
    let spec = apply(hub, name, repository.url()).await?;
    until_said(
        hub,
        &spec.path(),
        "no TargetAccess gives tenant-b/reconciler the audience",
    )
    .await?;

    let binding =
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keyferry-pairing";
    hub.admin().delete(binding).await?;
    let refused = until_said(hub, &spec.path(), "Unauthorized").await;
    apply_manifests(
        hub,
        &[&shipped("examples/admission-policies/pairing-binding.yaml")],
    )
    .await?;
    refused?;
    assert!(!anothers.admin().exists(&config_map_path(name)).await?);
    assert!(who_applied(anothers, name)?.is_empty());
    Ok(())
}

/// Writes the ConfigMap of a `generic` provider for the tenant's ServiceAccount, as a tenant may
/// write it.
async fn put_config_map(
    hub: &ControlPlane,
    name: &str,
    target: &ControlPlane,
) -> Result<(), TestError> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "reconcile.fluxcd.io/watch": "Enabled" } },
        "data": {
            "provider": "generic",
            "address": target.url(),
            "ca.crt": target.ca_pem(),
            "audiences": audience(target.name()),
            "serviceAccountName": RECONCILER,
        },
    });
    hub.admin()
        .apply(
            &format!("/api/v1/namespaces/{TENANT}/configmaps/{name}"),
            &object,
        )
        .await?;
    Ok(())
}

pub(super) async fn apply<'a>(
    hub: &ControlPlane,
    name: &'a str,
    url: &str,
) -> Result<KustomizationSpec<'a>, TestError> {
    GitSource {
        namespace: TENANT,
        name,
        url,
    }
    .apply(hub.admin())
    .await?;
    let kube_config = KubeConfigRef::ConfigMap(name);
    let spec = KustomizationSpec {
        namespace: TENANT,
        name,
        source: name,
        path: "./apps",
        kube_config,
        impersonating: None,
    };
    spec.apply(hub.admin()).await?;
    Ok(spec)
}
