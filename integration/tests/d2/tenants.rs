//! Tests the tenants' objects in the fleet, and how a tenant is added and removed.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::flux::until_ready;
use keyferry_integration::parts::Part;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::until_gone;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::artifacts::{TAGS, publish};
use super::fleet::{D2, GUEST, TARGETS, TENANTS, config_map, oci_repository};
use super::keyless::TRUSTED_ROOT;
use crate::shipped_fleet::{File, config_map_of, kustomization, settings_are_the_tenants};

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn run_on_both_targets(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    for tenant in TENANTS {
        for (target, plane) in TARGETS.iter().zip(&d2.targets) {
            let apps = format!("apps-{target}");
            let source = until_ready(&d2.hub, &oci_repository(tenant, &apps)).await?;
            let verified = source["status"]["conditions"].as_array();
            assert!(
                verified
                    .into_iter()
                    .flatten()
                    .any(|one| { one["type"] == "SourceVerified" && one["status"] == "True" }),
                "{source}"
            );
            until_ready(&d2.hub, &kustomization(tenant, &apps)).await?;
            let settings = config_map(&format!("{tenant}-apps"), "settings");
            assert_eq!(
                plane.admin().get(&settings).await?["data"],
                json!({ "owner": tenant, "environment": target, "cluster": target })
            );
            let events = plane.audit_events()?;
            settings_are_the_tenants(&events, &format!("{tenant}-apps"), tenant);
        }
    }
    // No token is at rest in a tenant's namespace: its Secrets hold what verifies signatures. The
    // second one is of another test, which may run at the same time.
    for tenant in TENANTS {
        let secrets = d2
            .hub
            .admin()
            .get(&format!("/api/v1/namespaces/{tenant}/secrets"))
            .await?;
        let names: Vec<&Value> = secrets["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|secret| &secret["metadata"]["name"])
            .filter(|name| **name != TRUSTED_ROOT)
            .collect();
        assert_eq!(names, ["cosign-key"]);
    }
    Ok(())
}

pub(crate) async fn flux_is_locked_down(d2: Arc<D2>) -> TestResult {
    let both = [
        "--no-cross-namespace-refs=true",
        "--default-service-account=default",
        "--default-kubeconfig-service-account=default",
        "--feature-gates=ObjectLevelWorkloadIdentity=true",
    ];
    for part in [Part::KustomizeController, Part::HelmController] {
        let flags = d2.flux.flags(part);
        for flag in both {
            assert!(flags.iter().any(|one| one == flag), "{flag}: {flags:?}");
        }
    }
    let flags = d2.flux.flags(Part::KustomizeController);
    assert!(
        flags.iter().any(|one| one == "--no-remote-bases=true"),
        "{flags:?}"
    );
    // The instance's own sync is verified too. Only it acts with Flux's own rights.
    let source = until_ready(&d2.hub, &oci_repository("flux-system", "flux-system")).await?;
    assert_eq!(
        source["spec"]["verify"],
        json!({ "provider": "cosign", "secretRef": { "name": "cosign-key" } })
    );
    let sync = until_ready(&d2.hub, &kustomization("flux-system", "flux-system")).await?;
    assert_eq!(sync["spec"]["serviceAccountName"], "kustomize-controller");
    Ok(())
}

pub(crate) async fn production_follows_its_tag(d2: Arc<D2>) -> TestResult {
    let (tenant, repository) = (TENANTS[0], "fleet/tenant-a/apps");
    d2.until_settled().await?;
    let mut files = d2.addresses.files(&format!("apps/{tenant}"))?;
    for environment in TARGETS {
        files.push((
            format!("{environment}/promoted.yaml"),
            one_config_map(tenant, "promoted"),
        ));
    }
    publish(&d2.registry, &d2.key, repository, &TAGS[..1], &files).await?;
    let promoted = config_map(&format!("{tenant}-apps"), "promoted");
    let [staging, production] = &d2.targets;
    until_object(staging.admin(), &promoted, "there", MINUTE, |_| true).await?;
    assert!(!production.admin().exists(&promoted).await?);
    d2.registry.tag(repository, TAGS[0], TAGS[1]).await?;
    until_object(production.admin(), &promoted, "there", MINUTE, |_| true).await?;
    Ok(())
}

pub(crate) async fn comes_by_one_commit(d2: Arc<D2>) -> TestResult {
    let file = "tenants/tenants.yaml";
    d2.until_settled().await?;
    prepare(&d2).await?;
    d2.commit(
        file,
        "    - tenant: tenant-b\n",
        &format!("    - tenant: tenant-b\n    - tenant: {GUEST}\n"),
    )
    .await?;
    let belongings = config_map(&format!("{GUEST}-apps"), "belongings");
    for plane in &d2.targets {
        until_object(plane.admin(), &belongings, "there", MINUTE, |_| true).await?;
    }
    // Two commits remove it. The first removes the accesses, and Flux prunes while they drain.
    let line = format!("    - tenant: {GUEST}\n");
    d2.commit(file, &line, &format!("{line}      access: disabled\n"))
        .await?;
    for (target, plane) in TARGETS.iter().zip(&d2.targets) {
        until_gone(
            d2.hub.admin(),
            &kustomization(GUEST, &format!("apps-{target}")),
        )
        .await?;
        assert!(
            !plane.admin().exists(&belongings).await?,
            "{target} ends clean"
        );
        let access =
            format!("/apis/keyferry.dev/v1alpha1/namespaces/{GUEST}/targetaccesses/{target}");
        until_gone(d2.hub.admin(), &access).await?;
    }
    d2.commit(file, &format!("{line}      access: disabled\n"), "")
        .await?;
    until_gone(d2.hub.admin(), &format!("/api/v1/namespaces/{GUEST}")).await
}

/// Publishes the guest's artifact, and gives it the rights at the targets that tenant-b has.
async fn prepare(d2: &D2) -> Result<(), TestError> {
    let files: Vec<File> = TARGETS
        .iter()
        .map(|environment| {
            (
                format!("{environment}/belongings.yaml"),
                one_config_map(GUEST, "belongings"),
            )
        })
        .collect();
    let repository = format!("fleet/{GUEST}/apps");
    publish(&d2.registry, &d2.key, &repository, &TAGS, &files).await?;
    let rights = std::fs::read_to_string(shipped("examples/d2/target-clusters/tenant-b.yaml"))?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rights.yaml");
    std::fs::write(&file, rights.replace("tenant-b", GUEST))?;
    for plane in &d2.targets {
        apply_manifests(plane, &[&file]).await?;
    }
    Ok(())
}

/// The text of a ConfigMap in the tenant's namespace at a target.
pub(crate) fn one_config_map(tenant: &str, name: &str) -> String {
    config_map_of(tenant, &format!("{tenant}-apps"), name)
}
