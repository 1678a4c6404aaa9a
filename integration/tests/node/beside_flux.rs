//! `examples/install/sidecar` on a real node: Flux's controllers as Pods, and Keyferry as the second
//! container of kustomize-controller's Pod. `crate::flux::sidecar` has the same with processes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::flux::{FLUX_NAMESPACE, Flux, GitSource};
use keyferry_integration::git_server::{GitServer, Repository};
use keyferry_integration::node::{External, image_of};
use keyferry_integration::parts::{Minor, Part};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::{until, until_object};
use keyferry_integration::world::on_hub::{access_path, audience, until_gone};
use keyferry_integration::world::{TrustingTarget, shipped};
use serde_json::{Value, json};

use super::setup::{ACCOUNT, Cluster, IMAGE, ISSUER, TENANT, has_condition, put_tls};
use crate::flux::sidecar::{self, Further, NAME, Rights, as_flux_installs};
use crate::flux::stage::{config_map, may_apply, until_applied};

const TARGET: &str = "flux-target";
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// The images of Flux's manifests.
const CONTROLLERS: [(Part, &str); 2] = [
    (
        Part::SourceController,
        "docker.io/fluxcd/source-controller:latest",
    ),
    (
        Part::KustomizeController,
        "docker.io/fluxcd/kustomize-controller:latest",
    ),
];

pub(crate) async fn one_pod_has_flux_and_keyferry(cluster: Arc<Cluster>) -> TestResult {
    for (part, name) in CONTROLLERS {
        let program = cluster.ground.parts().locate(part).await?;
        let image = image_of(&[&program], "65534:65534")?;
        cluster.node.import(&image, name).await?;
    }
    let (target, discovery) = trusting_target(&cluster).await?;
    let (_git, repository, url) = repository(&cluster).await?;
    let commit = repository
        .commit(&[("apps/config.yaml", &config_map(NAME, "first"))])
        .await?;
    install(&cluster, &discovery).await?;
    let pod = running(&cluster, None).await?;
    both_containers_share_one_account(&pod)?;

    let address = format!("https://{TARGET}.keyferry.test:6443");
    sidecar::reconciles(&cluster.hub, &target, &address, &url, &commit).await?;
    the_hub_sees_one_caller(&cluster, &pod)?;
    let bound = token_of(&cluster, &pod).await?;
    sidecar::reaches_an_unbound_namespace(&cluster.hub, &bound, Rights::Shared).await?;

    // A change of one container restarts both. Flux then goes on with the delivered token.
    replace(&cluster, &pod).await?;
    let commit = repository
        .commit(&[("apps/config.yaml", &config_map(NAME, "second"))])
        .await?;
    until_applied(&cluster.hub, &sidecar::kustomization(), &commit).await?;
    print_memory(&cluster).await?;
    remove(&cluster).await
}

/// A target that trusts what the Keyferry in Flux's namespace publishes, and the origin of that.
async fn trusting_target(cluster: &Cluster) -> Result<(ControlPlane, String), TestError> {
    let service = format!("{FLUX_NAMESPACE}/keyferry-discovery");
    let discovery = format!("https://{}", cluster.node.open_service_port(&service, 443)?);
    let trusting = TrustingTarget {
        name: TARGET,
        minor: Minor::newest(),
        issuer: ISSUER,
        audience: &audience(TARGET),
        discovery_url: &format!("{discovery}/.well-known/openid-configuration"),
        subjects: &[format!("{TENANT}:{ACCOUNT}")],
    };
    let target = cluster.ground.target(trusting).await?;
    may_apply(&target, &[TENANT]).await?;
    let server = External {
        name: format!("{TARGET}.keyferry.test"),
        address: Ipv4Addr::new(172, 31, 0, 13),
        port: 6443,
        served_at: target.port(),
    };
    cluster.node.connect(&server).await?;
    Ok((target, discovery))
}

/// A repository, and its URL for Pods.
async fn repository(cluster: &Cluster) -> Result<(GitServer, Repository, String), TestError> {
    GitServer::prepare().await?;
    let git = GitServer::start(cluster.ground.folder())?;
    let repository = git.create(NAME).await?;
    let address = git.address();
    let server = External {
        name: "git.keyferry.test".to_owned(),
        address: Ipv4Addr::new(172, 31, 0, 14),
        port: address.port(),
        served_at: address.port(),
    };
    cluster.node.connect(&server).await?;
    let for_pods = format!("http://{}:{}", server.name, server.port);
    let url = repository.url().replacen(&git.url(), &for_pods, 1);
    Ok((git, repository, url))
}

async fn install(cluster: &Cluster, public_url: &str) -> TestResult {
    let hub = &cluster.hub;
    let parts = cluster.ground.parts();
    let folder = cluster.ground.folder().join("beside-flux");
    std::fs::create_dir_all(&folder)?;
    Flux::install(hub, parts, &folder).await?;
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespace = format!("/api/v1/namespaces/{FLUX_NAMESPACE}");
    hub.admin().patch(&namespace, &restricted).await?;
    put_tls(cluster, FLUX_NAMESPACE).await?;

    let module = parts.module(Part::SourceController).await?;
    for file in ["deployment.yaml", "service.yaml"] {
        let text = std::fs::read_to_string(module.join("config/manager").join(file))?;
        let text = as_flux_installs(&text, "source-controller");
        std::fs::write(folder.join(format!("source-{file}")), text)?;
    }
    let (repository, tag) = IMAGE.rsplit_once(':').ok_or("the image has no tag")?;
    let images = [
        ("keyferry", repository, tag),
        (
            "fluxcd/source-controller",
            "docker.io/fluxcd/source-controller",
            "latest",
        ),
        (
            "fluxcd/kustomize-controller",
            "docker.io/fluxcd/kustomize-controller",
            "latest",
        ),
    ]
    .map(|(name, to, tag)| format!("- {{ name: {name}, newName: {to}, newTag: {tag} }}\n"));
    let further = Further {
        resources: ", source-deployment.yaml, source-service.yaml",
        fields: &format!("images:\n{}", images.concat()),
    };
    sidecar::install(hub, parts, &folder, public_url, further).await?;
    // For its leader election, as the other controller has it.
    let binding = format!(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{FLUX_NAMESPACE}/rolebindings/{FLUX_NAMESPACE}-leases"
    );
    let mut object = hub.admin().get(&binding).await?;
    if let Some(subjects) = object["subjects"].as_array_mut() {
        subjects.push(json!({
            "kind": "ServiceAccount", "name": "source-controller", "namespace": FLUX_NAMESPACE,
        }));
    }
    let subjects = json!({ "subjects": object["subjects"] });
    hub.admin().patch(&binding, &subjects).await?;
    Ok(())
}

/// Waits until both controllers are ready, and returns the Pod with both containers; another one
/// than `before`.
async fn running(cluster: &Cluster, before: Option<&Value>) -> Result<Value, TestError> {
    for name in ["source-controller", "kustomize-controller"] {
        let path = format!("/apis/apps/v1/namespaces/{FLUX_NAMESPACE}/deployments/{name}");
        let ready = |deployment: &Value| {
            deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
                && deployment["status"]["updatedReplicas"] == 1
                && deployment["status"]["availableReplicas"] == 1
        };
        let ready = until_object(cluster.hub.admin(), &path, "ready", WAIT_LIMIT, ready).await;
        if let Err(error) = ready {
            let pods = ["describe", "pods", "-n", FLUX_NAMESPACE];
            let logs = ["logs", "-n", FLUX_NAMESPACE, "-l", &format!("app={name}")];
            let logs = [&logs[..], &["--all-containers", "--tail=20"]].concat();
            let logs = cluster.kubectl(&logs).await.unwrap_or_default();
            return Err(format!("{error}\n{}\n{logs}", cluster.kubectl(&pods).await?).into());
        }
    }
    let path =
        format!("/api/v1/namespaces/{FLUX_NAMESPACE}/pods?labelSelector=app=kustomize-controller");
    let found = std::sync::Mutex::new(Value::Null);
    let old = before.map(|pod| pod["metadata"]["uid"].clone());
    until("one new Pod is ready", WAIT_LIMIT, || async {
        let list = cluster.hub.admin().get(&path).await?;
        let [pod] = list["items"].as_array().map(Vec::as_slice).unwrap_or(&[]) else {
            return Ok(false);
        };
        *found.lock().map_err(|error| error.to_string())? = pod.clone();
        Ok(has_condition(pod, "Ready") && old.as_ref() != Some(&pod["metadata"]["uid"]))
    })
    .await?;
    Ok(found.into_inner()?)
}

/// The kubelet mounts one token into both containers.
fn both_containers_share_one_account(pod: &Value) -> TestResult {
    assert_eq!(pod["spec"]["serviceAccountName"], sidecar::ACCOUNT);
    let containers = pod["spec"]["containers"]
        .as_array()
        .ok_or("no containers")?;
    let names: BTreeSet<&str> = containers
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["keyferry", "manager"]));
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    let volumes: BTreeSet<&str> = containers
        .iter()
        .flat_map(|one| one["volumeMounts"].as_array().into_iter().flatten())
        .filter(|mount| mount["mountPath"] == token)
        .filter_map(|mount| mount["name"].as_str())
        .collect();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    for container in pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
    {
        assert_eq!(container["restartCount"], 0, "{container}");
    }
    Ok(())
}

/// The hub's audit log has the writes of Flux and the mints of Keyferry under one user and one Pod.
fn the_hub_sees_one_caller(cluster: &Cluster, pod: &Value) -> TestResult {
    let user = format!(
        "system:serviceaccount:{FLUX_NAMESPACE}:{}",
        sidecar::ACCOUNT
    );
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let events = cluster.hub.audit_events()?;
    let by_pod = events.iter().filter(|event| {
        event["user"]["username"] == user
            && event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0] == name
    });
    let resources: BTreeSet<String> = by_pod
        .map(|event| {
            let object = &event["objectRef"];
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("resource"), text("subresource"))
        })
        .collect();
    for of_both in ["serviceaccounts/token", "kustomizations/status"] {
        assert!(resources.contains(of_both), "{of_both}: {resources:?}");
    }
    Ok(())
}

/// A token as each of the two containers has it.
async fn token_of(cluster: &Cluster, pod: &Value) -> Result<String, TestError> {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "audiences": [], "expirationSeconds": 3607,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod",
                "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
            },
        },
    });
    let path = format!(
        "/api/v1/namespaces/{FLUX_NAMESPACE}/serviceaccounts/{}/token",
        sidecar::ACCOUNT
    );
    let minted = cluster.hub.admin().create(&path, &request).await?;
    let token = minted["status"]["token"].as_str().ok_or("no token")?;
    Ok(token.to_owned())
}

/// Changes Keyferry's container, and waits for the new Pod.
async fn replace(cluster: &Cluster, before: &Value) -> TestResult {
    let path =
        format!("/apis/apps/v1/namespaces/{FLUX_NAMESPACE}/deployments/kustomize-controller");
    let containers =
        json!([{ "name": "keyferry", "env": [{ "name": "KEYFERRY_LOG", "value": "info" }] }]);
    let change = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let args = [
        "patch",
        "deployment",
        "kustomize-controller",
        "-n",
        FLUX_NAMESPACE,
        "--patch",
        &change.to_string(),
    ];
    let generation = cluster.hub.admin().get(&path).await?["metadata"]["generation"].clone();
    cluster.kubectl(&args).await?;
    let changed = cluster.hub.admin().get(&path).await?;
    assert_ne!(changed["metadata"]["generation"], generation);
    let pod = running(cluster, Some(before)).await?;
    both_containers_share_one_account(&pod)
}

/// Removes all of it, for the other tests of this hub.
async fn remove(cluster: &Cluster) -> TestResult {
    let admin = cluster.hub.admin();
    let source = GitSource {
        namespace: TENANT,
        name: NAME,
        url: "",
    };
    // Flux's controllers remove their finalizers while they run.
    for object in [sidecar::kustomization().path(), source.path()] {
        admin.delete(&object).await?;
        until_gone(admin, &object).await?;
    }
    let access = access_path(TENANT, NAME);
    let immediate = json!({ "spec": { "deletionPolicy": "Immediate" } });
    admin.patch(&access, &immediate).await?;
    for object in [
        access,
        format!("/apis/keyferry.dev/v1alpha1/targetclusters/{TARGET}"),
    ] {
        admin.delete(&object).await?;
        until_gone(admin, &object).await?;
    }
    let author = shipped("examples/admission-policies/author.yaml")
        .display()
        .to_string();
    cluster.kubectl(&["delete", "-f", &author]).await?;
    let folder = cluster.ground.folder().join("beside-flux");
    let folder = folder.display().to_string();
    cluster.kubectl(&["delete", "-k", &folder]).await?;
    let namespaces = ["delete", "namespace", FLUX_NAMESPACE, TENANT, "unbound"];
    cluster.kubectl(&namespaces).await?;
    Ok(())
}

/// What each container takes, by the kubelet.
async fn print_memory(cluster: &Cluster) -> TestResult {
    let stats = cluster.node.stats().await?;
    for pod in stats["pods"].as_array().into_iter().flatten() {
        if pod["podRef"]["namespace"] == FLUX_NAMESPACE {
            for container in pod["containers"].as_array().into_iter().flatten() {
                eprintln!(
                    "{} {}: {}",
                    pod["podRef"]["name"], container["name"], container["memory"]
                );
            }
        }
    }
    Ok(())
}
