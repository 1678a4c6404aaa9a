//! Tests the written objects and their use.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, access_path, secret_path};
use serde_json::{Value, json};

/// A TargetCluster for target-a that tenant-a may use in every shape.
pub(crate) async fn open_target(
    world: &OnHub,
    name: &str,
    further: &Value,
) -> Result<(), TestError> {
    let mut spec = world.target_spec(0);
    spec["audience"] = json!(format!("https://{name}.keyferry.test"));
    spec["allow"] = json!([{
        "namespaces": ["tenant-a"], "serviceAccounts": [RECONCILER],
        "deliveries": ["HTTP", "Exec", "FluxConfigMap", "KubeConfigSecret", "ClusterAPISecret", "ArgoCDSecret", "ClusterProfile"],
    }]);
    for (field, value) in further.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    world.put_target(name, &spec).await
}

/// The decoded value of a key in a Secret's data.
pub(crate) fn decoded(secret: &Value, key: &str) -> Result<String, TestError> {
    let text = secret["data"][key]
        .as_str()
        .ok_or_else(|| format!("the Secret has no {key}"))?;
    Ok(String::from_utf8(STANDARD.decode(text)?)?)
}

pub(crate) async fn a_secret_leads_to_the_target(world: Arc<OnHub>) -> TestResult {
    open_target(&world, "target-a", &json!({})).await?;
    world
        .until_target("target-a", "Ready", "True", "Ready")
        .await?;
    let deliveries = json!({ "deliveries": [{ "name": "flux", "type": "KubeConfigSecret" }] });
    world
        .put_access("tenant-a", "apps", "target-a", &deliveries)
        .await?;
    world
        .until_access("tenant-a", "apps", "Ready", "True", "Ready")
        .await?;
    // Keyferry finds out the identity at the target separately from the delivery.
    let with_identity = |access: &Value| access["status"]["identity"]["username"].is_string();
    let access = world
        .until(
            &access_path("tenant-a", "apps"),
            "with its identity",
            with_identity,
        )
        .await?;
    let secret = world
        .hub
        .admin()
        .get(&secret_path("tenant-a", "apps-kubeconfig"))
        .await?;
    let kubeconfig = decoded(&secret, "value")?;
    let file = world.ground.folder().join("apps.kubeconfig");
    std::fs::write(&file, &kubeconfig)?;
    let who = world
        .hub
        .kubectl_with(
            &file,
            &[
                "auth",
                "whoami",
                "-o",
                "jsonpath={.status.userInfo.username}",
            ],
        )
        .await?;
    assert_eq!(
        String::from_utf8_lossy(&who.stdout),
        "hub:system:serviceaccount:tenant-a:reconciler",
        "{who:?}"
    );
    assert_eq!(
        access["status"]["identity"]["username"],
        "hub:system:serviceaccount:tenant-a:reconciler"
    );
    assert_eq!(
        access["status"]["cluster"]["audience"],
        "https://target-a.keyferry.test"
    );
    assert!(
        !access.to_string().contains(kubeconfig.trim()),
        "the status holds no token"
    );
    let expires = secret["metadata"]["annotations"]["keyferry.dev/expires-at"]
        .as_str()
        .ok_or("no expiry")?
        .to_owned();
    let exposure = access["status"]["exposureUntil"]
        .as_str()
        .ok_or("no exposure")?;
    assert_eq!(expires.get(..19), exposure.get(..19));
    Ok(())
}

/// Works without the server, on the same objects and with the user's own rights.
pub(crate) async fn the_command_line_reads_the_same_objects(world: Arc<OnHub>) -> TestResult {
    let tenant = super::tenant::Tenant::new(&world, "by-hand", &super::tenant::EVERY_SHAPE).await?;
    tenant
        .put_access("apps", json!([{ "name": "h", "type": "HTTP" }]))
        .await?;
    tenant.until_ready("apps").await?;
    // The access may be ready before the target's status is written.
    let target = "/apis/keyferry.dev/v1alpha1/targetclusters/by-hand";
    world
        .until(target, "a status about its spec", |object| {
            object["status"]["observedGeneration"] == object["metadata"]["generation"]
        })
        .await?;
    let (config, hub) = (
        world.broker.config().display().to_string(),
        world.hub.admin_kubeconfig().display().to_string(),
    );
    let token = |access: &'static str| {
        let arguments =
            ["token", access, "--config", &config, "--kubeconfig", &hub].map(str::to_owned);
        let binary = world.ground.binary().clone();
        async move {
            binary
                .run(&arguments.each_ref().map(String::as_str), &[])
                .await
        }
    };
    let good = token("by-hand/apps").await?;
    assert!(
        good.status.success(),
        "{}",
        String::from_utf8_lossy(&good.stderr)
    );
    let claims = keyferry_integration::world::claims(String::from_utf8_lossy(&good.stdout).trim())?;
    assert_eq!(claims["aud"], json!(["https://by-hand.keyferry.test"]));
    let none = token("by-hand/absent").await?;
    assert!(
        !none.status.success()
            && String::from_utf8_lossy(&none.stderr).contains("TargetNotGranted"),
        "{none:?}"
    );
    Ok(())
}
