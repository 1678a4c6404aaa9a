//! ClusterProfiles, with the CRD from cluster-inventory-api's own module.

use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};

const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/inventory/clusterprofiles";

pub(crate) async fn a_foreign_profile_stays_and_ours_carries_the_way(
    world: Arc<OnHub>,
) -> TestResult {
    let module = world.ground.parts().module(Part::ClusterInventory).await?;
    let definition = module.join("config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml");
    apply_manifests(&world.hub, &[&definition]).await?;
    let tenant = Tenant::new(&world, "inventory", &EVERY_SHAPE).await?;
    world
        .until(PROFILES, "served", |list| list["items"].is_array())
        .await?;
    let path = format!("{PROFILES}/apps");

    let foreign = json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": { "name": "apps", "labels": { "x-k8s.io/cluster-manager": "keyferry", "keyferry.dev/access-name": "apps" } },
        "spec": { "displayName": "theirs", "clusterManager": { "name": "keyferry" } },
    });
    let before = world.hub.admin().create(PROFILES, &foreign).await?;
    tenant
        .put_access(
            "apps",
            json!([{ "name": "p", "type": "ClusterProfile", "objectName": "apps" }]),
        )
        .await?;
    tenant
        .until("apps", "Delivered", "False", "ObjectNotOurs")
        .await?;
    assert_eq!(
        world.hub.admin().get(&path).await?,
        before,
        "a byte changed"
    );
    world.hub.admin().delete(&path).await?;

    tenant.until_ready("apps").await?;
    let ours = provider(&world.hub.admin().get(&path).await?, "keyferry");
    assert_eq!(ours["cluster"]["server"], world.targets[0].url().as_str());
    assert!(
        ours["cluster"]["certificate-authority-data"].is_string(),
        "{ours}"
    );
    let extension = &ours["cluster"]["extensions"][0];
    assert_eq!(extension["name"], "client.authentication.k8s.io/exec");
    assert_eq!(extension["extension"]["clusterName"], "inventory/apps");

    // A status write for a deleted object must not reach another object of the same name.
    let mut stale =
        json!({ "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile" });
    stale["metadata"] = json!({ "name": "apps", "namespace": "inventory", "resourceVersion": before["metadata"]["resourceVersion"] });
    stale["status"] = json!({ "accessProviders": [{ "name": "stale", "cluster": { "server": "https://stale.example" } }] });
    let refused = world
        .hub
        .admin()
        .apply(&format!("{path}/status"), &stale)
        .await
        .err()
        .and_then(|error| error.status());
    assert_eq!(refused, Some(409));
    assert_eq!(
        provider(&world.hub.admin().get(&path).await?, "stale"),
        Value::Null
    );

    // Another manager adds a provider, and another client changes ours. Keyferry keeps the first
    // and fixes the second.
    let theirs = json!({ "name": "another", "cluster": { "server": "https://theirs.example" } });
    let mut edited = ours.clone();
    edited["cluster"]["server"] = json!("https://elsewhere.example");
    let change = json!({ "status": { "accessProviders": [edited, theirs] } });
    world
        .hub
        .admin()
        .patch(&format!("{path}/status"), &change)
        .await?;
    let ask = json!({ "metadata": { "annotations": { "keyferry.dev/requestedAt": "now" } } });
    world
        .hub
        .admin()
        .patch(&tenant.access("apps"), &ask)
        .await?;
    let fixed = world
        .until(&path, "fixed", |profile| {
            provider(profile, "keyferry") == ours
        })
        .await?;
    assert_eq!(provider(&fixed, "another"), theirs);
    Ok(())
}

fn provider(profile: &Value, name: &str) -> Value {
    let all = profile["status"]["accessProviders"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    all.into_iter()
        .find(|one| one["name"] == name)
        .unwrap_or_default()
}
