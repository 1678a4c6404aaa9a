//! `examples/install/before-cni`: the rendered Pod as a process on a node that has no default route
//! and no resolver. A caller gets a token, and Keyferry tries to reach the hub's apiserver alone.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::http_client::{plain_client, trusting};
use keyferry_integration::keyferry_process::KeyferryBinary;
use keyferry_integration::network_namespace::{NetworkNamespace, Sent};
use keyferry_integration::pki::TestCa;
use keyferry_integration::pod_process::{Pod, PodSources};
use keyferry_integration::process::Process;
use keyferry_integration::relay::Relay;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{caller_token, exchange_at};
use serde_json::{Value, json};

use super::manifests::Objects;
use super::overlay::overlay;
use super::setup::{Hubs, NAMESPACE, TENANT};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "before-cni";
const TARGETS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";

pub(crate) async fn before_a_cni_a_caller_gets_a_token(hubs: Arc<Hubs>) -> TestResult {
    let node = hubs.node().await?;
    let rendered = rendered(&hubs).await?;
    let template = pod_template(&rendered)?;
    assert_pod_can_be_placed(&rendered, template);

    // The apiserver of this node, at the address and the port that the example names.
    let port = variable(template, "KUBERNETES_SERVICE_PORT")?.parse()?;
    let listener = node.listen((node.address(), port).into())?;
    let relay = Relay::listening(listener, hubs.base.port())?;
    let folder = hubs.fleet().folder().join("before-cni");
    std::fs::create_dir_all(&folder)?;
    let authority = TestCa::create("keyferry", &folder)?;
    let sources = sources(&hubs, &rendered, &authority, node.address()).await?;
    let pod = Pod::prepare(template, sources, node, folder)?;
    let quiet = node.sent()?;
    let binary = KeyferryBinary::build().await?;
    let mut process = pod.start("keyferry", binary.path()).await?;
    let health = SocketAddr::from((Ipv4Addr::LOCALHOST, named_port(template, "health")?));
    until_ready(node, &mut process, health, template).await?;

    // From the network that reaches the node: the token API answers, health and metrics do not.
    let outside = format!("http://{}:{}/metrics", node.address(), health.port());
    let refused = plain_client()?.get(outside).send().await;
    assert!(refused.is_err_and(|error| error.is_connect()));
    let token = exchanged(&hubs, &authority, node, named_port(template, "api")?).await;
    let token = token.map_err(|error| format!("{error}; {}", process.logs_tail(20)))?;
    assert_eq!(token.split('.').count(), 3, "{token}");

    // It began connections to the hub's apiserver, resolved no name, and tried no other address.
    let sent = node.sent()?;
    assert_eq!(sent.connections - quiet.connections, relay.accepted());
    assert!(relay.accepted() > 0);
    let others = |sent: Sent| (sent.datagrams, sent.unroutable);
    assert_eq!(others(sent), others(quiet), "{}", process.logs_tail(20));
    process.stop(Duration::from_secs(20)).await?;
    the_counters_count(node).await?;
    let target = format!("{TARGETS}/{ACCOUNT}");
    hubs.base.admin().delete(&access()).await?;
    hubs.base.admin().delete(&target).await?;
    Ok(())
}

/// Renders the component on top of the base.
async fn rendered(hubs: &Hubs) -> Result<Objects, TestError> {
    let written = "resources: [examples/install/base]\ncomponents: [examples/install/before-cni]\n";
    let folder = hubs.fleet().folder().join("before-cni-overlay");
    overlay(&hubs.base, &folder, written).await
}

/// Checks the rendered manifests: on which nodes the Pod may run, and that no NetworkPolicy seems
/// to protect it.
fn assert_pod_can_be_placed(rendered: &Objects, template: &Value) {
    assert_eq!(template["hostNetwork"], true);
    assert_eq!(template["dnsPolicy"], "Default");
    let tolerations = template["tolerations"].to_string();
    for taint in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node-role.kubernetes.io/control-plane",
    ] {
        assert!(tolerations.contains(taint), "{taint}: {tolerations}");
    }
    assert!(!rendered.keys().any(|(kind, ..)| kind == "NetworkPolicy"));
    let namespace = ("Namespace".to_owned(), String::new(), NAMESPACE.to_owned());
    let labels = rendered
        .get(&namespace)
        .map(|found| found["metadata"]["labels"].clone());
    let privileged = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
    assert_eq!(labels, Some(privileged));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(
            template["containers"][0][probe]["httpGet"]["host"],
            "127.0.0.1"
        );
    }
}

/// What the kubelet of this node fills the Pod with.
async fn sources(
    hubs: &Hubs,
    rendered: &Objects,
    authority: &TestCa,
    address: Ipv4Addr,
) -> Result<PodSources, TestError> {
    let hub = &hubs.base;
    let mut config_maps = super::overlay::config_maps(rendered);
    let root = BTreeMap::from([("ca.crt".to_owned(), hub.ca_pem().to_owned())]);
    config_maps.insert("kube-root-ca.crt".to_owned(), root);
    let names = ["keyferry.example.com".to_owned(), address.to_string()];
    let pair = authority.serving("keyferry", &names)?;
    let pair = BTreeMap::from([
        ("tls.crt".to_owned(), pair.cert_pem.clone()),
        ("tls.key".to_owned(), pair.key_pem.clone()),
    ]);
    let secrets =
        ["keyferry-discovery-tls", "keyferry-api-tls"].map(|name| (name.to_owned(), pair.clone()));
    let token = hub.token_request(NAMESPACE, "keyferry", &[], 3600).await?;
    Ok(PodSources {
        namespace: NAMESPACE.to_owned(),
        name: "keyferry-0".to_owned(),
        uid: "0b9c3a52-6e1e-4d0e-8f5c-2f7f3c1b7a11".to_owned(),
        host_ip: address.to_string(),
        config_maps,
        secrets: secrets.into(),
        token: token.token,
        injected: BTreeMap::new(),
    })
}

/// Probes the Pod from its node until it is ready.
async fn until_ready(
    node: &NetworkNamespace,
    process: &mut Process,
    health: SocketAddr,
    template: &Value,
) -> TestResult {
    let path = template["containers"][0]["readinessProbe"]["httpGet"]["path"].as_str();
    let path = path.ok_or("the container has no readinessProbe")?;
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let status = node.probe(health, path);
        if status == Some(200) {
            return Ok(());
        }
        if process.exit_status().is_some() || Instant::now() > deadline {
            let log = process.logs_tail(25);
            return Err(format!("Keyferry is not ready, but {status:?}: {log}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Exchanges a caller's token, over the link to the node.
async fn exchanged(
    hubs: &Hubs,
    authority: &TestCa,
    node: &NetworkNamespace,
    port: u16,
) -> Result<String, TestError> {
    let hub = &hubs.base;
    hub.create_service_account(TENANT, ACCOUNT).await?;
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": ACCOUNT },
        "spec": {
            // The target exists only once the hub has a network, so Keyferry must not probe it.
            "address": "https://10.99.0.1:6443", "probe": "Off", "audience": "https://before-cni.keyferry.test", "caBundle": hub.ca_pem(),
            "allow": [{ "namespaces": [TENANT], "serviceAccounts": [ACCOUNT] }],
        },
    });
    hub.admin().create(TARGETS, &target).await?;
    let object = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": ACCOUNT, "namespace": TENANT },
        "spec": { "targetClusterRef": { "name": ACCOUNT }, "serviceAccountName": ACCOUNT },
    });
    hub.admin().apply(&access(), &object).await?;
    let subject = caller_token(hub, TENANT, ACCOUNT).await?;
    let client = trusting(authority.cert_pem())?;
    let url = format!("https://{}:{port}", node.address());
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let answer = exchange_at(&client, &url, &subject, &format!("{TENANT}/{ACCOUNT}")).await?;
        if answer.status == 200 {
            return answer.token();
        }
        if Instant::now() > deadline {
            return Err(format!("no token: {} {}", answer.status, answer.body).into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Shows that the counters would have counted: a process inside asks for a name and for an address.
async fn the_counters_count(node: &NetworkNamespace) -> TestResult {
    let before = node.sent()?;
    let mut args = node.nsenter();
    let script = "mount -t tmpfs tmpfs /etc; getent hosts keyferry.example.com; ip route get 192.0.2.1; \
                  exec 3<>/dev/tcp/192.0.2.1/443";
    args.extend(["unshare", "--mount", "bash", "-c", script].map(Into::into));
    // Everything in it fails, as it should.
    tokio::process::Command::new("nsenter")
        .args(args)
        .output()
        .await?;
    let after = node.sent()?;
    assert!(after.datagrams > before.datagrams, "{before:?} {after:?}");
    assert!(after.unroutable > before.unroutable, "{before:?} {after:?}");
    Ok(())
}

fn access() -> String {
    format!("/apis/keyferry.dev/v1alpha1/namespaces/{TENANT}/targetaccesses/{ACCOUNT}")
}

fn pod_template(rendered: &Objects) -> Result<&Value, TestError> {
    let name = (
        "Deployment".to_owned(),
        NAMESPACE.to_owned(),
        "keyferry".to_owned(),
    );
    let deployment = rendered.get(&name).ok_or("no Deployment was rendered")?;
    Ok(&deployment["spec"]["template"]["spec"])
}

fn variable<'a>(template: &'a Value, name: &str) -> Result<&'a str, TestError> {
    let variables = template["containers"][0]["env"].as_array();
    let found = variables.and_then(|all| all.iter().find(|one| one["name"] == name));
    let value = found.and_then(|one| one["value"].as_str());
    value.ok_or_else(|| format!("the container has no variable {name}").into())
}

fn named_port(template: &Value, name: &str) -> Result<u16, TestError> {
    let ports = template["containers"][0]["ports"].as_array();
    let found = ports.and_then(|all| all.iter().find(|one| one["name"] == name));
    let port = found.and_then(|one| one["containerPort"].as_u64());
    Ok(port.ok_or("the container has no such port")?.try_into()?)
}
