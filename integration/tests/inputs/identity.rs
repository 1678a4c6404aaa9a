//! The identity of a TargetCluster: the hub refuses its change, and two equal ones serve nothing.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::has_condition;
use serde_json::json;

use super::stage::{Stage, cluster_path, succeeds, target_path};

pub(super) async fn immutable_and_unique(stage: Arc<Stage>) -> TestResult {
    stage.put_target("prod-e", "prod-e.fleet.test").await?;
    let (admin, path) = (stage.hub.admin(), target_path("prod-e"));
    let changes = [
        json!({ "clusterDNS": "other.fleet.test" }),
        json!({ "clusterName": "other" }),
        json!({ "environment": "staging" }),
        json!(null),
    ];
    for change in changes {
        let refused = admin
            .patch(&path, &json!({ "spec": { "identity": change } }))
            .await;
        let said = refused
            .err()
            .ok_or("the hub took another identity")?
            .to_string();
        assert!(said.contains("the identity is immutable"), "{said}");
    }
    stage.until_status("prod-e", "cluster", 200).await?;

    // A second target with the name: neither serves, and neither is preferred.
    stage.put_target("prod-f", "prod-e.fleet.test").await?;
    let reply = stage.until_status("prod-e", "cluster", 503).await?;
    assert!(reply.body.contains("IdentityConflict"), "{reply:?}");
    for name in ["prod-e", "prod-f"] {
        let conflict = |object: &serde_json::Value| {
            has_condition(object, "IdentityConflict", "True", "IdentityConflict")
        };
        let patience = std::time::Duration::from_secs(60);
        until_object(
            admin,
            &target_path(name),
            "the condition",
            patience,
            conflict,
        )
        .await?;
    }
    admin.delete(&target_path("prod-f")).await?;
    stage.until_status("prod-e", "cluster", 200).await?;
    let other = stage
        .read("prod-a", &cluster_path("prod-e", "cluster"))
        .await?;
    assert_eq!(other.status, 404);
    Ok(())
}

pub(super) async fn runtime_info(stage: Arc<Stage>) -> TestResult {
    let patience = std::time::Duration::from_secs(60);
    let has_settings = |object: &serde_json::Value| {
        object["status"]["usernamePrefix"].is_string()
            && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    };
    let (admin, path) = (stage.hub.admin(), target_path("prod-a"));
    let target = until_object(admin, &path, "its status", patience, has_settings).await?;
    let file = stage.ground.folder().join("targets.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [target] });
    std::fs::write(&file, list.to_string())?;
    let file = file.display().to_string();
    let url = "https://keyferry.example.com:9443";
    let args = [
        "runtime-info",
        "prod-a",
        "-f",
        &file,
        "--internal-api-url",
        url,
    ];
    let printed = succeeds(&stage.ground, &args).await?;
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&printed)?;
    let [identity, runtime] = documents.as_slice() else {
        return Err(format!("not two ConfigMaps: {printed}").into());
    };
    assert_eq!(identity["metadata"]["name"], "cluster-identity");
    assert_eq!(
        identity["data"],
        json!({
            "CLUSTER_NAME": "prod-a", "CLUSTER_DNS": "prod-a.fleet.test",
            "ENVIRONMENT": "production", "INTERNAL_API_URL": url,
        })
    );
    assert_eq!(runtime["metadata"]["name"], "flux-runtime-info");
    assert_eq!(
        runtime["metadata"]["labels"]["toolkit.fluxcd.io/runtime"],
        "true"
    );
    assert_eq!(
        runtime["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/ssa"],
        "Merge"
    );
    assert_eq!(
        runtime["data"],
        json!({
            "ARTIFACT_TAG": "latest-stable", "ENVIRONMENT": "production",
            "CLUSTER_NAME": "prod-a", "CLUSTER_DOMAIN": "prod-a.fleet.test",
            "HUB_NAME": "hub", "TARGET_NAME": "prod-a",
        })
    );
    Ok(())
}
