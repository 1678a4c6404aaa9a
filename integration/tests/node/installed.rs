//! Keyferry as Pods, installed as docs/guides/hub.md says: by the chart, and by the kustomize base.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::node::image_of;
use keyferry_integration::parts::{NodePart, Part};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use keyferry_integration::world::on_hub::audience;
use keyferry_integration::world::until_trusted;
use serde_json::{Value, json};

use super::installation::{Installation, Policies, Version, Way};
use super::setup::{ACCOUNT, Cluster, IMAGE, SYSTEM, TENANT, has_condition, put_tls};
use super::{attacker, installation, left, memory, policies, rolling, workload};

/// The names of the images in `examples/in-cluster`.
const EXAMPLE: &str = "docker.io/library/keyferry:0.1.0";
const DEPLOYER: &str = "docker.io/library/deployer:1.0.0";
const KUBECTL: &str = "docker.io/library/kubectl:1.36";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/keyferry-system/deployments/keyferry";
pub(crate) const GROUP: &str = "/apis/keyferry.dev/v1alpha1";
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// What Keyferry warns of while the admission policies are not installed.
const WITHOUT_POLICIES: [&str; 4] = [
    "AuthorUnchecked",
    "LabelsUnprotected",
    "PairingUnprotected",
    "AdmissionPolicyIncomplete",
];

pub(crate) async fn by_the_chart(cluster: Arc<Cluster>) -> TestResult {
    from_installation_to_removal(&cluster, Way::Chart).await
}

pub(crate) async fn by_the_base(cluster: Arc<Cluster>) -> TestResult {
    from_installation_to_removal(&cluster, Way::Base).await
}

async fn from_installation_to_removal(cluster: &Cluster, way: Way) -> TestResult {
    images(cluster).await?;
    prepare(cluster, way).await?;
    let before = left::everything(cluster).await?;
    // Those of an earlier removal. A PodDisruptionBudget that outlives its Deployment for a moment
    // is a warning.
    let earlier: BTreeSet<String> = warnings(cluster).await?.iter().map(uid).collect();
    let previous = Installation {
        way,
        version: Version::Previous,
        policies: Policies::Without,
        annotation: "",
    };
    previous.apply(cluster).await?;
    until_rolled_out(cluster).await?;
    policy(cluster).await?;

    let mut this = Installation {
        version: Version::This,
        ..previous
    };
    rolling::both_versions_serve(cluster, this).await?;
    if way == Way::Chart {
        rolling::an_update_fails_no_request(cluster, installation::roll_back(cluster)).await?;
        rolling::an_update_fails_no_request(cluster, this.apply(cluster)).await?;
    }
    nothing_went_wrong(cluster, &earlier, &WITHOUT_POLICIES).await?;

    policies::install(cluster, this).await?;
    if way == Way::Chart {
        this.policies = Policies::With;
    }
    this.annotation = "next";
    rolling::an_update_fails_no_request(cluster, this.apply(cluster)).await?;
    policies::accesses_are_proven(cluster).await?;
    let pods = pods(cluster).await?;
    both_replicas_run_restricted(cluster, &pods).await?;
    workload::the_examples_apply_to_both_targets(cluster).await?;
    if way == Way::Chart {
        attacker::another_tenant_reaches_what_the_docs_say(cluster, &pods).await?;
        workload::figures(cluster, &pods).await?;
        memory::its_limit_holds_under_load(cluster).await?;
    }
    // A drain ends one of these Pods, and its log with it.
    nothing_went_wrong(cluster, &earlier, &[]).await?;
    rolling::a_drain_leaves_one_replica(cluster).await?;
    nothing_went_wrong(cluster, &earlier, &[]).await?;
    installation::remove(cluster, way).await?;
    left::only_the_documented(cluster, way, &before).await
}

/// Gives the node the images that the chart, the base and the examples name.
async fn images(cluster: &Cluster) -> TestResult {
    cluster.node.tag(IMAGE, EXAMPLE).await?;
    let parts = cluster.ground.parts();
    let kubectl = parts.locate(Part::Kubectl).await?;
    let tool = parts.locate(Part::Node(NodePart::PodTool)).await?;
    let user = "65532:65532";
    cluster
        .node
        .import(&image_of(&[&kubectl], user)?, KUBECTL)
        .await?;
    let programs = [&cluster.image()?.binary, &kubectl, &tool].map(PathBuf::as_path);
    cluster
        .node
        .import(&image_of(&programs, user)?, DEPLOYER)
        .await
}

/// Creates what an installation needs: the namespaces, and the Secrets for TLS.
async fn prepare(cluster: &Cluster, way: Way) -> TestResult {
    let hub = &cluster.hub;
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    for namespace in [SYSTEM, TENANT] {
        hub.create_namespace(namespace).await?;
        // The hub's controllers add them to each namespace. They are not left by Keyferry.
        for object in ["configmaps/kube-root-ca.crt", "serviceaccounts/default"] {
            let path = format!("/api/v1/namespaces/{namespace}/{object}");
            until(&path, WAIT_LIMIT, || async {
                Ok(hub.admin().exists(&path).await?)
            })
            .await?;
        }
    }
    hub.create_service_account(TENANT, ACCOUNT).await?;
    hub.admin()
        .patch(&format!("/api/v1/namespaces/{TENANT}"), &restricted)
        .await?;
    if way == Way::Chart {
        // The base has it in its Namespace.
        hub.admin()
            .patch(&format!("/api/v1/namespaces/{SYSTEM}"), &restricted)
            .await?;
    }
    put_tls(cluster, SYSTEM).await?;
    let authority = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "keyferry-ca", "namespace": TENANT },
        "data": { "ca.crt": cluster.ground.ca().cert_pem() },
    });
    let path = format!("/api/v1/namespaces/{TENANT}/configmaps/keyferry-ca");
    hub.admin().apply(&path, &authority).await?;
    Ok(())
}

/// Waits until the Deployment is what its newest generation says, and returns its Pods.
pub(crate) async fn until_rolled_out(cluster: &Cluster) -> Result<Vec<Value>, TestError> {
    let done = |deployment: &Value| {
        let status = &deployment["status"];
        let count = |field: &str| status[field].as_u64().unwrap_or_default();
        status["observedGeneration"] == deployment["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"].map(count) == [2, 2, 2]
    };
    let rolled = until_object(
        cluster.hub.admin(),
        DEPLOYMENT,
        "rolled out",
        WAIT_LIMIT,
        done,
    )
    .await;
    if let Err(error) = rolled {
        let selector = "app.kubernetes.io/name=keyferry";
        let pods = cluster.kubectl(&["describe", "pods", "-n", SYSTEM]).await?;
        let logs = [
            "logs",
            "-n",
            SYSTEM,
            "-l",
            selector,
            "--tail=20",
            "--prefix",
        ];
        let logs = cluster.kubectl(&logs).await.unwrap_or_default();
        return Err(format!("{error}\n{pods}\n{logs}").into());
    }
    // Pods of the previous generation may still be ending.
    let running = std::sync::Mutex::new(Vec::new());
    until("two Pods are left", WAIT_LIMIT, || async {
        let pods = pods(cluster).await?;
        let count = pods.len();
        *running.lock().map_err(|error| error.to_string())? = pods;
        Ok(count == 2)
    })
    .await?;
    Ok(running.into_inner()?)
}

/// Keyferry's Pods.
pub(crate) async fn pods(cluster: &Cluster) -> Result<Vec<Value>, TestError> {
    let path =
        format!("/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/name=keyferry");
    let list = cluster.hub.admin().get(&path).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

async fn both_replicas_run_restricted(cluster: &Cluster, pods: &[Value]) -> TestResult {
    let namespace = format!("/api/v1/namespaces/{SYSTEM}");
    let namespace = cluster.hub.admin().get(&namespace).await?;
    let label = "pod-security.kubernetes.io/enforce";
    assert_eq!(namespace["metadata"]["labels"][label], "restricted");
    for pod in pods {
        assert!(has_condition(pod, "Ready"), "{pod}");
        let container = &pod["status"]["containerStatuses"][0];
        assert_eq!(container["restartCount"], 0, "{container}");
        // The image's user, which the kubelet has checked not to be root.
        assert_eq!(container["user"]["linux"]["uid"], 65532, "{container}");
    }
    let budget = format!("/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets/keyferry");
    let allowed = |budget: &Value| budget["status"]["disruptionsAllowed"] == 1;
    until_object(
        cluster.hub.admin(),
        &budget,
        "in force",
        WAIT_LIMIT,
        allowed,
    )
    .await?;
    Ok(())
}

/// Two targets, and the tenant's accesses to them.
async fn policy(cluster: &Cluster) -> TestResult {
    let admin = cluster.hub.admin();
    for (target, name) in cluster.targets.iter().zip(["prod", "stage"]) {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name },
            "spec": {
                "address": format!("https://{}.keyferry.test:6443", target.name()),
                "audience": audience(target.name()), "caBundle": target.ca_pem(),
                "allow": [{
                    "namespaces": [TENANT], "serviceAccounts": [ACCOUNT],
                    "deliveries": ["HTTP", "Exec", "FluxConfigMap", "KubeConfigSecret"],
                }],
            },
        });
        let path = format!("{GROUP}/targetclusters/{name}");
        admin.apply(&path, &object).await?;
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
            "metadata": { "name": name, "namespace": TENANT },
            "spec": {
                "targetClusterRef": { "name": name }, "serviceAccountName": ACCOUNT,
                "deliveries": [
                    { "name": "flux", "type": "FluxConfigMap" },
                    { "name": "http", "type": "HTTP" },
                    { "name": "exec", "type": "Exec" },
                ],
            },
        });
        admin.apply(&access(name), &object).await?;
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "namespace-reader" },
            "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] }],
        });
        let role_path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/namespace-reader";
        target.admin().apply(role_path, &role).await?;
        // The user that the target gives the tenant's ServiceAccount.
        let user = format!("hub:system:serviceaccount:{TENANT}:{ACCOUNT}");
        target
            .bind_user_to_cluster_role(&user, "namespace-reader")
            .await?;
        let ready = |target: &Value| has_condition(target, "Ready");
        until_object(admin, &path, "ready", WAIT_LIMIT, ready).await?;
        // Before there are admission policies, Keyferry mints no token for a probe, so no condition
        // says whether the target is reached.
        let delivered =
            |access: &Value| has_condition(access, "Ready") && has_condition(access, "Delivered");
        until_object(admin, &access(name), "delivered", WAIT_LIMIT, delivered).await?;
        until_trusted(&cluster.hub, target).await?;
    }
    Ok(())
}

pub(crate) fn access(name: &str) -> String {
    format!("{GROUP}/namespaces/{TENANT}/targetaccesses/{name}")
}

/// Keyferry logged no error, and Kubernetes sent no Event about a fault.
async fn nothing_went_wrong(
    cluster: &Cluster,
    earlier: &BTreeSet<String>,
    expected_warnings: &[&str],
) -> TestResult {
    for pod in pods(cluster).await? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let log = cluster.kubectl(&["logs", "-n", SYSTEM, name]).await?;
        assert!(log.contains("serving"), "{log}");
        for line in log.lines() {
            let entry: Value = serde_json::from_str(line)?;
            let reason = entry["fields"]["reason"].as_str().unwrap_or_default();
            let expected = match entry["level"].as_str() {
                Some("WARN") => expected_warnings.contains(&reason),
                Some("INFO") => true,
                Some(_) => false,
                None => is_expected(&entry),
            };
            assert!(expected, "{line}");
        }
        for record in audit_records(cluster, &pod)? {
            assert!(is_expected(&record), "{record}");
        }
    }
    for event in warnings(cluster).await? {
        if earlier.contains(&uid(&event)) {
            continue;
        }
        let namespace = event["involvedObject"]["namespace"]
            .as_str()
            .unwrap_or_default();
        // On a slow machine the kubelet may probe a Pod before it is ready, or has its first token.
        let early = event["message"].as_str().is_some_and(|message| {
            ["Readiness", "Startup"]
                .iter()
                .any(|probe| message.starts_with(&format!("{probe} probe failed")))
        });
        let of_test = [SYSTEM, TENANT].contains(&namespace);
        // A drained node has no place for the second replica.
        let drained = event["reason"] == "FailedScheduling";
        // The disruption controller saw a new Pod before its ReplicaSet. It counts again at once.
        let uncounted = event["reason"] == "CalculateExpectedPodCountFailed"
            && event["source"]["component"] == "controllermanager";
        // kube-apiserver's repair of addresses ran between two of its own writes.
        let repaired = event["reason"] == "ClusterIPNotAllocated"
            && event["reportingComponent"] == "ipallocator-repair-controller";
        // The Pod that tries the NetworkPolicy has Keyferry's label, and no Deployment.
        let probing = event["reason"] == "UnmanagedPods";
        let of_hub = uncounted || repaired || probing;
        assert!(early || drained || of_hub || !of_test, "{event}");
    }
    Ok(())
}

/// The Events of the hub about faults.
async fn warnings(cluster: &Cluster) -> Result<Vec<Value>, TestError> {
    let path = "/api/v1/events?fieldSelector=type=Warning";
    let events = cluster.hub.admin().get(path).await?;
    Ok(events["items"].as_array().cloned().unwrap_or_default())
}

fn uid(object: &Value) -> String {
    let uid = object["metadata"]["uid"].as_str();
    uid.unwrap_or_default().to_owned()
}

/// The records in the audit file of a running Pod. None if it writes them to standard output.
pub(crate) fn audit_records(cluster: &Cluster, pod: &Value) -> Result<Vec<Value>, TestError> {
    let folder = cluster.node.empty_dir(&uid(pod), "audit");
    match std::fs::read_to_string(folder.join("audit.log")) {
        Ok(text) => text
            .lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect(),
        Err(_) => Ok(Vec::new()),
    }
}

/// Whether an audit record is of a kind that the suite causes: only the attacker is refused.
fn is_expected(record: &Value) -> bool {
    record["decision"] == "granted" || refused_to_attacker(record)
}

/// The attacker's requests, with its token and without one; and, counted together, those without
/// one that met a limit.
fn refused_to_attacker(record: &Value) -> bool {
    let caller = record["caller"].as_str();
    let attacker = caller.is_none_or(|caller| caller == "system:serviceaccount:tenant-b:attacker");
    record["decision"] == "denied"
        && attacker
        && ["exchange", "kubeconfig", "summary"]
            .iter()
            .any(|route| record["route"] == *route)
}
