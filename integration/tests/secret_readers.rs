//! Tests delivered Secrets with the own readers of consumers that look for a key, labels or
//! annotations: `deliveries[].secret`. Each reader finds the Secret on the hub by itself, and calls
//! the target with what it read.
//!
//! multicluster-runtime and Kiali are missing: the Go module proxy serves no version of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::fleet::FleetError;
use keyferry_integration::parts::{Part, SecretReader};
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{BoxedSuite, Needed, NotStarted, Suite, TestError, TestResult};
use keyferry_integration::world::on_hub::{OnHub, RECONCILER, secret_path};
use serde_json::{Value, json};
use tokio::process::Command;

const TENANT: &str = "tenant-a";
const TARGET: &str = "target-a";
const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";
/// Longer than the programs wait for their controllers.
const LIMIT: Duration = Duration::from_secs(90);
/// The group of Kueue's kinds.
const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(start)
        // Its parts take minutes to build.
        .only_on_request()
        .needs(SecretReader::ALL.map(|reader| Needed::Part(Part::SecretReader(reader))))
        .test("istiod_syncs_the_target", istiod_syncs_the_target)
        .test(
            "multikueue_connects_to_the_target",
            multikueue_connects_to_the_target,
        )
        .test(
            "provider_kubernetes_makes_a_client_for_the_target",
            provider_kubernetes_makes_a_client_for_the_target,
        )
        .boxed()
}

async fn start() -> Result<OnHub, NotStarted> {
    let world = OnHub::start().await?;
    for reader in SecretReader::ALL {
        let part = Part::SecretReader(reader);
        world
            .ground
            .parts()
            .locate(part)
            .await
            .map_err(FleetError::from)?;
    }
    let mut spec = world.target_spec(0);
    spec["allow"] = json!([{
        "namespaces": [TENANT], "serviceAccounts": [RECONCILER], "deliveries": ["KubeConfigSecret"],
    }]);
    let prepared = world.put_target(TARGET, &spec).await;
    prepared.map_err(NotStarted::failed)?;
    Ok(world)
}

async fn istiod_syncs_the_target(world: Arc<OnHub>) -> TestResult {
    let secret = deliver(
        &world,
        "mesh",
        &json!({
            "key": "east", "labels": { "istio/multiCluster": "true" },
            "annotations": { "networking.istio.io/cluster": "east" },
        }),
    )
    .await?;
    // What istiod's informers of a remote cluster read.
    let reads = json!([
        rule("", &["namespaces", "nodes", "pods", "services"]),
        rule("discovery.k8s.io", &["endpointslices"]),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ]);
    allow(&world.targets[0], "istio-reader", &reads).await?;
    let synced = read(
        &world,
        SecretReader::Istio,
        &[TENANT.to_owned(), "east".to_owned()],
    )
    .await?;
    assert_eq!(synced["secret"], format!("{TENANT}/{secret}"));
    assert_eq!(synced["user"]["username"], AT_TARGET);
    let namespaces = synced["namespaces"].as_array().cloned().unwrap_or_default();
    assert!(namespaces.contains(&json!("kube-system")), "{synced}");

    // Without its label, istiod does not see the Secret: the cluster of another access is unknown.
    deliver(&world, "no-mesh", &json!({ "key": "west" })).await?;
    let unseen = read(
        &world,
        SecretReader::Istio,
        &[TENANT.to_owned(), "west".to_owned()],
    )
    .await;
    let said = unseen.map_or_else(|error| error.to_string(), |found| found.to_string());
    assert!(said.contains("cluster west is not synced"), "{said}");
    Ok(())
}

async fn multikueue_connects_to_the_target(world: Arc<OnHub>) -> TestResult {
    let secret = deliver(&world, "queue", &json!({ "key": "kubeconfig" })).await?;
    let wrong = deliver(&world, "queue-by-default", &json!({})).await?;
    let parts = world.ground.parts();
    let module = parts
        .module(Part::SecretReader(SecretReader::MultiKueue))
        .await?;
    let crd = |kind: &str| {
        module.join(format!(
            "config/components/crd/bases/kueue.x-k8s.io_{kind}.yaml"
        ))
    };
    let kinds = [
        "multikueueclusters",
        "multikueueconfigs",
        "admissionchecks",
        "workloads",
    ];
    let crds: Vec<PathBuf> = kinds.map(crd).into();
    let crds: Vec<_> = crds.iter().map(PathBuf::as_path).collect();
    apply_manifests(&world.hub, &crds).await?;
    apply_manifests(&world.targets[0], &[&crd("workloads")]).await?;
    let reads = json!([rule("kueue.x-k8s.io", &["workloads"])]);
    allow(&world.targets[0], "kueue-reader", &reads).await?;
    for (name, secret, status, message) in [
        ("east", &secret, "True", "Connected"),
        (
            "by-default",
            &wrong,
            "False",
            "key \"kubeconfig\" not found",
        ),
    ] {
        let cluster = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": { "name": name },
            "spec": { "clusterSource": { "kubeConfig": { "locationType": "Secret", "location": secret } } },
        });
        let path = format!("{KUEUE}/multikueueclusters/{name}");
        world.until_served(&path, &cluster).await?;
        let condition = read(
            &world,
            SecretReader::MultiKueue,
            &[TENANT.to_owned(), name.to_owned()],
        )
        .await?;
        assert_eq!(condition["status"], status, "{condition}");
        let said = condition["message"].as_str().unwrap_or_default();
        assert!(said.contains(message), "{condition}");
    }
    Ok(())
}

async fn provider_kubernetes_makes_a_client_for_the_target(world: Arc<OnHub>) -> TestResult {
    let secret = deliver(&world, "crossplane", &json!({ "key": "kubeconfig" })).await?;
    let by_default = deliver(&world, "crossplane-by-default", &json!({})).await?;
    for (name, key) in [(secret, "kubeconfig"), (by_default, "value")] {
        let spec = json!({ "credentials": {
            "source": "Secret", "secretRef": { "namespace": TENANT, "name": name, "key": key },
        } });
        let file = world.ground.folder().join(format!("{name}.json"));
        std::fs::write(&file, spec.to_string())?;
        let user = read(
            &world,
            SecretReader::ProviderKubernetes,
            &[file.display().to_string()],
        )
        .await?;
        assert_eq!(user["username"], AT_TARGET, "{key}");
    }
    Ok(())
}

/// Creates an access with a KubeConfigSecret of this shape, waits for the Secret, and returns its
/// name.
async fn deliver(world: &OnHub, access: &str, shape: &Value) -> Result<String, TestError> {
    let mut delivery = json!({ "name": "reader", "type": "KubeConfigSecret" });
    if shape.as_object().is_some_and(|shape| !shape.is_empty()) {
        delivery["secret"] = shape.clone();
    }
    let deliveries = json!({ "deliveries": [delivery] });
    world
        .put_access(TENANT, access, TARGET, &deliveries)
        .await?;
    world
        .until_access(TENANT, access, "Ready", "True", "Ready")
        .await?;
    let name = format!("{access}-kubeconfig");
    let secret = world.hub.admin().get(&secret_path(TENANT, &name)).await?;
    let key = shape["key"].as_str().unwrap_or("value");
    let keys: Vec<&String> = secret["data"]
        .as_object()
        .into_iter()
        .flat_map(|data| data.keys())
        .collect();
    assert_eq!(keys, [key]);
    Ok(name)
}

fn rule(group: &str, resources: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"] })
}

/// Lets the account of the deliveries do this at a target.
async fn allow(target: &ControlPlane, role: &str, rules: &Value) -> TestResult {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": role }, "rules": rules,
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
    target.admin().apply(&path, &object).await?;
    target.bind_user_to_cluster_role(AT_TARGET, role).await?;
    Ok(())
}

/// Runs a reader at the hub, and returns what it printed.
async fn read(
    world: &OnHub,
    reader: SecretReader,
    arguments: &[String],
) -> Result<Value, TestError> {
    let part = Part::SecretReader(reader);
    let program = world.ground.parts().locate(part).await?;
    let home = tempfile::tempdir()?;
    let run = Command::new(program)
        .arg(world.hub.admin_kubeconfig())
        .args(arguments)
        .env("HOME", home.path())
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, run).await??;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}
