//! Keyferry as Pods, installed as docs/install.md says: by the chart, and by the kustomize base.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use keyferry_image::{Architecture, Image, ImageConfig, ImageFile};
use keyferry_integration::parts::{NodePart, Part};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use keyferry_integration::world::on_hub::{audience, until_gone};
use keyferry_integration::world::{shipped, until_trusted};
use serde_json::{Value, json};

use super::setup::{ACCOUNT, Cluster, IMAGE, SYSTEM, TENANT, has_condition};
use super::{attacker, rolling, workload};
use crate::install::overlay::overlay;

/// The names of the images in `examples/in-cluster`.
const EXAMPLE: &str = "docker.io/library/keyferry:0.1.0";
const DEPLOYER: &str = "docker.io/library/deployer:1.0.0";
const KUBECTL: &str = "docker.io/library/kubectl:1.36";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/keyferry-system/deployments/keyferry";
const GROUP: &str = "/apis/keyferry.dev/v1alpha1";
const WITHIN: Duration = Duration::from_secs(120);
/// What the chart leaves, as docs/install.md says.
const KEPT: [&str; 8] = [
    "apiservices.apiregistration.k8s.io /v1alpha1.keyferry.dev",
    "audiencepairings.keyferry.dev /keyferry",
    "customresourcedefinitions.apiextensions.k8s.io /audiencepairings.keyferry.dev",
    "customresourcedefinitions.apiextensions.k8s.io /targetaccesses.keyferry.dev",
    "customresourcedefinitions.apiextensions.k8s.io /targetclusters.keyferry.dev",
    "leases.coordination.k8s.io keyferry-system/keyferry",
    "secrets keyferry-system/keyferry-keys",
    "secrets keyferry-system/keyferry-seal",
];
/// What Keyferry warns of while the admission policies are not installed.
const WITHOUT_POLICIES: [&str; 4] = [
    "AuthorUnchecked",
    "LabelsUnprotected",
    "PairingUnprotected",
    "AdmissionPolicyIncomplete",
];

/// The two ways of docs/install.md.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Chart,
    Base,
}

pub(crate) async fn by_the_chart(cluster: Arc<Cluster>) -> TestResult {
    from_installation_to_removal(&cluster, Way::Chart).await
}

pub(crate) async fn by_the_base(cluster: Arc<Cluster>) -> TestResult {
    from_installation_to_removal(&cluster, Way::Base).await
}

async fn from_installation_to_removal(cluster: &Cluster, way: Way) -> TestResult {
    images(cluster).await?;
    prepare(cluster, way).await?;
    let before = everything(cluster).await?;
    // Those of an earlier removal. A PodDisruptionBudget that outlives its Deployment for a moment
    // is a warning.
    let earlier: BTreeSet<String> = warnings(cluster).await?.iter().map(uid).collect();
    install(cluster, way, "").await?;
    let pods = until_rolled_out(cluster).await?;
    both_replicas_run_restricted(cluster, &pods).await?;
    policy(cluster).await?;
    workload::the_examples_reach_both_targets(cluster).await?;
    if way == Way::Chart {
        attacker::another_tenant_reaches_what_the_docs_say(cluster, &pods).await?;
        workload::figures(cluster, &pods).await?;
    }
    // The update ends these Pods, and their logs with them.
    nothing_went_wrong(cluster, &earlier).await?;
    rolling::an_update_fails_no_request(cluster, way).await?;
    rolling::a_drain_leaves_one_replica(cluster).await?;
    nothing_went_wrong(cluster, &earlier).await?;
    remove(cluster, way).await?;
    left(cluster, way, &before).await
}

/// Gives the node the images that the chart, the base and the examples name.
async fn images(cluster: &Cluster) -> TestResult {
    cluster.node.tag(IMAGE, EXAMPLE).await?;
    let parts = cluster.ground.parts();
    let kubectl = std::fs::read(parts.locate(Part::Kubectl).await?)?;
    let tool = std::fs::read(parts.locate(Part::Node(NodePart::PodTool)).await?)?;
    let files = [
        ImageFile::new("usr/bin/kubectl", 0o755, kubectl),
        ImageFile::new("usr/bin/pod-tool", 0o755, tool),
    ];
    let image = |files: Vec<ImageFile>, program: &str| Image {
        architecture: match std::env::consts::ARCH {
            "aarch64" => Architecture::Arm64,
            _ => Architecture::Amd64,
        },
        files,
        config: ImageConfig {
            user: "65532:65532".to_owned(),
            entrypoint: vec![program.to_owned()],
            ..ImageConfig::default()
        },
    };
    let only = image(files.to_vec(), "/usr/bin/kubectl");
    cluster.node.import(&only, KUBECTL).await?;
    let mut both = files.to_vec();
    both.push(ImageFile::new(
        "usr/bin/keyferry",
        0o755,
        std::fs::read(&cluster.image()?.binary)?,
    ));
    let deployer = image(both, "/usr/bin/keyferry");
    cluster.node.import(&deployer, DEPLOYER).await
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
            until(&path, WITHIN, || async {
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
    // It is for 127.0.0.1 too, where the targets get the published documents.
    let names = [
        "keyferry.keyferry-system.svc",
        "keyferry-discovery.keyferry-system.svc",
    ]
    .map(str::to_owned);
    let pair = cluster.ground.ca().serving("keyferry-pods", &names)?;
    for name in ["keyferry-discovery-tls", "keyferry-api-tls"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": name, "namespace": SYSTEM },
            "stringData": { "tls.crt": pair.cert_pem, "tls.key": pair.key_pem },
        });
        let path = format!("/api/v1/namespaces/{SYSTEM}/secrets/{name}");
        hub.admin().apply(&path, &secret).await?;
    }
    let authority = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "keyferry-ca", "namespace": TENANT },
        "data": { "ca.crt": cluster.ground.ca().cert_pem() },
    });
    let path = format!("/api/v1/namespaces/{TENANT}/configmaps/keyferry-ca");
    hub.admin().apply(&path, &authority).await?;
    Ok(())
}

/// Installs Keyferry, or upgrades it to Pods with this annotation.
pub(crate) async fn install(cluster: &Cluster, way: Way, annotation: &str) -> TestResult {
    match way {
        Way::Chart => {
            let chart = shipped("examples/helm/keyferry").display().to_string();
            let public_url = format!("publicURL=https://{}", cluster.discovery);
            let note = format!("podAnnotations.example\\.com/update={annotation}");
            helm(
                cluster,
                &[
                    "upgrade",
                    "--install",
                    "keyferry",
                    &chart,
                    "-n",
                    SYSTEM,
                    "--set",
                    "image.repository=images.example.com/keyferry",
                    "--set",
                    "hubName=hub",
                    "--set",
                    &public_url,
                    "--set",
                    "crds.enabled=true",
                    "--set",
                    "rbac.tenantNamespaces={tenant-a}",
                    "--set-string",
                    &note,
                ],
            )
            .await
        }
        Way::Base => {
            let folder = cluster.ground.folder().join("overlay");
            std::fs::create_dir_all(&folder)?;
            let config = std::fs::read_to_string(shipped("examples/install/base/config.yaml"))?;
            let own = format!("https://{}", cluster.discovery);
            let config = config.replace("https://keyferry.example.com", &own);
            std::fs::write(folder.join("config.yaml"), config)?;
            let text = format!(
                "resources: [examples/install/base, examples/install/tenant]\n\
                 configMapGenerator: [{{ name: keyferry-config, namespace: keyferry-system, behavior: replace, \
                 files: [config.yaml] }}]\n\
                 images: [{{ name: keyferry, newName: images.example.com/keyferry, newTag: 0.1.0 }}]\n\
                 patches:\n- target: {{ kind: Deployment, name: keyferry }}\n  patch: |-\n    \
                 {{ apiVersion: apps/v1, kind: Deployment, metadata: {{ name: keyferry }}, spec: {{ template: {{ metadata: \
                 {{ annotations: {{ example.com/update: \"{annotation}\" }} }} }} }} }}\n"
            );
            overlay(&cluster.hub, &folder, &text).await?;
            let folder = folder.display().to_string();
            cluster
                .kubectl(&["apply", "--server-side", "--force-conflicts", "-k", &folder])
                .await?;
            Ok(())
        }
    }
}

/// Waits until the Deployment is what its newest generation says, and returns its Pods.
pub(crate) async fn until_rolled_out(cluster: &Cluster) -> Result<Vec<Value>, TestError> {
    let done = |deployment: &Value| {
        let status = &deployment["status"];
        let count = |field: &str| status[field].as_u64().unwrap_or_default();
        status["observedGeneration"] == deployment["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"].map(count) == [2, 2, 2]
    };
    let rolled = until_object(cluster.hub.admin(), DEPLOYMENT, "rolled out", WITHIN, done).await;
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
    until("two Pods are left", WITHIN, || async {
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
    until_object(cluster.hub.admin(), &budget, "in force", WITHIN, allowed).await?;
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
                "allow": [{ "namespaces": [TENANT], "serviceAccounts": [ACCOUNT] }],
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
        until_object(admin, &path, "ready", WITHIN, ready).await?;
        // Without the admission policies Keyferry mints no token for a probe, so no condition says
        // whether the target is reached.
        let delivered =
            |access: &Value| has_condition(access, "Ready") && has_condition(access, "Delivered");
        until_object(admin, &access(name), "delivered", WITHIN, delivered).await?;
        until_trusted(&cluster.hub, target).await?;
    }
    Ok(())
}

fn access(name: &str) -> String {
    format!("{GROUP}/namespaces/{TENANT}/targetaccesses/{name}")
}

/// Removes Keyferry as docs/install.md says.
async fn remove(cluster: &Cluster, way: Way) -> TestResult {
    let admin = cluster.hub.admin();
    for name in ["prod", "stage"] {
        admin.delete(&access(name)).await?;
        until_gone(admin, &access(name)).await?;
        let target = format!("{GROUP}/targetclusters/{name}");
        admin.delete(&target).await?;
        until_gone(admin, &target).await?;
    }
    match way {
        Way::Chart => helm(cluster, &["uninstall", "keyferry", "-n", SYSTEM, "--wait"]).await?,
        Way::Base => {
            let folder = cluster
                .ground
                .folder()
                .join("overlay")
                .display()
                .to_string();
            cluster.kubectl(&["delete", "-k", &folder]).await?;
        }
    }
    until("no Pod is left", WITHIN, || async {
        Ok(pods(cluster).await?.is_empty())
    })
    .await
}

/// What is left is what docs/install.md says.
async fn left(cluster: &Cluster, way: Way, before: &BTreeSet<String>) -> TestResult {
    let kept = match way {
        Way::Chart => KEPT.as_slice(),
        Way::Base => &[],
    };
    // Controllers of the hub remove what belonged to removed objects.
    let left = std::sync::Mutex::new(Vec::new());
    let only_kept = until("nothing else is left", WITHIN, || async {
        let after = everything(cluster).await?;
        let now: Vec<String> = after.difference(before).cloned().collect();
        let done = now == kept;
        *left.lock().map_err(|error| error.to_string())? = now;
        Ok(done)
    })
    .await;
    let left = left.into_inner()?;
    only_kept.map_err(|error| format!("{error}: {left:#?}"))?;
    // For the next installation.
    for object in kept {
        if let Some((resource, name)) = object.split_once(' ')
            && !resource.starts_with("apiservices")
        {
            let (namespace, name) = name.split_once('/').unwrap_or_default();
            let mut args = vec!["delete", resource, name, "--ignore-not-found"];
            if !namespace.is_empty() {
                args.extend(["-n", namespace]);
            }
            cluster.kubectl(&args).await?;
        }
    }
    Ok(())
}

/// The names of all objects of the hub, without its Events.
async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>, TestError> {
    let resources = [
        "api-resources",
        "--verbs=list",
        "--no-headers",
        "-o",
        "name",
    ];
    let resources = cluster.kubectl(&resources).await?;
    let mut all = BTreeSet::new();
    for resource in resources.lines() {
        if ["events", "events.events.k8s.io"].contains(&resource) {
            continue;
        }
        let columns =
            "-o=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        let listed = cluster.kubectl(&["get", resource, "-A", columns]).await?;
        all.extend(listed.lines().map(|name| format!("{resource} {name}")));
    }
    Ok(all)
}

/// Keyferry logged no error, and Kubernetes sent no Event about a fault.
async fn nothing_went_wrong(cluster: &Cluster, earlier: &BTreeSet<String>) -> TestResult {
    for pod in pods(cluster).await? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let log = cluster.kubectl(&["logs", "-n", SYSTEM, name]).await?;
        assert!(log.contains("serving"), "{log}");
        for line in log.lines() {
            let entry: Value = serde_json::from_str(line)?;
            let reason = entry["fields"]["reason"].as_str().unwrap_or_default();
            let expected = match entry["level"].as_str() {
                Some("WARN") => WITHOUT_POLICIES.contains(&reason),
                Some("INFO") => !line.contains("as shipped"),
                Some(_) => false,
                // An audit record: only the attacker is refused.
                None => entry["decision"] == "granted" || refused_to_attacker(&entry),
            };
            assert!(expected, "{line}");
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
        assert!(early || drained || uncounted || !of_test, "{event}");
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

/// The attacker's requests, with its token and without one.
fn refused_to_attacker(record: &Value) -> bool {
    let caller = record["caller"].as_str();
    let attacker = caller.is_none_or(|caller| caller == "system:serviceaccount:tenant-b:attacker");
    record["decision"] == "denied"
        && attacker
        && ["exchange", "kubeconfig"]
            .iter()
            .any(|route| record["route"] == *route)
}

async fn helm(cluster: &Cluster, args: &[&str]) -> TestResult {
    let program = cluster.ground.parts().locate(Part::Helm).await?;
    let folder = cluster.ground.folder();
    let mut command = tokio::process::Command::new(program);
    command
        .args(args)
        .arg("--kubeconfig")
        .arg(cluster.hub.admin_kubeconfig())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, folder.join("helm"));
    }
    let output = tokio::time::timeout(WITHIN, command.output()).await??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("helm {}: {said}", args.join(" ")).into());
    }
    Ok(())
}
