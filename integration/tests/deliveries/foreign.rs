//! Objects that are not Keyferry's: Keyferry changes no byte of them, and the condition reports the
//! conflict.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};

pub(crate) async fn objects_of_others_stay_as_they_are(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "foreign", &EVERY_SHAPE).await?;
    let owner = |uid: &str| json!([{ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "name": "x", "uid": uid, "controller": true }]);
    let labels = json!({ "app.kubernetes.io/managed-by": "keyferry", "keyferry.dev/access-name": "labelled" });
    // An existing owner, so that the hub's garbage collector does not delete the object.
    tenant
        .put_access("owner", json!([{ "name": "h", "type": "HTTP" }]))
        .await?;
    let other = tenant.until_ready("owner").await?["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let mut other_owner = owner(&other);
    other_owner[0]["name"] = json!("owner");
    let cases = [
        ("labelled", json!({ "labels": labels }), false),
        ("owned", json!({ "ownerReferences": other_owner }), false),
        ("plain", json!({}), false),
        ("frozen", json!({}), true),
    ];
    let mut before = Vec::new();
    for (name, metadata, immutable) in &cases {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "value": "bWluZQ==" }, "immutable": immutable,
        });
        secret["metadata"]["name"] = json!(format!("{name}-kubeconfig"));
        before.push(world.hub.admin().create(&tenant.secrets(), &secret).await?);
        tenant
            .put_access(name, json!([{ "name": "s", "type": "KubeConfigSecret" }]))
            .await?;
    }
    for ((name, ..), before) in cases.iter().zip(&before) {
        let access = tenant
            .until(name, "Delivered", "False", "ObjectNotOurs")
            .await?;
        assert!(
            access.to_string().contains(&format!("{name}-kubeconfig")),
            "{access}"
        );
        let after = world
            .hub
            .admin()
            .get(&tenant.secret(&format!("{name}-kubeconfig")))
            .await?;
        assert_eq!(&after, before, "{name}: a byte changed");
    }
    assert_eq!(
        tenant.written()?,
        0,
        "nothing is minted for an object that cannot be written"
    );
    // When the cause is gone, the delivery recovers.
    world
        .hub
        .admin()
        .delete(&tenant.secret("plain-kubeconfig"))
        .await?;
    tenant.until_ready("plain").await?;
    Ok(())
}

pub(crate) async fn a_second_secret_for_one_server_is_not_written(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "argo", &EVERY_SHAPE).await?;
    let argo = |name: &str| json!([{ "name": name, "type": "ArgoCDSecret", "argoCD": { "project": "apps" } }]);
    tenant.put_access("first", argo("a")).await?;
    tenant.until_ready("first").await?;
    // A second's difference, so that this access is the younger one.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    tenant.put_access("second", argo("a")).await?;
    tenant
        .until("second", "Delivered", "False", "ObjectNotOurs")
        .await?;
    assert!(!world.is_there(&tenant.secret("cluster-second")).await?);
    world.hub.admin().delete(&tenant.access("first")).await?;
    tenant.until_ready("second").await?;
    Ok(())
}

pub(crate) async fn what_others_add_to_an_object_stays_and_what_they_change_is_fixed(
    world: Arc<OnHub>,
) -> TestResult {
    let tenant = Tenant::new(&world, "edited", &EVERY_SHAPE).await?;
    tenant.put_access("apps", json!([{ "name": "m", "type": "FluxConfigMap" }, { "name": "s", "type": "KubeConfigSecret" }])).await?;
    tenant.until_ready("apps").await?;
    let (path, secret) = (
        "/api/v1/namespaces/edited/configmaps/apps",
        tenant.secret("apps-kubeconfig"),
    );
    let change = json!({ "metadata": { "labels": { "theirs": "x" } }, "data": { "address": "https://elsewhere.example" } });
    world.hub.admin().patch(path, &change).await?;
    world.hub.admin().delete(&secret).await?;
    // Keyferry does not watch these objects, but it watches for a requested check.
    let ask = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": "now" } } });
    world
        .hub
        .admin()
        .patch(&tenant.access("apps"), &ask)
        .await?;
    let address = world.targets[0].url();
    let fixed = world
        .until(path, "fixed", |map: &Value| {
            map["data"]["address"] == address.as_str()
        })
        .await?;
    assert_eq!(fixed["metadata"]["labels"]["theirs"], "x");
    world
        .until(&secret, "there again", |secret: &Value| {
            secret["data"]["value"].is_string()
        })
        .await?;
    let handled = |access: &Value| access["status"]["lastHandledReconcileAt"] == "now";
    world
        .until(&tenant.access("apps"), "handled", handled)
        .await?;
    Ok(())
}
