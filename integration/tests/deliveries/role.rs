//! A role on the hub: its objects lead to the cluster of its base, and its audience is reserved.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::ControlPlaneSpec;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::{
    ISSUER, OnHub, RECONCILER, has_condition, tenant_with_minter,
};
use keyferry_integration::world::{caller_token, until_trusted};
use serde_json::{Value, json};

use super::written::decoded;
use crate::identity::roles::{RoleTrust, assert_role};
use crate::previous_version::load::Load;

const TENANT: &str = "roles";
const BASE: &str = "https://roles.keyferry.test";
const ROLE: &str = "https://roles.keyferry.test/roles/view";
const OUTSIDER: &str = "outsider";
const PAIRING: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry";

pub(crate) async fn a_role_leads_to_the_cluster_of_its_base(world: Arc<OnHub>) -> TestResult {
    tenant_with_minter(&world.hub, TENANT, &[RECONCILER, OUTSIDER]).await?;
    let account = format!("{TENANT}:{RECONCILER}");
    let discovery_url = format!(
        "{}/.well-known/openid-configuration",
        world.broker.discovery_url()
    );
    let trust = RoleTrust {
        issuer: ISSUER,
        discovery_url: &discovery_url,
        discovery_ca: world.ground.ca().cert_pem(),
        base: BASE,
        role: ROLE,
        base_accounts: &[&account],
        role_accounts: &[&account],
    };
    let target = world.ground.control_plane(ControlPlaneSpec {
        authentication_config: Some(trust.configuration()),
        ..ControlPlaneSpec::named("role-target")
    });
    let target = target.await?;
    until_trusted(&world.hub, &target).await?;
    let allow = json!([{
        "namespaces": [TENANT], "serviceAccounts": [RECONCILER],
        "deliveries": ["HTTP", "KubeConfigSecret"],
    }]);
    let base = |suspend: bool| {
        json!({
            "address": target.url(), "caBundle": target.ca_pem(), "audience": BASE,
            "allow": allow, "suspend": suspend,
        })
    };
    // With `Drain`, its objects would keep it until their tokens end, once it has its finalizer.
    let role = json!({
        "sameAs": "roles-prod", "role": "view", "audience": ROLE, "allow": allow,
        "tokenLifetime": { "default": "1h", "max": "1h" }, "deletionPolicy": "Immediate",
    });
    // A role can be created before its base.
    world.put_target("roles-view", &role).await?;
    world
        .until_target("roles-view", "Ready", "False", "BaseTargetMissing")
        .await?;
    world.put_target("roles-prod", &base(false)).await?;
    let status = world
        .until_target("roles-view", "Ready", "True", "Ready")
        .await?;
    assert_eq!(status["status"]["usernamePrefix"], "hub:view:");
    let of_base = world
        .until_target("roles-prod", "Ready", "True", "Ready")
        .await?;
    assert_eq!(of_base["status"]["usernamePrefix"], "hub:");

    for name in ["roles-prod", "roles-view"] {
        let delivery = json!({ "deliveries": [
            { "name": "s", "type": "KubeConfigSecret" }, { "name": "http", "type": "HTTP" },
        ] });
        world.put_access(TENANT, name, name, &delivery).await?;
        let condition = "TargetAuthenticates";
        world
            .until_access(TENANT, name, condition, "True", "Ready")
            .await?;
    }
    let secret = |name: &str| format!("/api/v1/namespaces/{TENANT}/secrets/{name}-kubeconfig");
    let delivered = world.hub.admin().get(&secret("roles-view")).await?;
    let kubeconfig: Value = serde_saphyr::from_str(&decoded(&delivered, "value")?)?;
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], target.url());
    let token = kubeconfig["users"][0]["user"]["token"].as_str();
    assert_role(&target, token.ok_or("no token")?, &account).await?;

    let pairs = world.hub.admin().get(PAIRING).await?["pairs"][ROLE].take();
    let granted = format!("{TENANT}/{RECONCILER}");
    assert!(
        pairs
            .as_array()
            .is_some_and(|pairs| pairs.contains(&json!(granted))),
        "{pairs}"
    );
    let fence = async |account: &str, audiences: &[&str]| {
        let minted = world
            .hub
            .token_request(TENANT, account, audiences, 600)
            .await;
        minted.err().map(|error| error.to_string())
    };
    let refused = fence(OUTSIDER, &[ROLE]).await;
    assert!(
        refused
            .as_deref()
            .is_some_and(|text| text.contains("no TargetAccess")),
        "{refused:?}"
    );
    let refused = fence(RECONCILER, &[BASE, ROLE]).await;
    assert!(
        refused
            .as_deref()
            .is_some_and(|text| text.contains("no other")),
        "{refused:?}"
    );
    assert_eq!(fence(RECONCILER, &[ROLE]).await, None);

    it_comes_and_goes_under_load(&world, &role).await?;

    // A file that maps both audiences to the account gives the role the rights of the account.
    target
        .set_authentication_config(&trust.without_mapping())
        .await?;
    let path = format!("/apis/keyferry.dev/v1alpha1/namespaces/{TENANT}/targetaccesses/roles-view");
    let limit = Instant::now() + Duration::from_secs(100);
    loop {
        let now = limit.duration_since(Instant::now().min(limit)).as_millis();
        let look = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": now.to_string() } } });
        world.hub.admin().patch(&path, &look).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let access = world.hub.admin().get(&path).await?;
        if has_condition(&access, "TargetAuthenticates", "False", "RoleNotMapped") {
            assert!(
                has_condition(&access, "Ready", "False", "RoleNotMapped"),
                "{access}"
            );
            break;
        }
        assert!(Instant::now() < limit, "{}", access["status"]);
    }

    world.put_target("roles-prod", &base(true)).await?;
    for name in ["roles-prod", "roles-view"] {
        world
            .until_target(name, "Ready", "False", "TargetSuspended")
            .await?;
    }
    let limit = Instant::now() + Duration::from_secs(30);
    while fence(RECONCILER, &[ROLE]).await.is_none() {
        assert!(
            Instant::now() < limit,
            "the pair of the role outlives its base's suspension"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(
        world.is_there(&secret("roles-view")).await?,
        "what was delivered stays"
    );
    Ok(())
}

/// Suspends the role and removes it, and adds it again, while a caller exchanges for the base without
/// a pause.
async fn it_comes_and_goes_under_load(world: &OnHub, role: &Value) -> TestResult {
    let own = caller_token(&world.hub, TENANT, RECONCILER).await?;
    let base = (own.clone(), format!("{TENANT}/roles-prod"));
    let load = Load::start(&world.broker, vec![base; 4]);
    let of_role = format!("{TENANT}/roles-view");
    let until_answered = async |status: u16| -> TestResult {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = world.broker.exchange(&own, &of_role).await?;
            if answer.status == status {
                return Ok(());
            }
            assert!(Instant::now() < limit, "{} {}", answer.status, answer.body);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters/roles-view";
    let mut suspended = role.clone();
    suspended["suspend"] = json!(true);
    world.put_target("roles-view", &suspended).await?;
    until_answered(503).await?;
    world.put_target("roles-view", role).await?;
    until_answered(200).await?;
    world.hub.admin().delete(path).await?;
    until_answered(400).await?;
    world.put_target("roles-view", role).await?;
    until_answered(200).await?;
    let exchanges = load.stop().await?;
    assert!(
        exchanges > 10,
        "{exchanges} exchanges for the base meanwhile"
    );
    let ready = world
        .until_access(TENANT, "roles-view", "Ready", "True", "Ready")
        .await;
    ready.map(|_| ())
}
