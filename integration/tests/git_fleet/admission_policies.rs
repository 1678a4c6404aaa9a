//! Objects that are refused for a tenant's namespace, from every writer: the admin makes every
//! attempt here.

use std::sync::Arc;

use keyferry_integration::flux::{
    GitSource, KubeConfigRef, KustomizationSpec, until_ready, until_said,
};
use keyferry_integration::runner::TestResult;
use serde_json::{Value, json};

use super::fleet::GitFleet;
use crate::shipped_fleet::{RefusedSpec, each_is_refused, refused};

const SOURCES: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/tenant-b";
const KUSTOMIZATIONS: &str =
    "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenant-b/kustomizations?dryRun=All";

pub(crate) async fn sources_of_tenants_are_their_own(fleet: Arc<GitFleet>) -> TestResult {
    let git = fleet.git.url();
    let repository = |url: String| {
        let spec = json!({ "interval": "1m", "url": url });
        json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "x" }, "spec": spec })
    };
    let path = format!("{SOURCES}/gitrepositories?dryRun=All");
    let own = repository(format!("{git}/fleet/tenant-b/more.git"));
    fleet.hub.admin().create(&path, &own).await?;
    let by_prefix = "the url of a tenant source is";
    for url in [
        format!("{git}/fleet/tenant-a/apps.git"),
        format!("{git}/fleet/tenant-b/../tenant-a/apps.git"),
        format!("{git}/fleet/tenant-b/%2e%2e/tenant-a/apps.git"),
        format!("{git}/fleet/tenant-b/..%2ftenant-a"),
        format!("{git}/fleet/tenant-b/"),
        format!("{git}/fleet/tenant-b/apps.git?x=/../../"),
        format!("{git}.evil.example/fleet/tenant-b/apps.git"),
        "https://evil.example/apps.git".to_owned(),
        format!("ssh://git@evil.example/{git}/fleet/tenant-b/apps.git"),
    ] {
        refused(
            fleet
                .hub
                .admin()
                .create(&path, &repository(url.clone()))
                .await,
            by_prefix,
            &url,
        )?;
    }
    let mut with_submodules = own.clone();
    with_submodules["spec"]["recurseSubmodules"] = true.into();
    refused(
        fleet.hub.admin().create(&path, &with_submodules).await,
        "submodules",
        "submodules",
    )?;
    let bucket = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "Bucket",
        "metadata": { "name": "x" },
        "spec": { "interval": "1m", "bucketName": "tenant-a", "endpoint": "evil.example" },
    });
    let answer = fleet
        .hub
        .admin()
        .create(&format!("{SOURCES}/buckets?dryRun=All"), &bucket)
        .await;
    refused(answer, "a GitRepository or an OCIRepository", "a bucket")?;
    // An existing object cannot be changed to it either.
    let change = json!({ "spec": { "url": format!("{git}/fleet/tenant-a/apps.git") } });
    let answer = fleet
        .hub
        .admin()
        .patch(
            &format!("{SOURCES}/gitrepositories/apps?dryRun=All"),
            &change,
        )
        .await;
    refused(answer, by_prefix, "an update")
}

pub(crate) async fn kustomizations_of_tenants_lead_to_their_target(
    fleet: Arc<GitFleet>,
) -> TestResult {
    let good = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": { "name": "x" },
        "spec": {
            "interval": "1m",
            "prune": true,
            "serviceAccountName": "reconciler",
            "kubeConfig": { "configMapRef": { "name": "target" } },
            "sourceRef": { "kind": "GitRepository", "name": "apps" },
        },
    });
    let cases: [RefusedSpec; 6] = [
        (
            "the hub itself",
            |spec| spec["kubeConfig"] = Value::Null,
            "without spec.kubeConfig",
        ),
        (
            "an object of its own",
            |spec| spec["kubeConfig"] = json!({ "configMapRef": { "name": "mine" } }),
            "refers to the object named target",
        ),
        (
            "a key of its own",
            |spec| spec["kubeConfig"] = json!({ "secretRef": { "name": "target", "key": "mine" } }),
            "with its default key",
        ),
        (
            "no account",
            |spec| spec["serviceAccountName"] = Value::Null,
            "spec.serviceAccountName is reconciler",
        ),
        (
            "another account",
            |spec| spec["serviceAccountName"] = "default".into(),
            "spec.serviceAccountName is reconciler",
        ),
        (
            "another's source",
            |spec| spec["sourceRef"]["namespace"] = "tenant-a".into(),
            "stays in the tenant's namespace",
        ),
    ];
    each_is_refused(&fleet.hub, KUSTOMIZATIONS, &good, &cases).await
}

/// Tests a namespace that no policy matches: the flags suffice by themselves.
pub(crate) async fn no_source_of_another_namespace_and_no_remote_base(
    fleet: Arc<GitFleet>,
) -> TestResult {
    let namespace = "unlabelled";
    fleet
        .hub
        .create_namespace_with_service_account(namespace, "reconciler")
        .await?;
    let base = fleet.git.create("base").await?;
    let config_map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fetched\n  namespace: apps\n";
    base.commit(&[
        ("apps/kustomization.yaml", "resources:\n  - fetched.yaml\n"),
        ("apps/fetched.yaml", config_map),
    ])
    .await?;
    let remote = format!("resources:\n  - {}//apps?ref=main\n", base.url());
    let repository = fleet.git.create("remote").await?;
    repository
        .commit(&[("apps/kustomization.yaml", &remote)])
        .await?;
    let source = GitSource {
        namespace,
        name: "remote",
        url: repository.url(),
    };
    source.apply(fleet.hub.admin()).await?;
    until_ready(&fleet.hub, &source.path()).await?;
    let secret = fleet
        .hub
        .admin()
        .get("/api/v1/namespaces/tenant-a/secrets/target")
        .await?;
    let copied = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "target" }, "data": secret["data"] });
    fleet
        .hub
        .admin()
        .apply(
            &format!("/api/v1/namespaces/{namespace}/secrets/target"),
            &copied,
        )
        .await?;
    let spec = KustomizationSpec {
        namespace,
        name: "remote",
        source: "remote",
        path: "./apps",
        kube_config: KubeConfigRef::Secret("target"),
        impersonating: Some("reconciler"),
    };
    spec.apply(fleet.hub.admin()).await?;
    until_said(&fleet.hub, &spec.path(), "fs-security-constraint").await?;

    let crossing = KustomizationSpec {
        name: "crossing",
        ..spec
    };
    crossing.apply(fleet.hub.admin()).await?;
    let change = json!({ "spec": { "sourceRef": { "kind": "GitRepository", "name": "apps", "namespace": "tenant-a" } } });
    fleet.hub.admin().patch(&crossing.path(), &change).await?;
    until_said(
        &fleet.hub,
        &crossing.path(),
        "cross-namespace references have been blocked",
    )
    .await?;
    Ok(())
}
