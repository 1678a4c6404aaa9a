//! Tests the deletion of an access.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::caller_token;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, has_condition};
use serde_json::json;

use super::tenant::{EVERY_SHAPE, Tenant};

pub(crate) async fn a_deleted_access_keeps_its_objects_and_nothing_else(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "drained", &EVERY_SHAPE).await?;
    tenant
        .put_access(
            "apps",
            json!([{ "name": "s", "type": "KubeConfigSecret" }, { "name": "h", "type": "HTTP" }]),
        )
        .await?;
    tenant.until_ready("apps").await?;
    let written = tenant.written()?;
    world.hub.admin().delete(&tenant.access("apps")).await?;
    let draining = |access: &serde_json::Value| {
        has_condition(access, "Reconciling", "True", "DeliveryDraining")
    };
    world
        .until(&tenant.access("apps"), "draining", draining)
        .await?;
    assert!(
        world.is_there(&tenant.secret("apps-kubeconfig")).await?,
        "its object stays"
    );
    let caller = caller_token(&world.hub, "drained", RECONCILER).await?;
    assert_eq!(
        world.broker.exchange(&caller, "drained/apps").await?.status,
        400,
        "nobody gets a token by it any more"
    );
    world
        .hub
        .admin()
        .delete(&tenant.secret("apps-kubeconfig"))
        .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        !world.is_there(&tenant.secret("apps-kubeconfig")).await?,
        "and it writes none"
    );
    assert_eq!(tenant.written()?, written);
    // A tenant who does not want to wait says so on the access that is being deleted.
    world
        .hub
        .admin()
        .patch(
            &tenant.access("apps"),
            &json!({ "spec": { "deletionPolicy": "Immediate" } }),
        )
        .await?;
    world.until_gone(&tenant.access("apps")).await
}

pub(crate) async fn immediate_takes_the_objects_at_once(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "immediate", &EVERY_SHAPE).await?;
    let further = json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }], "deletionPolicy": "Immediate" });
    tenant.put_access_with("apps", further).await?;
    tenant.until_ready("apps").await?;
    world.hub.admin().delete(&tenant.access("apps")).await?;
    world.until_gone(&tenant.access("apps")).await?;
    world.until_gone(&tenant.secret("apps-kubeconfig")).await
}

pub(crate) async fn a_namespace_that_goes_takes_all_of_it(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "going", &EVERY_SHAPE).await?;
    tenant
        .put_access("apps", json!([{ "name": "s", "type": "KubeConfigSecret" }]))
        .await?;
    tenant.until_ready("apps").await?;
    world.hub.admin().delete("/api/v1/namespaces/going").await?;
    world.until_gone("/api/v1/namespaces/going").await
}

pub(crate) async fn a_delivery_that_is_taken_out_takes_its_object(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "fewer", &EVERY_SHAPE).await?;
    tenant.put_access("apps", json!([{ "name": "s", "type": "KubeConfigSecret" }, { "name": "m", "type": "FluxConfigMap" }])).await?;
    tenant.until_ready("apps").await?;
    tenant
        .put_access("apps", json!([{ "name": "m", "type": "FluxConfigMap" }]))
        .await?;
    world.until_gone(&tenant.secret("apps-kubeconfig")).await?;
    assert!(
        world
            .is_there("/api/v1/namespaces/fewer/configmaps/apps")
            .await?
    );
    Ok(())
}

pub(crate) async fn a_deleted_target_keeps_what_was_delivered_and_mints_nothing(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "unmoored", &EVERY_SHAPE).await?;
    tenant
        .put_access(
            "apps",
            json!([{ "name": "s", "type": "KubeConfigSecret" }, { "name": "h", "type": "HTTP" }]),
        )
        .await?;
    tenant.until_ready("apps").await?;
    let target = "/apis/keyferry.dev/v1alpha1/targetclusters/unmoored";
    let kept = |object: &serde_json::Value| {
        object["metadata"]["finalizers"] == json!(["keyferry.dev/drain"])
    };
    world.until(target, "with a finalizer", kept).await?;
    let (written, secret) = (
        tenant.written()?,
        world
            .hub
            .admin()
            .get(&tenant.secret("apps-kubeconfig"))
            .await?,
    );
    world.hub.admin().delete(target).await?;
    tenant
        .until("apps", "Ready", "False", "TargetDraining")
        .await?;
    let draining = world
        .until_target("unmoored", "Ready", "False", "TargetDraining")
        .await?;
    assert_eq!(
        draining["status"]["summary"],
        "deleted; 1 access still uses it; deletionPolicy: Immediate ends it"
    );
    assert!(
        draining["status"]["conditions"]
            .to_string()
            .contains("unmoored/apps"),
        "{draining}"
    );
    let caller = caller_token(&world.hub, "unmoored", RECONCILER).await?;
    assert_eq!(
        world
            .broker
            .exchange(&caller, "unmoored/apps")
            .await?
            .status,
        400,
        "nobody gets a token by it any more"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        world
            .hub
            .admin()
            .get(&tenant.secret("apps-kubeconfig"))
            .await?,
        secret,
        "its object stays as it was"
    );
    assert_eq!(tenant.written()?, written);
    world
        .hub
        .admin()
        .patch(
            target,
            &json!({ "spec": { "deletionPolicy": "Immediate" } }),
        )
        .await?;
    world.until_gone(target).await?;
    world.until_gone(&tenant.secret("apps-kubeconfig")).await?;
    tenant
        .until("apps", "Ready", "False", "TargetNotGranted")
        .await?;
    Ok(())
}

/// Deleting an access just before it is removed from `allow[]` does not keep its objects.
pub(crate) async fn what_is_no_longer_allowed_does_not_drain(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "hasty", &EVERY_SHAPE).await?;
    tenant
        .put_access("apps", json!([{ "name": "s", "type": "KubeConfigSecret" }]))
        .await?;
    tenant.until_ready("apps").await?;
    world.hub.admin().delete(&tenant.access("apps")).await?;
    let draining = |access: &serde_json::Value| {
        has_condition(access, "Reconciling", "True", "DeliveryDraining")
    };
    world
        .until(&tenant.access("apps"), "draining", draining)
        .await?;
    tenant.put_target(&[], &json!({})).await?;
    world.until_gone(&tenant.secret("apps-kubeconfig")).await?;
    world.until_gone(&tenant.access("apps")).await
}
