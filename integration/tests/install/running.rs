//! Runs Keyferry with the base's own ServerConfiguration, as the base's ServiceAccount with its
//! rights. Tests what it does for a tenant, and that the hub refuses it nothing.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::until_gone;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::process::{self, Ports, Shipped, Started};
use super::setup::{Hubs, TENANT};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "system:serviceaccount:keyferry-system:keyferry";

pub(crate) async fn keyferry_works_with_these_rights(hubs: Arc<Hubs>) -> TestResult {
    let hub = &hubs.base;
    hub.create_service_account(TENANT, "reconciler").await?;
    let keyferry = serve(&hubs).await?;
    let targets = "/apis/keyferry.dev/v1alpha1/targetclusters";
    let accesses = format!("/apis/keyferry.dev/v1alpha1/namespaces/{TENANT}/targetaccesses");
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": "prod" },
        "spec": {
            "address": hub.url(), "audience": "https://prod.keyferry.test", "caBundle": hub.ca_pem(),
            "allow": [{ "namespaces": [TENANT], "serviceAccounts": ["reconciler"] }],
        },
    });
    hub.admin().create(targets, &target).await?;
    let access = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": "prod" },
        "spec": {
            "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler", "probe": "Off",
            "deliveries": [{ "name": "flux", "type": "FluxConfigMap" }],
        },
    });
    hub.admin().create(&accesses, &access).await?;

    // It creates, reads and replaces the object, and writes both statuses, the Event and the pairs.
    let config_map = format!("/api/v1/namespaces/{TENANT}/configmaps/prod");
    let made = until(hub, &config_map, |object| {
        object["data"]["address"] == hub.url()
    })
    .await?;
    assert_eq!(made["data"]["serviceAccountName"], "reconciler");
    until(hub, &format!("{accesses}/prod"), |object| {
        ready(object) == Some("True")
    })
    .await?;
    until(hub, &format!("{targets}/prod"), |object| {
        ready(object) == Some("True")
    })
    .await?;
    let pairs = |object: &Value| {
        object["pairs"]
            .to_string()
            .contains(&format!("{TENANT}/reconciler"))
    };
    until(
        hub,
        "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry",
        pairs,
    )
    .await?;
    let events = format!("/apis/events.k8s.io/v1/namespaces/{TENANT}/events");
    until(hub, &events, |list| {
        list.to_string().contains("keyferry.dev/keyferry")
    })
    .await?;
    let moved = hub.url().replace("127.0.0.1", "localhost");
    hub.admin()
        .patch(
            &format!("{targets}/prod"),
            &json!({ "spec": { "address": moved } }),
        )
        .await?;
    until(hub, &config_map, |object| {
        object["data"]["address"] == moved
    })
    .await?;
    hub.admin()
        .patch(
            &format!("{targets}/prod"),
            &json!({ "spec": { "allow": [] } }),
        )
        .await?;
    until_gone(hub.admin(), &config_map).await?;
    hub.admin()
        .patch(
            &format!("{targets}/prod"),
            &json!({ "spec": { "allow": target["spec"]["allow"] } }),
        )
        .await?;
    until(hub, &config_map, |object| {
        object["data"]["address"] == moved
    })
    .await?;
    hub.admin().delete(&format!("{accesses}/prod")).await?;
    // This hub has no Flux and nothing else reads such a ConfigMap, so nothing has to remain.
    until_gone(hub.admin(), &format!("{accesses}/prod")).await?;
    hub.admin().delete(&format!("{targets}/prod")).await?;
    keyferry.process.stop().await?;
    refused_nothing(hub)
}

/// Starts a process with the base's configuration, and with this machine's ports and certificates.
async fn serve(hubs: &Hubs) -> Result<Started, TestError> {
    let name = "of-the-base";
    let (_, certified) = process::certificate(&process::folder(hubs, name))?;
    let config = std::fs::read_to_string(shipped("examples/install/base/config.yaml"))?;
    let shipped = Shipped {
        name,
        config: process::with_certificate(config, &certified),
        variables: Vec::new(),
        ports: Ports::free()?,
    };
    process::start(hubs, &hubs.base, shipped).await
}

fn ready(object: &Value) -> Option<&str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")?["status"]
        .as_str()
}

async fn until(
    hub: &ControlPlane,
    path: &str,
    holds: impl Fn(&Value) -> bool,
) -> Result<Value, TestError> {
    until_object(hub.admin(), path, "as it should be", WAIT_LIMIT, holds).await
}

/// Checks that the hub's audit log has no 403 for Keyferry's account, and contains what it wrote.
fn refused_nothing(hub: &ControlPlane) -> TestResult {
    let events = hub.audit_events()?;
    let own: Vec<&Value> = events
        .iter()
        .filter(|event| event["user"]["username"] == ACCOUNT)
        .collect();
    let refused: Vec<String> = own
        .iter()
        .filter(|event| event["responseStatus"]["code"] == 403)
        .map(|event| event["requestURI"].to_string())
        .collect();
    assert!(refused.is_empty(), "the hub refused Keyferry: {refused:#?}");
    for (verb, resource) in [
        ("create", "configmaps"),
        ("update", "configmaps"),
        ("delete", "configmaps"),
        ("create", "secrets"),
        ("create", "leases"),
        ("patch", "targetaccesses"),
        ("patch", "targetclusters"),
        ("create", "audiencepairings"),
        ("create", "events"),
        ("watch", "targetaccesses"),
        ("get", "validatingadmissionpolicies"),
    ] {
        let done = own
            .iter()
            .any(|event| event["verb"] == verb && event["objectRef"]["resource"] == resource);
        assert!(
            done,
            "Keyferry did not {verb} {resource}, so its right to it was not tried"
        );
    }
    Ok(())
}
