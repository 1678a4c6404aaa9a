//! `ClusterAPISecret` beside Cluster API. The test's own small CRD has the group, kind and versions
//! of Cluster API's Cluster, because Keyferry only checks whether an object of that name exists.

use std::sync::Arc;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::OnHub;
use serde_json::{Value, json};

use super::tenant::{EVERY_SHAPE, Tenant};

const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.cluster.x-k8s.io";

/// Older releases of Cluster API serve `v1beta1` alone, newer ones will serve `v1beta2` alone.
pub(crate) async fn a_secret_of_a_cluster_is_left_to_it(world: Arc<OnHub>) -> TestResult {
    let tenant = Tenant::new(&world, "capi", &EVERY_SHAPE).await?;
    serve(&world, "v1beta1").await?;
    let cluster = json!({ "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {} });
    world
        .hub
        .admin()
        .create(
            "/apis/cluster.x-k8s.io/v1beta1/namespaces/capi/clusters",
            &cluster,
        )
        .await?;
    for (version, access) in [("v1beta1", "prod"), ("v1beta2", "later")] {
        serve(&world, version).await?;
        let delivery =
            json!([{ "name": "c", "type": "ClusterAPISecret", "objectName": "prod-kubeconfig" }]);
        tenant.put_access(access, delivery).await?;
        let refused = tenant
            .until(access, "Delivered", "False", "ObjectNotOurs")
            .await?;
        assert!(
            refused
                .to_string()
                .contains(&format!("{version}/namespaces/capi/clusters/prod")),
            "{refused}"
        );
        assert!(!world.is_there(&tenant.secret("prod-kubeconfig")).await?);
        if version == "v1beta1" {
            world.hub.admin().delete(&tenant.access(access)).await?;
            world.until_gone(&tenant.access(access)).await?;
        }
    }
    assert_eq!(tenant.written()?, 0, "nothing is minted for it");
    world
        .hub
        .admin()
        .delete("/apis/cluster.x-k8s.io/v1beta2/namespaces/capi/clusters/prod")
        .await?;
    tenant.until_ready("later").await?;
    let secret = world
        .hub
        .admin()
        .get(&tenant.secret("prod-kubeconfig"))
        .await?;
    assert_eq!(secret["type"], "cluster.x-k8s.io/secret");
    assert_eq!(
        secret["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"],
        "prod"
    );
    Ok(())
}

/// Applies the CRD with both versions, one of which is served.
async fn serve(world: &OnHub, served: &str) -> Result<(), TestError> {
    let version = |name: &str| {
        json!({
            "name": name, "served": name == served, "storage": name == "v1beta2",
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "clusters.cluster.x-k8s.io",
            "annotations": { "api-approved.kubernetes.io": "unapproved, a test's own" } },
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": { "kind": "Cluster", "plural": "clusters", "singular": "cluster" },
            "versions": [version("v1beta1"), version("v1beta2")],
        },
    });
    world.hub.admin().apply(CRD, &crd).await?;
    let list = format!("/apis/cluster.x-k8s.io/{served}/namespaces/capi/clusters");
    world
        .until(&list, "served", |list: &Value| list["items"].is_array())
        .await?;
    Ok(())
}
