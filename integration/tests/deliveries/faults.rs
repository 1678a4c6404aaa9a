//! Tests the faults that can block a delivery: each cause has its reason, and the reason disappears
//! with the cause.

use std::sync::Arc;

use keyferry_integration::control_plane::Whom;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::{OnHub, bind_minter};
use keyferry_integration::world::{authentication_configuration, put_secret};
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};
use super::written::decoded;

const KEYFERRY: Whom<'_> = Whom::User("system:serviceaccount:keyferry-system:keyferry");

fn secret() -> Value {
    json!([{ "name": "s", "type": "KubeConfigSecret" }])
}

pub(crate) async fn a_ca_that_is_missing_wrong_or_replaced(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "authority", &EVERY_SHAPE).await?;
    let by_secret = json!({ "certSecretRef": { "name": "authority-ca" }, "caBundle": null });
    tenant.put_target(&EVERY_SHAPE, &by_secret).await?;
    tenant.put_access("apps", secret()).await?;
    tenant
        .until("apps", "Delivered", "False", "CertificateAuthorityInvalid")
        .await?;
    world
        .until_target("authority", "Ready", "False", "CertificateAuthorityInvalid")
        .await?;
    assert_eq!(tenant.written()?, 0);
    put_secret(&world.hub, "authority-ca", &[("ca.crt", "no certificate")]).await?;
    world.broker.process().hang_up().await?;
    tenant
        .until("apps", "Delivered", "False", "CertificateAuthorityInvalid")
        .await?;
    put_secret(
        &world.hub,
        "authority-ca",
        &[("ca.crt", world.targets[0].ca_pem())],
    )
    .await?;
    world.broker.process().hang_up().await?;
    tenant.until_ready("apps").await?;
    let path = tenant.secret("apps-kubeconfig");
    let before = world.hub.admin().get(&path).await?;
    // With another CA, the object is rewritten with the existing token.
    let both = format!("{}{}", world.targets[0].ca_pem(), world.targets[1].ca_pem());
    put_secret(&world.hub, "authority-ca", &[("ca.crt", &both)]).await?;
    world.broker.process().hang_up().await?;
    let after = world
        .until(&path, "with the new CA", |secret| {
            secret["data"] != before["data"]
        })
        .await?;
    let id = |secret: &Value| secret["metadata"]["annotations"]["keyferry.dev/token-id"].clone();
    assert_eq!(id(&before), id(&after), "the CA costs no mint");
    assert_ne!(decoded(&before, "value")?, decoded(&after, "value")?);
    // A missing Secret removes nothing from accesses that already have their object.
    world
        .hub
        .admin()
        .delete("/api/v1/namespaces/keyferry-system/secrets/authority-ca")
        .await?;
    world.broker.process().hang_up().await?;
    tenant
        .until("apps", "Delivered", "False", "CertificateAuthorityInvalid")
        .await?;
    assert!(world.is_there(&path).await?);
    Ok(())
}

pub(crate) async fn a_client_certificate_beside_the_ca_is_told_and_never_delivered(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "pair", &EVERY_SHAPE).await?;
    let client = world.targets[0]
        .ca()
        .client("cluster-admin", "system:masters")?;
    let data = [
        ("ca.crt", world.targets[0].ca_pem()),
        ("tls.crt", &client.cert_pem),
        ("tls.key", &client.key_pem),
    ];
    put_secret(&world.hub, "pair-ca", &data).await?;
    tenant
        .put_target(
            &EVERY_SHAPE,
            &json!({ "certSecretRef": { "name": "pair-ca" }, "caBundle": null }),
        )
        .await?;
    world
        .until_target(
            "pair",
            "ClientCertificateIgnored",
            "True",
            "ClientCertificateIgnored",
        )
        .await?;
    tenant.put_access("apps", secret()).await?;
    tenant.until_ready("apps").await?;
    let kubeconfig = decoded(
        &world
            .hub
            .admin()
            .get(&tenant.secret("apps-kubeconfig"))
            .await?,
        "value",
    )?;
    assert!(!kubeconfig.contains("client-certificate") && !kubeconfig.contains("client-key"));
    Ok(())
}

pub(crate) async fn a_missing_binding_is_named_and_fixed(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "unbound", &EVERY_SHAPE).await?;
    let binding =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/unbound/rolebindings/keyferry-minter";
    world.hub.admin().delete(binding).await?;
    let create = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] });
    world
        .hub
        .until_it_counts_no_more(KEYFERRY, "unbound", &create)
        .await?;
    tenant.put_access("apps", secret()).await?;
    let access = tenant
        .until("apps", "Delivered", "False", "DeliveryForbidden")
        .await?;
    assert!(access.to_string().contains("keyferry-minter"), "{access}");
    bind_minter(&world.hub, "unbound").await?;
    tenant.until_ready("apps").await?;
    Ok(())
}

/// With rights on objects alone, the hub refuses to mint. The message contains the missing Role.
pub(crate) async fn a_missing_right_to_mint_is_named_and_fixed(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "mintless", &EVERY_SHAPE).await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/mintless";
    world
        .hub
        .admin()
        .delete(&format!("{rbac}/rolebindings/keyferry-minter"))
        .await?;
    let mint = json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["reconciler"], "verbs": ["create"] });
    world
        .hub
        .until_it_counts_no_more(KEYFERRY, "mintless", &mint)
        .await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "objects", "namespace": "mintless" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "update", "delete"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "objects", "namespace": "mintless" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "objects" },
        "subjects": [{ "kind": "ServiceAccount", "name": "keyferry", "namespace": "keyferry-system" }],
    });
    world
        .hub
        .admin()
        .apply(&format!("{rbac}/roles/objects"), &role)
        .await?;
    world
        .hub
        .admin()
        .apply(&format!("{rbac}/rolebindings/objects"), &binding)
        .await?;
    world
        .hub
        .until_it_counts(KEYFERRY, "mintless", &role["rules"][0])
        .await?;
    tenant.put_access("apps", secret()).await?;
    let access = tenant
        .until("apps", "Delivered", "False", "MintForbidden")
        .await?;
    assert!(
        access.to_string().contains("keyferry-minter-reconciler"),
        "it holds what to apply: {access}"
    );
    assert_eq!(tenant.written()?, 0);
    bind_minter(&world.hub, "mintless").await?;
    tenant.until_ready("apps").await?;
    Ok(())
}

pub(crate) async fn a_quota_that_is_used_up(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "quota", &EVERY_SHAPE).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "none", "namespace": "quota" }, "spec": { "hard": { "secrets": "0" } },
    });
    let path = "/api/v1/namespaces/quota/resourcequotas";
    world.hub.admin().create(path, &quota).await?;
    world
        .until(&format!("{path}/none"), "counted", |quota| {
            quota["status"]["hard"]["secrets"] == "0"
        })
        .await?;
    tenant.put_access("apps", secret()).await?;
    tenant
        .until("apps", "Delivered", "False", "QuotaExceeded")
        .await?;
    world.hub.admin().delete(&format!("{path}/none")).await?;
    tenant.until_ready("apps").await?;
    Ok(())
}

pub(crate) async fn what_a_shape_cannot_carry_is_not_written(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "paths", &EVERY_SHAPE).await?;
    tenant
        .put_access("apps", json!([{ "name": "m", "type": "FluxConfigMap" }]))
        .await?;
    tenant.until_ready("apps").await?;
    let address = format!("{}/k8s/clusters/c-1", world.targets[0].url());
    tenant
        .put_target(&EVERY_SHAPE, &json!({ "address": address }))
        .await?;
    let access = tenant
        .until("apps", "Delivered", "False", "NotExpressible")
        .await?;
    assert!(
        access.to_string().contains("KubeConfigSecret"),
        "it names a shape that can: {access}"
    );
    world
        .until_gone("/api/v1/namespaces/paths/configmaps/apps")
        .await
}

pub(crate) async fn a_suspended_access_keeps_what_it_has(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "suspended", &EVERY_SHAPE).await?;
    tenant.put_access("apps", secret()).await?;
    tenant.until_ready("apps").await?;
    tenant
        .put_access_with("apps", json!({ "deliveries": secret(), "suspend": true }))
        .await?;
    tenant
        .until("apps", "Delivered", "False", "TargetSuspended")
        .await?;
    assert!(world.is_there(&tenant.secret("apps-kubeconfig")).await?);
    Ok(())
}

/// The object for an access's previous target is removed at once, even if the new target cannot be
/// used yet.
pub(crate) async fn a_move_to_a_suspended_target_takes_the_earlier_object(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "moved", &EVERY_SHAPE).await?;
    tenant.put_access("apps", secret()).await?;
    tenant.until_ready("apps").await?;
    let mut other = world.target_spec(1);
    other["audience"] = json!("https://moved-to.keyferry.test");
    other["suspend"] = json!(true);
    other["allow"] = json!([{ "namespaces": ["moved"], "serviceAccounts": ["reconciler"], "deliveries": EVERY_SHAPE }]);
    world.put_target("moved-to", &other).await?;
    world
        .put_access(
            "moved",
            "apps",
            "moved-to",
            &json!({ "deliveries": secret() }),
        )
        .await?;
    tenant
        .until("apps", "Delivered", "False", "TargetSuspended")
        .await?;
    world.until_gone(&tenant.secret("apps-kubeconfig")).await
}

pub(crate) async fn one_audience_has_one_target(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "first-owner", &EVERY_SHAPE).await?;
    world
        .until_target("first-owner", "Ready", "True", "Ready")
        .await?;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let mut second = world.target_spec(1);
    second["audience"] = json!("https://first-owner.keyferry.test");
    world.put_target("second-owner", &second).await?;
    world
        .until_target(
            "second-owner",
            "AudienceConflict",
            "True",
            "AudienceConflict",
        )
        .await?;
    world
        .hub
        .admin()
        .delete("/apis/keyferry.dev/v1alpha1/targetclusters/first-owner")
        .await?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world
        .until_target(
            "second-owner",
            "AudienceConflict",
            "True",
            "AudienceConflict",
        )
        .await?;
    second["allow"] = json!([{ "namespaces": [tenant.name], "serviceAccounts": ["reconciler"] }]);
    world.put_target("second-owner", &second).await?;
    world
        .until_target("second-owner", "Ready", "True", "Ready")
        .await?;
    Ok(())
}

/// Detects a target whose configuration has no rule that restricts who is admitted, and no other
/// target.
pub(crate) async fn a_target_that_lets_in_anybody_is_told(world: Arc<OnHub>) -> TestResult {
    let target = &world.targets[1];
    let url = world.broker.discovery_url() + "/.well-known/openid-configuration";
    let protected = authentication_configuration(
        "https://target-b.keyferry.test",
        &url,
        world.ground.ca().cert_pem(),
    )?;
    let (before, rules) = protected
        .split_once("    claimValidationRules:")
        .ok_or("no rules")?;
    let (_, after) = rules
        .split_once("    claimMappings:")
        .ok_or("no mappings")?;
    target
        .set_authentication_config(&format!("{before}    claimMappings:{after}"))
        .await?;
    world.put_target("target-b", &world.target_spec(1)).await?;
    world
        .until_target(
            "target-b",
            "TargetUnrestricted",
            "True",
            "TargetUnrestricted",
        )
        .await?;
    target.set_authentication_config(&protected).await?;
    let mut changed = world.target_spec(1);
    changed["allow"] = json!([{ "namespaces": ["tenant-b"], "serviceAccounts": ["reconciler"] }]);
    world.put_target("target-b", &changed).await?;
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters/target-b";
    let closed = |object: &Value| {
        object["status"]["observedGeneration"] == object["metadata"]["generation"]
            && !object["status"].to_string().contains("TargetUnrestricted")
    };
    world.until(path, "protected", closed).await?;
    Ok(())
}
