//! `examples/install/sidecar`: kustomize-controller and Keyferry as the containers of one rendered
//! Pod, in one network namespace and under one ServiceAccount. Flux applies at a target with the
//! token that Keyferry delivered; and the test shows what the shared account may do.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::flux::{
    FLUX_NAMESPACE, FluxSource, GitSource, KubeConfigRef, KustomizationSpec,
};
use keyferry_integration::network_namespace::NetworkNamespace;
use keyferry_integration::parts::{Minor, Part, Parts};
use keyferry_integration::pod_process::{Pod, PodSources};
use keyferry_integration::process::Process;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::relay::Relay;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{RECONCILER, audience};
use keyferry_integration::world::{TrustingTarget, shipped};
use serde_json::{Value, json};

use super::stage::{
    Stage, access_to, config_map_path, may_apply, until_applied, user, who_applied,
};
use crate::install::manifests::Objects;
use crate::install::overlay::{config_maps, overlay};
use crate::install::setup::kubectl;

const TENANT: &str = "tenant-a";
/// The name of the hub, of the access and of Flux's objects.
pub(crate) const NAME: &str = "sidecar";
const TARGET: &str = "sidecar-target";
const ISSUER: &str = "https://sidecar.keyferry.test";
/// The ServiceAccount of both containers.
pub(crate) const ACCOUNT: &str = "kustomize-controller";
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn one_account_has_all_rights(stage: Arc<Stage>) -> TestResult {
    let network = NetworkNamespace::start(stage.folder()).await?;
    let spec = ControlPlaneSpec {
        further_names: vec![network.address().to_string()],
        ..ControlPlaneSpec::named(NAME)
    };
    let hub = Arc::new(stage.control_plane(spec).await?);
    let target = trusting_target(&stage, &network).await?;
    let folder = stage.folder().join(NAME);
    let parts = stage.ground().parts();
    let _source = FluxSource::start(&hub, parts, &folder, network.host_address()).await?;
    let own = format!("https://{}:8443", network.address());
    let rendered = install(
        &hub,
        parts,
        &folder.join("overlay"),
        &own,
        Further::default(),
    )
    .await?;
    let template = template(&rendered)?;

    // The Pod reaches the hub as Pods do, and the target at another address.
    let listener = network.listen((network.address(), 443).into())?;
    let _to_hub = Relay::listening(listener, hub.port())?;
    let listener = TcpListener::bind((network.host_address(), 0))?;
    listener.set_nonblocking(true)?;
    let to_target = Relay::listening(listener, target.port())?;
    let token = hub
        .token_request(FLUX_NAMESPACE, ACCOUNT, &[], 7200)
        .await?;
    let sources = sources(&stage, &hub, &network, &token.token, &folder).await?;
    let pod = Pod::prepare(&template, sources, &network, folder)?;
    let kustomize = parts.locate(Part::KustomizeController).await?;
    let mut containers = [
        (pod.start("manager", &kustomize).await?, "healthz"),
        (pod.start("keyferry", stage.binary()).await?, "health"),
    ];
    for (process, port) in &mut containers {
        until_ready(&network, process, container_port(&template, port)?).await?;
    }
    let (repository, commit) = stage.repository_of(NAME).await?;
    let applied = reconciles(&hub, &target, &to_target.url(), repository.url(), &commit).await;
    let logs = containers.map(|(process, _)| process.logs_tail(15));
    applied.map_err(|error| format!("{error}; {}", logs.join("\n")))?;
    the_account_may_do_both(&stage, &hub, &token.token).await
}

/// Starts a target that trusts what this Keyferry publishes.
async fn trusting_target(
    stage: &Stage,
    network: &NetworkNamespace,
) -> Result<ControlPlane, TestError> {
    let trusting = TrustingTarget {
        name: TARGET,
        minor: Minor::newest(),
        issuer: ISSUER,
        audience: &audience(TARGET),
        discovery_url: &format!(
            "https://{}:8443/.well-known/openid-configuration",
            network.address()
        ),
        subjects: &[format!("{TENANT}:{RECONCILER}")],
    };
    let target = stage.ground().target(trusting).await?;
    may_apply(&target, &[TENANT]).await?;
    Ok(target)
}

/// Renders the component over kustomize-controller's own Deployment, beside these resources and
/// with further fields of the kustomization, and applies all of it. The account gets no right beside
/// those of the manifests.
pub(crate) async fn install(
    hub: &Arc<ControlPlane>,
    parts: &Parts,
    folder: &Path,
    public_url: &str,
    further: Further<'_>,
) -> Result<Objects, TestError> {
    std::fs::create_dir_all(folder)?;
    let module = parts.module(Part::KustomizeController).await?;
    let deployment = std::fs::read_to_string(module.join("config/manager/deployment.yaml"))?;
    std::fs::write(
        folder.join("deployment.yaml"),
        as_flux_installs(&deployment, ACCOUNT),
    )?;
    let config = std::fs::read_to_string(shipped("examples/install/base/config.yaml"))?;
    std::fs::write(
        folder.join("config.yaml"),
        config.replace("https://keyferry.example.com", public_url),
    )?;
    let Further { resources, fields } = further;
    let text = format!(
        "resources: [deployment.yaml, examples/install/sidecar/base{resources}]\ncomponents: [examples/install/sidecar]\n\
         configMapGenerator:\n\
         - {{ name: keyferry-config, namespace: {FLUX_NAMESPACE}, behavior: replace, files: [config.yaml] }}\n{fields}"
    );
    let rendered = overlay(hub, folder, &text).await?;
    let shown = folder.display().to_string();
    kubectl(hub, &["apply", "--server-side", "-k", &shown]).await?;
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd",
        "--all",
    ];
    kubectl(hub, &established).await?;
    apply_manifests(hub, &[&shipped("examples/admission-policies/author.yaml")]).await?;

    // Flux's cluster-admin would hide a missing right, and multi-tenant installations have none.
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let admin = format!("{rbac}/clusterrolebindings/cluster-reconciler");
    hub.admin().delete(&admin).await?;
    // Of Flux's role crd-controller, for the leader election of the Deployment's arguments.
    let election = format!("{FLUX_NAMESPACE}-leases");
    bind(
        hub,
        FLUX_NAMESPACE,
        &election,
        Some(&["coordination.k8s.io", "leases"]),
    )
    .await?;
    hub.create_namespace(TENANT).await?;
    hub.create_service_account(TENANT, RECONCILER).await?;
    bind(hub, TENANT, "keyferry-minter", None).await?;
    Ok(rendered)
}

/// What an overlay has beside the component.
#[derive(Clone, Copy, Default)]
pub(crate) struct Further<'a> {
    /// Resources, each after a comma.
    pub(crate) resources: &'a str,
    /// Lines of the kustomization.
    pub(crate) fields: &'a str,
}

/// A manifest of a controller's module, in Flux's namespace and under the controller's account.
pub(crate) fn as_flux_installs(manifest: &str, name: &str) -> String {
    let named = format!("  name: {name}\n");
    let namespaced = format!("{named}  namespace: {FLUX_NAMESPACE}\n");
    let pod = format!("    spec:\n      serviceAccountName: {name}\n");
    manifest
        .replacen(&named, &namespaced, 1)
        .replacen("    spec:\n", &pod, 1)
}

/// Binds a role in a namespace to the shared account: the ClusterRole of this name, or a new Role
/// with every verb on one resource.
async fn bind(
    hub: &ControlPlane,
    namespace: &str,
    name: &str,
    rule: Option<&[&str; 2]>,
) -> TestResult {
    let group = "rbac.authorization.k8s.io";
    let folder = format!("/apis/{group}/v1/namespaces/{namespace}");
    if let Some([api, resource]) = rule {
        let rules = json!([{ "apiGroups": [api], "resources": [resource], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] }]);
        let role = json!({ "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": { "name": name, "namespace": namespace }, "rules": rules });
        hub.admin()
            .apply(&format!("{folder}/roles/{name}"), &role)
            .await?;
    }
    let kind = if rule.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": group, "kind": kind, "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": FLUX_NAMESPACE }],
    });
    let path = format!("{folder}/rolebindings/{name}");
    hub.admin().apply(&path, &binding).await?;
    Ok(())
}

/// The Pod of the rendered Deployment.
fn template(rendered: &Objects) -> Result<Value, TestError> {
    let name = (
        "Deployment".to_owned(),
        FLUX_NAMESPACE.to_owned(),
        ACCOUNT.to_owned(),
    );
    let deployment = rendered.get(&name).ok_or("no Deployment was rendered")?;
    assert_eq!(deployment["spec"]["replicas"], 1, "as Flux ships it");
    Ok(deployment["spec"]["template"]["spec"].clone())
}

/// What the kubelet fills the Pod with.
async fn sources(
    stage: &Stage,
    hub: &ControlPlane,
    network: &NetworkNamespace,
    token: &str,
    folder: &Path,
) -> Result<PodSources, TestError> {
    let text = kubectl(
        hub,
        &["kustomize", &folder.join("overlay").display().to_string()],
    )
    .await?;
    let mut config_maps = config_maps(&crate::install::manifests::objects(&text)?);
    let root = BTreeMap::from([("ca.crt".to_owned(), hub.ca_pem().to_owned())]);
    config_maps.insert("kube-root-ca.crt".to_owned(), root);
    let names = [network.address().to_string()];
    let pair = stage.ground().ca().serving("keyferry-sidecar", &names)?;
    let pair = BTreeMap::from([
        ("tls.crt".to_owned(), pair.cert_pem.clone()),
        ("tls.key".to_owned(), pair.key_pem.clone()),
    ]);
    let secrets = ["keyferry-discovery-tls", "keyferry-api-tls"];
    Ok(PodSources {
        namespace: FLUX_NAMESPACE.to_owned(),
        name: "kustomize-controller-0".to_owned(),
        uid: "0b9c3a52-6e1e-4d0e-8f5c-2f7f3c1b7a11".to_owned(),
        host_ip: network.host_address().to_string(),
        config_maps,
        secrets: secrets.map(|name| (name.to_owned(), pair.clone())).into(),
        token: token.to_owned(),
        injected: BTreeMap::from([
            (
                "KUBERNETES_SERVICE_HOST".to_owned(),
                network.address().to_string(),
            ),
            ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
        ]),
    })
}

fn container_port(template: &Value, name: &str) -> Result<u16, TestError> {
    let containers = template["containers"].as_array().into_iter().flatten();
    let ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
    let mut named = ports.filter(|port| port["name"] == name);
    let port = named.next().and_then(|port| port["containerPort"].as_u64());
    Ok(port.ok_or("the Pod has no such port")?.try_into()?)
}

async fn until_ready(network: &NetworkNamespace, process: &mut Process, port: u16) -> TestResult {
    let deadline = Instant::now() + WAIT_LIMIT;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    while network.probe(address, "/readyz") != Some(200) {
        if process.exit_status().is_some() || Instant::now() > deadline {
            let log = process.logs_tail(25);
            return Err(format!("nothing is ready on port {port}: {log}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Flux applies a tenant's ConfigMap at the target, as the tenant. The hub's Pods reach the target
/// at this address.
pub(crate) async fn reconciles(
    hub: &ControlPlane,
    target: &ControlPlane,
    address: &str,
    repository: &str,
    commit: &str,
) -> TestResult {
    let name = target.name();
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": name },
        "spec": {
            "address": address, "tlsServerName": format!("{name}.keyferry.test"),
            "audience": audience(name), "caBundle": target.ca_pem(),
            "allow": [{ "namespaces": [TENANT], "serviceAccounts": [RECONCILER], "deliveries": ["KubeConfigSecret"] }],
        },
    });
    let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{name}");
    hub.admin().apply(&path, &object).await?;
    access_to(name, hub, TENANT, NAME, "KubeConfigSecret").await?;
    let source = GitSource {
        namespace: TENANT,
        name: NAME,
        url: repository,
    };
    source.apply(hub.admin()).await?;
    let spec = kustomization();
    spec.apply(hub.admin()).await?;
    until_applied(hub, &spec, commit).await?;
    let written = target.admin().get(&config_map_path(NAME)).await?;
    assert_eq!(written["data"]["text"], "first");
    assert_eq!(who_applied(target, NAME)?, [user(TENANT)]);
    Ok(())
}

/// The tenant's Kustomization for the target.
pub(crate) fn kustomization() -> KustomizationSpec<'static> {
    KustomizationSpec {
        namespace: TENANT,
        name: NAME,
        source: NAME,
        path: "./apps",
        kube_config: KubeConfigRef::Secret(NAME),
        impersonating: None,
    }
}

/// The price: the account mints for a ServiceAccount of a namespace that no tenant's binding names,
/// and reads every Secret. A Keyferry under its own account may do neither.
async fn the_account_may_do_both(stage: &Stage, hub: &ControlPlane, shared: &str) -> TestResult {
    let own = stage
        .hub
        .token_request("keyferry-system", "keyferry", &[], 600)
        .await?;
    reaches_an_unbound_namespace(hub, shared, Rights::Shared).await?;
    reaches_an_unbound_namespace(&stage.hub, &own.token, Rights::Own).await
}

/// Whose rights an account has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Keyferry's and kustomize-controller's.
    Shared,
    /// Keyferry's alone.
    Own,
}

/// Tries a TokenRequest in a namespace that no binding names, and a list of all Secrets.
pub(crate) async fn reaches_an_unbound_namespace(
    plane: &ControlPlane,
    token: &str,
    rights: Rights,
) -> TestResult {
    plane
        .create_namespace_with_service_account("unbound", "deployer")
        .await?;
    let client = plane.as_bearer(token)?;
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [], "expirationSeconds": 600 } });
    let path = "/api/v1/namespaces/unbound/serviceaccounts/deployer/token";
    let minted = client.create(path, &request).await;
    let listed = client.get("/api/v1/secrets").await;
    let may = rights == Rights::Shared;
    assert_eq!(minted.is_ok(), may, "{}: {minted:?}", plane.name());
    assert_eq!(listed.is_ok(), may, "{}", plane.name());
    for refused in [minted.err(), listed.err()].into_iter().flatten() {
        assert_eq!(refused.status(), Some(403), "{refused}");
    }
    Ok(())
}
