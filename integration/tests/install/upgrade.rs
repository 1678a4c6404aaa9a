//! Tests what remains after an upgrade and after a removal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::json;

use super::helm::helm;
use super::setup::{Hubs, NAMESPACE, chart, restricted_namespace, values};

const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/targetclusters.keyferry.dev";
const TARGETS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
const WAIT_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn an_upgrade_keeps_the_crds(hubs: Arc<Hubs>) -> TestResult {
    let plane = hubs
        .fleet()
        .start_control_plane(ControlPlaneSpec {
            controller_manager: true,
            ..ControlPlaneSpec::named("upgraded")
        })
        .await?;
    restricted_namespace(&plane).await?;
    let (chart, minimal, everywhere) = (chart(), values("minimal"), values("everywhere"));
    let release = ["keyferry", chart.as_str(), "-n", NAMESPACE, "-f"];
    let run = |verb: &'static str, values: String, set: &'static str| {
        let mut args = vec![verb];
        args.extend(release);
        args.extend([values.as_str(), "--set", set]);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let (hubs, plane) = (&hubs, &plane);
        async move {
            helm(
                hubs.fleet(),
                Some(plane),
                &args.iter().map(String::as_str).collect::<Vec<_>>(),
            )
            .await?
            .success()
        }
    };
    let notes = run("install", minimal.clone(), "crds.enabled=true").await?;
    assert!(
        notes.contains("It mints nowhere: rbac.tenantNamespaces is empty.")
            && notes.contains("admissionPolicies.enabled is false"),
        "{notes}"
    );
    let uid = make_target(&plane).await?;

    // The release no longer contains the CRDs, but they remain.
    let notes = run("upgrade", minimal.clone(), "crds.enabled=false").await?;
    assert!(
        notes.contains("the CRDs, which are not part of this release"),
        "{notes}"
    );
    assert_eq!(target_uid(&plane).await?, uid);
    // Take them back into the release, and then remove the release.
    run("upgrade", minimal.clone(), "crds.enabled=true").await?;
    assert_eq!(target_uid(&plane).await?, uid);
    helm(
        hubs.fleet(),
        Some(&plane),
        &["uninstall", "keyferry", "-n", NAMESPACE],
    )
    .await?
    .success()?;
    assert_eq!(target_uid(&plane).await?, uid);
    let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/keyferry");
    assert_eq!(
        status(&plane, &deployment).await,
        Some(404),
        "the rest of the release is gone"
    );

    // Without crds.keep they are deleted with the release: the annotation is what kept them.
    let notes = run("install", everywhere, "crds.enabled=true").await?;
    assert!(
        notes.contains("WARNING: rbac.mint is ClusterWide"),
        "{notes}"
    );
    helm(
        hubs.fleet(),
        Some(&plane),
        &["uninstall", "keyferry", "-n", NAMESPACE],
    )
    .await?
    .success()?;
    let deadline = Instant::now() + WAIT_LIMIT;
    while status(&plane, CRD).await != Some(404) {
        assert!(
            Instant::now() < deadline,
            "the CRD outlived a release with crds.keep=false"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn make_target(plane: &ControlPlane) -> Result<String, TestError> {
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1",
        "kind": "TargetCluster",
        "metadata": { "name": "prod" },
        "spec": { "address": "https://prod.example.com:6443", "audience": "https://prod.example.com" },
    });
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        match plane.admin().create(TARGETS, &target).await {
            Ok(made) => {
                return Ok(made["metadata"]["uid"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned());
            }
            // A new kind is served a moment after its definition exists.
            Err(error) if error.status() == Some(404) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn target_uid(plane: &ControlPlane) -> Result<String, TestError> {
    let target = plane.admin().get(&format!("{TARGETS}/prod")).await?;
    Ok(target["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

async fn status(plane: &ControlPlane, path: &str) -> Option<u16> {
    plane
        .admin()
        .get(path)
        .await
        .err()
        .and_then(|error| error.status())
}
