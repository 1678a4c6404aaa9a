//! Serving certificates from Secrets with objects on the hub: the rights and the arguments are those
//! that the chart and the kustomize components render.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::http_client::{plain_client, trusting};
use keyferry_integration::pki::{CertifiedKey, TestCa};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::manifests::{Objects, objects};
use super::process::{self, Port, Ports, Shipped, Started};
use super::rendered::charted;
use super::setup::{Hubs, NAMESPACE, kubectl, values};

const SOON: Duration = Duration::from_secs(30);
/// A process before this one on the same hub that was killed keeps its Lease for 30 s, and this one
/// looks at the Lease every 10 s.
const LEADS_WITHIN: Duration = Duration::from_secs(90);
const ACCOUNT: &str = "system:serviceaccount:keyferry-system:keyferry";
const METADATA: &str = "/.well-known/openid-configuration";
const SECRETS: [&str; 3] = [
    "keyferry-discovery-tls",
    "keyferry-api-tls",
    "keyferry-metrics-tls",
];

pub(crate) async fn with_the_chart(hubs: Arc<Hubs>) -> TestResult {
    let set = [
        "-f",
        &values("tenants"),
        "--set",
        "tls.source=Secrets,tls.metrics.enabled=true,service.discovery.httpRedirect=true",
    ];
    let rendered = charted(&hubs, &set).await?;
    serves_with_tls_from_secrets(&hubs, &hubs.chart, "chart-tls", &rendered).await
}

pub(crate) async fn with_the_components(hubs: Arc<Hubs>) -> TestResult {
    let folder = process::folder(&hubs, "overlay");
    std::fs::create_dir_all(&folder)?;
    let install = from(&folder, &shipped("examples/install"))?;
    let components = ["tls-secrets", "metrics-tls", "http-redirect"]
        .map(|component| format!("{install}/{component}"));
    let overlay = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [format!("{install}/base")],
        "components": components,
    });
    std::fs::write(folder.join("kustomization.yaml"), overlay.to_string())?;
    let rendered = kubectl(&hubs.base, &["kustomize", &folder.display().to_string()]).await?;
    let rendered = objects(&rendered)?;
    let service = object(&rendered, "Service", "keyferry-discovery")?;
    let ports: Vec<&Value> = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| &port["name"])
        .collect();
    assert!(
        ports.contains(&&json!("https")) && ports.contains(&&json!("http")),
        "{ports:?}"
    );
    let policy = object(&rendered, "NetworkPolicy", "keyferry")?["spec"]["ingress"].to_string();
    assert!(
        policy.contains("\"http\"") && policy.contains("\"api\""),
        "{policy}"
    );
    serves_with_tls_from_secrets(&hubs, &hubs.base, "component-tls", &rendered).await
}

/// The path of a folder from another one: kustomize takes no absolute one.
fn from(folder: &Path, to: &Path) -> Result<String, TestError> {
    let (folder, to) = (folder.canonicalize()?, to.canonicalize()?);
    let up = "../".repeat(folder.components().count() - 1);
    Ok(format!(
        "{up}{}",
        to.display().to_string().trim_start_matches('/')
    ))
}

fn object<'a>(objects: &'a Objects, kind: &str, name: &str) -> Result<&'a Value, TestError> {
    let found = objects
        .iter()
        .find(|((of, _, named), _)| of == kind && named.starts_with(name));
    Ok(found.ok_or(format!("no {kind} {name}"))?.1)
}

async fn serves_with_tls_from_secrets(
    hubs: &Hubs,
    hub: &Arc<ControlPlane>,
    name: &'static str,
    rendered: &Objects,
) -> TestResult {
    grant_what_is_rendered(hubs, hub, name, rendered).await?;
    let (ca, certified) = process::certificate(&process::folder(hubs, name))?;
    for secret in SECRETS {
        put(hub, secret, &ca, &certified).await?;
    }
    let config = object(rendered, "ConfigMap", "keyferry-config")?["data"]["config.yaml"]
        .as_str()
        .ok_or("no configuration")?
        .to_owned();
    let pod = &object(rendered, "Deployment", "keyferry")?["spec"]["template"]["spec"];
    let mounted = pod["volumes"].to_string();
    assert!(
        !mounted.contains("-tls"),
        "no certificate is mounted: {mounted}"
    );
    let variables = pod["containers"][0]["env"].as_array().into_iter().flatten();
    let variables = variables
        .filter_map(|one| {
            let text = |field: &str| one[field].as_str().map(str::to_owned);
            Some((text("name")?, text("value")?))
        })
        .collect();
    let shipped = Shipped {
        name,
        config,
        variables,
        ports: Ports::free()?,
    };
    let keyferry = process::start(hubs, hub, shipped).await?;
    every_listener_answers(&keyferry, &ca).await?;
    a_target_gets_the_authority(hub, name, &ca).await?;

    // The next certificate is used at once, on both listeners.
    let next = ca.serving("next", &["keyferry.example.com".to_owned()])?;
    for secret in SECRETS {
        put(hub, secret, &ca, &next).await?;
    }
    for listener in ["discovery", "api", "metrics"] {
        until("the next certificate is used", SOON, || async {
            let log = std::fs::read_to_string(keyferry.process.log())?;
            let used = |line: &str| {
                line.contains("the serving certificate was reloaded")
                    && line.contains(&format!("\"listener\":\"{listener}\""))
            };
            Ok(log.lines().any(used))
        })
        .await?;
    }
    every_listener_answers(&keyferry, &ca).await?;
    keyferry.process.stop().await?;
    let refused: Vec<String> = hub
        .audit_events()?
        .iter()
        .filter(|event| {
            event["user"]["username"] == ACCOUNT && event["responseStatus"]["code"] == 403
        })
        .map(|event| event["requestURI"].to_string())
        .collect();
    assert!(refused.is_empty(), "the hub refused Keyferry: {refused:#?}");
    Ok(())
}

/// Applies the roles and bindings about serving certificates, as they are rendered.
async fn grant_what_is_rendered(
    hubs: &Hubs,
    hub: &ControlPlane,
    name: &str,
    rendered: &Objects,
) -> TestResult {
    let about: Vec<&Value> = rendered
        .iter()
        .filter(|((kind, _, named), _)| kind.starts_with("Role") && named.contains("-tls"))
        .map(|(_, object)| object)
        .collect();
    assert!(about.len() >= 2, "{about:?}");
    let file = process::folder(hubs, name).join("rights.json");
    std::fs::create_dir_all(file.with_file_name(""))?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": about });
    std::fs::write(&file, list.to_string())?;
    let file = file.display().to_string();
    kubectl(
        hub,
        &["apply", "--server-side", "--force-conflicts", "-f", &file],
    )
    .await?;
    for secret in SECRETS {
        let rule = json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret],
            "verbs": ["watch"],
        });
        hub.until_it_counts(Whom::User(ACCOUNT), NAMESPACE, &rule)
            .await?;
    }
    Ok(())
}

async fn put(
    hub: &ControlPlane,
    name: &str,
    ca: &TestCa,
    certified: &CertifiedKey,
) -> Result<(), TestError> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "type": "kubernetes.io/tls",
        "stringData": {
            "tls.crt": certified.cert_pem, "tls.key": certified.key_pem, "ca.crt": ca.cert_pem(),
        },
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
    hub.admin().apply(&path, &secret).await?;
    Ok(())
}

async fn every_listener_answers(keyferry: &Started, ca: &TestCa) -> TestResult {
    let http = trusting(ca.cert_pem())?;
    let status = async |client: &reqwest::Client, url: String| -> Result<u16, TestError> {
        Ok(client.get(url).send().await?.status().as_u16())
    };
    let at = |scheme: &str, port: Port, path: &str| {
        format!("{scheme}://{}{path}", keyferry.address(port))
    };
    for (port, path, wanted) in [
        (Port::Discovery, METADATA, 200),
        (Port::Api, "/v1/token", 405),
        (Port::Metrics, "/metrics", 401),
    ] {
        assert_eq!(
            status(&http, at("https", port, path)).await?,
            wanted,
            "{port:?}"
        );
    }
    let plain = plain_client()?;
    let moved = plain
        .get(at("http", Port::Redirect, METADATA))
        .send()
        .await?;
    assert_eq!(moved.status(), 301);
    assert_eq!(
        moved.headers()["location"],
        format!("https://keyferry.example.com{METADATA}")
    );
    assert_eq!(
        status(&plain, at("http", Port::Health, "/metrics")).await?,
        404
    );
    Ok(())
}

/// The status of a TargetCluster has `ca.crt` of the discovery Secret.
async fn a_target_gets_the_authority(
    hub: &Arc<ControlPlane>,
    name: &str,
    ca: &TestCa,
) -> TestResult {
    let targets = "/apis/keyferry.dev/v1alpha1/targetclusters";
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": name },
        "spec": {
            "address": hub.url(), "audience": format!("https://{name}.keyferry.test"),
            "caBundle": hub.ca_pem(),
        },
    });
    hub.admin().create(targets, &target).await?;
    let path = format!("{targets}/{name}");
    until("the status has the CA", LEADS_WITHIN, || async {
        let object = hub.admin().get(&path).await?;
        let stated = object["status"]["discoveryCertificateAuthority"].as_str();
        Ok(stated.is_some_and(|pem| pem.trim() == ca.cert_pem().trim()))
    })
    .await?;
    hub.admin().delete(&path).await?;
    Ok(())
}
