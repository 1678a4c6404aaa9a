//! Keyferry writes nothing that policy does not grant, and removes what policy no longer grants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::Whom;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::caller_token;
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, has_condition};
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};
use super::written::decoded;
use crate::lifecycle::floods::a_known_callers_refusals_are_bounded;

pub(crate) async fn a_shape_that_is_not_allowed_writes_nothing(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "shapes", &["FluxConfigMap"]).await?;
    let both = json!([{ "name": "secret", "type": "KubeConfigSecret" }, { "name": "map", "type": "FluxConfigMap" }]);
    tenant.put_access("apps", both).await?;
    let reports_reason = |access: &Value, name: &str, reason: &str| {
        let deliveries = access["status"]["deliveries"]
            .as_array()
            .into_iter()
            .flatten();
        deliveries
            .into_iter()
            .any(|one| one["name"] == name && one["reason"] == reason)
    };
    // All from one check: before the target was seen, everything is refused with the same reason.
    world
        .until(
            &tenant.access("apps"),
            "one refused, one delivered",
            |access| {
                has_condition(access, "Ready", "False", "TargetNotGranted")
                    && reports_reason(access, "secret", "TargetNotGranted")
                    && reports_reason(access, "map", "Delivered")
            },
        )
        .await?;
    let map = world
        .hub
        .admin()
        .get("/api/v1/namespaces/shapes/configmaps/apps")
        .await?;
    assert_eq!(
        map["data"]["serviceAccountName"], RECONCILER,
        "what is allowed goes on"
    );
    assert!(!world.is_there(&tenant.secret("apps-kubeconfig")).await?);
    assert_eq!(tenant.written()?, 0);
    Ok(())
}

pub(crate) async fn a_tenant_learns_nothing_of_targets_that_are_not_its_own(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "curious", &[]).await?;
    let secret = json!({ "deliveries": [{ "name": "s", "type": "KubeConfigSecret" }] });
    world
        .put_access("curious", "forbidden", "curious", &secret)
        .await?;
    world
        .put_access("curious", "absent", "no-such-target", &secret)
        .await?;
    let forbidden = tenant
        .until("forbidden", "Ready", "False", "TargetNotGranted")
        .await?;
    let absent = tenant
        .until("absent", "Ready", "False", "TargetNotGranted")
        .await?;
    let told = |access: &serde_json::Value| {
        let mut status = access["status"].clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = json!("");
        }
        status
            .to_string()
            .replace("forbidden", "X")
            .replace("absent", "X")
    };
    assert_eq!(told(&forbidden), told(&absent));
    Ok(())
}

pub(crate) async fn what_is_no_longer_allowed_is_deleted(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "taken", &EVERY_SHAPE).await?;
    tenant
        .put_access(
            "apps",
            json!([{ "name": "s", "type": "KubeConfigSecret" }, { "name": "h", "type": "HTTP" }]),
        )
        .await?;
    tenant.until_ready("apps").await?;
    let caller = caller_token(&world.hub, "taken", RECONCILER).await?;
    assert_eq!(
        world.broker.exchange(&caller, "taken/apps").await?.status,
        200
    );
    tenant.put_target(&[], &json!({})).await?;
    let from = Instant::now();
    while world.broker.exchange(&caller, "taken/apps").await?.status == 200 {
        // The watch reports the change within milliseconds, while the token would be cached for an
        // hour.
        assert!(
            from.elapsed() < Duration::from_secs(10),
            "it is still issued"
        );
    }
    world.until_gone(&tenant.secret("apps-kubeconfig")).await?;
    eprintln!(
        "what was delivered is gone {:.1?} after the target no longer allows it",
        from.elapsed()
    );
    tenant
        .until("apps", "Ready", "False", "TargetNotGranted")
        .await?;
    Ok(())
}

pub(crate) async fn another_account_under_the_name_gets_another_token(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "recreated", &EVERY_SHAPE).await?;
    tenant
        .put_access("apps", json!([{ "name": "s", "type": "KubeConfigSecret" }]))
        .await?;
    tenant.until_ready("apps").await?;
    let path = tenant.secret("apps-kubeconfig");
    let before = world.hub.admin().get(&path).await?;
    world
        .hub
        .recreate_service_account("recreated", RECONCILER)
        .await?;
    let id = |secret: &serde_json::Value| {
        secret["metadata"]["annotations"]["keyferry.dev/token-id"].clone()
    };
    let after = world
        .until(&path, "written again", |secret| {
            secret["data"].is_object() && id(secret) != id(&before)
        })
        .await?;
    assert_ne!(decoded(&before, "value")?, decoded(&after, "value")?);
    Ok(())
}

/// An author who may write an access and read Secrets, but not mint, gets no other account's token.
pub(crate) async fn an_author_who_may_not_mint_is_refused(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "authors", &EVERY_SHAPE).await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "author", "namespace": "authors" },
        "rules": [
            { "apiGroups": ["keyferry.dev"], "resources": ["targetaccesses"], "verbs": ["*"] },
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] },
        ],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/authors";
    world
        .hub
        .create_service_account("authors", "author")
        .await?;
    world
        .hub
        .admin()
        .apply(&format!("{rbac}/roles/author"), &role)
        .await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "author", "namespace": "authors" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "author" },
        "subjects": [{ "kind": "ServiceAccount", "name": "author", "namespace": "authors" }],
    });
    world
        .hub
        .admin()
        .apply(&format!("{rbac}/rolebindings/author"), &binding)
        .await?;
    world
        .hub
        .until_it_counts(
            Whom::User("system:serviceaccount:authors:author"),
            "authors",
            &role["rules"][0],
        )
        .await?;
    let token = world
        .hub
        .token_request("authors", "author", &[], 600)
        .await?
        .token;
    let author = world.hub.as_bearer(&token)?;
    for shape in ["KubeConfigSecret", "ClusterAPISecret", "ArgoCDSecret"] {
        let mut delivery = json!({ "name": "s", "type": shape });
        if shape == "ArgoCDSecret" {
            delivery["argoCD"] = json!({ "project": "x", "form": "BearerToken" });
        }
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": "sly", "namespace": "authors" },
            "spec": { "targetClusterRef": { "name": "authors" }, "serviceAccountName": RECONCILER, "deliveries": [delivery] },
        });
        let path = "/apis/keyferry.dev/v1alpha1/namespaces/authors/targetaccesses";
        let refused = author
            .create(path, &object)
            .await
            .err()
            .ok_or("the author was let through")?;
        assert!(refused.to_string().contains("keyferry-author"), "{refused}");
    }
    assert_eq!(tenant.written()?, 0);
    Ok(())
}

/// The flood of refusals, with the objects on the hub.
pub(crate) async fn a_flood_of_a_known_caller_fills_no_log(world: Arc<OnHub>) -> TestResult {
    let _refused = Tenant::new(&world, "refused", &[]).await?;
    let neighbour = Tenant::new(&world, "beside-refused", &["HTTP"]).await?;
    neighbour
        .put_access("a", json!([{ "name": "h", "type": "HTTP" }]))
        .await?;
    let refused = caller_token(&world.hub, "refused", RECONCILER).await?;
    let granted = caller_token(&world.hub, "beside-refused", RECONCILER).await?;
    a_known_callers_refusals_are_bounded(
        &world.broker,
        &refused,
        "refused",
        (&granted, "beside-refused/a"),
    )
    .await
}
