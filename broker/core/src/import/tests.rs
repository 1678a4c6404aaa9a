#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::audience::Audience;
use keyferry_api::config::{self, CertificateSource, TargetCluster};
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};

use super::{Choice, ImportError, read_import};

mod fleet_objects;

const NOW: i64 = 1_790_000_000;

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(NOW).unwrap()
}

fn ca() -> &'static str {
    static PEM: LazyLock<String> = LazyLock::new(|| {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
    });
    &PEM
}

fn cluster() -> Value {
    json!({
        "server": "https://prod.example.com:6443/", "certificate-authority-data": STANDARD.encode(ca()), "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy.example.com:3128", "disable-compression": true,
    })
}

fn kubeconfig(cluster: Value, user: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "contexts": [{ "name": "one", "context": { "cluster": "prod", "user": "admin" } },
                     { "name": "two", "context": { "cluster": "other", "user": "none" } }],
        "clusters": [{ "name": "prod", "cluster": cluster }, { "name": "other", "cluster": { "server": "https://other.example" } }],
        "users": [{ "name": "admin", "user": user }],
    })
}

fn secret(key: &str, content: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { key: STANDARD.encode(content.to_string()) } })
}

/// The target as the configuration reader returns it, and what was left out.
fn imported(
    document: &Value,
    choice: Choice<'_>,
) -> Result<(TargetCluster, Vec<String>), ImportError> {
    let mut imported = read_import(document.to_string().as_bytes(), choice)?;
    let text = imported.render_target(None, &Audience::new("https://prod").unwrap(), now())?;
    assert!(!text.contains("secret"), "{text}");
    let policy = config::read(&format!("{}{text}", super::render::CONFIG_HEADER))
        .unwrap()
        .policy;
    Ok((
        policy.targets.into_values().next().unwrap(),
        imported.dropped,
    ))
}

fn whole(target: &TargetCluster) {
    assert_eq!(
        (target.name.as_str(), target.address.as_str()),
        ("prod", "https://prod.example.com:6443")
    );
    assert_eq!(target.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(
        target.proxy_url.as_deref(),
        Some("http://proxy.example.com:3128")
    );
    assert!(
        matches!(&target.certificate, CertificateSource::Inline(pem) if pem.contains("BEGIN CERTIFICATE") && !pem.contains("KEY"))
    );
    assert!(target.allow.is_empty(), "nobody may use it");
}

#[test]
fn a_kubeconfig_gives_its_cluster_and_keeps_its_user() {
    let user = json!({ "token": "secret", "client-key-data": "secret", "exec": { "command": "secret" }, "as": "secret" });
    let (target, dropped) =
        imported(&kubeconfig(cluster(), user.clone()), Choice::default()).unwrap();
    whole(&target);
    for what in [
        "a bearer token",
        "a client key",
        "a command that gets credentials",
        "an impersonated user",
        "disable-compression",
    ] {
        assert!(dropped.iter().any(|it| it == what), "{what}: {dropped:?}");
    }
    let choice = Choice {
        context: Some("two"),
        ..Choice::default()
    };
    let (target, dropped) = imported(&kubeconfig(cluster(), user.clone()), choice).unwrap();
    assert_eq!(
        (target.name.as_str(), target.certificate, dropped.len()),
        ("other", CertificateSource::System, 0)
    );
    // In Secrets, under the keys of Flux and of Cluster API.
    for key in ["value", "value.yaml", "kubeconfig"] {
        whole(
            &imported(
                &secret(key, &kubeconfig(cluster(), user.clone())),
                Choice::default(),
            )
            .unwrap()
            .0,
        );
    }
    let mut own_key = secret("mine", &kubeconfig(cluster(), user.clone()));
    whole(&imported(&own_key, Choice::default()).unwrap().0);
    own_key["data"]["other"] = json!("eA==");
    let error = imported(&own_key, Choice::default()).unwrap_err();
    assert!(error.to_string().contains("--key: mine, other"), "{error}");
    whole(
        &imported(
            &own_key,
            Choice {
                key: Some("mine"),
                ..Choice::default()
            },
        )
        .unwrap()
        .0,
    );
    let mut of_cluster_api = secret("value", &kubeconfig(cluster(), user));
    of_cluster_api["metadata"]["labels"] = json!({ "cluster.x-k8s.io/cluster-name": "workload-1" });
    assert_eq!(
        imported(&of_cluster_api, Choice::default())
            .unwrap()
            .0
            .name
            .as_str(),
        "workload-1"
    );
}

#[test]
fn argo_cd_and_the_cluster_inventory_give_theirs() {
    let config = json!({
        "bearerToken": "secret", "execProviderConfig": { "command": "secret" }, "proxyUrl": "http://proxy.example.com:3128",
        "tlsClientConfig": { "insecure": false, "serverName": "kubernetes", "caData": STANDARD.encode(ca()), "keyData": "secret" },
    });
    let mut argo = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "labels": { "argocd.argoproj.io/secret-type": "cluster" } },
        "stringData": { "name": "prod", "server": "https://prod.example.com:6443", "config": config.to_string() },
    });
    let (target, dropped) = imported(&argo, Choice::default()).unwrap();
    whole(&target);
    assert_eq!(dropped.len(), 3, "{dropped:?}");
    argo["stringData"]["config"] = json!(config.to_string().replace("false", "true"));
    assert!(
        imported(&argo, Choice::default())
            .unwrap_err()
            .to_string()
            .contains("config.tlsClientConfig.insecure is set")
    );
    argo["stringData"]["config"] = json!(r#"{"bearerToken":"a","bearerToken":"b"}"#);
    assert!(
        imported(&argo, Choice::default())
            .unwrap_err()
            .to_string()
            .contains("one member name twice")
    );

    for list in ["accessProviders", "credentialProviders"] {
        let mut profile = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": { "name": "prod" },
            "status": { list: [{ "name": "a", "cluster": cluster() }] },
        });
        whole(&imported(&profile, Choice::default()).unwrap().0);
        profile["status"][list] = json!([{ "name": "a", "cluster": cluster() }, { "name": "b", "cluster": { "server": "https://b.example" } }]);
        assert!(
            imported(&profile, Choice::default())
                .unwrap_err()
                .to_string()
                .contains("choose one of a, b with --provider")
        );
        let choice = Choice {
            provider: Some("b"),
            ..Choice::default()
        };
        assert_eq!(
            imported(&profile, choice).unwrap().0.address,
            "https://b.example"
        );
    }
}

#[test]
fn what_would_weaken_a_target_is_refused_with_the_fix() {
    for (member, value, says) in [
        (
            "insecure-skip-tls-verify",
            json!(true),
            "get the cluster's CA certificate",
        ),
        (
            "insecure-skip-tls-verify",
            json!("yes"),
            "get the cluster's CA certificate",
        ),
        (
            "server",
            json!("http://prod.example.com"),
            "not an https URL",
        ),
        (
            "server",
            json!("https://user:secret@prod.example.com"),
            "holds credentials",
        ),
        ("server", json!(1), "is not a text"),
        ("server", json!(null), "is missing"),
        (
            "certificate-authority",
            json!("/etc/secret"),
            "names a file",
        ),
        ("certificate-authority-data", json!("!"), "not base64"),
        (
            "certificate-authority-data",
            json!("<LS0t>"),
            "angle brackets",
        ),
        ("certificate-authority-data", json!("LS0t LS0t"), "spaces"),
        ("certificate-authority-data", json!("/etc/ca.crt"), "a path"),
        ("certificate-authority-data", json!(ca()), "PEM itself"),
        (
            "server",
            json!("prod.example.com:6443"),
            "write https://prod.example.com:6443",
        ),
        (
            "server",
            json!("https://küche.example.com"),
            "write https://xn--kche-0ra.example.com",
        ),
        (
            "certificate-authority-data",
            json!(STANDARD.encode("secret")),
            "CA certificates",
        ),
        (
            "proxy-url",
            json!("http://user:secret@proxy"),
            "holds credentials",
        ),
        ("tls-server-name", json!("*.secret"), "tlsServerName"),
    ] {
        let mut bad = cluster();
        bad[member] = value;
        if member == "certificate-authority" {
            // With data too, the data would take precedence, as in client-go.
            bad["certificate-authority-data"] = json!(null);
        }
        let error = imported(&kubeconfig(bad, json!({})), Choice::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(says) && !error.contains("user:secret"),
            "{member}: {error}"
        );
    }
    let named = |name: &str| {
        let mut document = kubeconfig(cluster(), json!({}));
        document["clusters"][0]["name"] = json!(name);
        document["contexts"][0]["context"]["cluster"] = json!(name);
        imported(&document, Choice::default())
            .map(|(target, _)| target.name.to_string())
            .map_err(|error| error.to_string())
    };
    assert!(named("admin@Prod").unwrap_err().contains("--name"));
    assert_eq!(named("prod-1").unwrap(), "prod-1");
    let mut twice = kubeconfig(cluster(), json!({}));
    twice["clusters"][1]["name"] = json!("prod");
    assert!(
        imported(&twice, Choice::default())
            .unwrap_err()
            .to_string()
            .contains("two entries")
    );
}

#[test]
fn hostile_input_is_refused_without_being_repeated() {
    let long = format!("a: {}", "secret".repeat(400_000));
    let deep = format!("a: {}1{}", "[".repeat(200), "]".repeat(200));
    for text in [
        "",
        "secret",
        "[secret]",
        "apiVersion: v1\nkind: Pod\n",
        "apiVersion: v1\nkind: Config\nkind: Secret\n",
        "apiVersion: v1\nkind: Secret\ndata: {value: '!'}\n",
        "a: &x secret\nb: *x\n",
        "kind: List\nitems: [{metadata: {name: one}}, {metadata: {name: two}}]\n",
        "a: 1\n---\nb: 2\n",
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\n",
        "apiVersion: v1\nkind: Config\ncurrent-context: secret\n",
        &long,
        &deep,
    ] {
        let error = read_import(text.as_bytes(), Choice::default())
            .unwrap_err()
            .to_string();
        assert!(!error.contains("secret") && error.len() < 300, "{error}");
    }
    // A Secret inside a Secret is not a kubeconfig.
    let nested = secret("value", &secret("value", &kubeconfig(cluster(), json!({}))));
    assert_eq!(
        read_import(nested.to_string().as_bytes(), Choice::default()).unwrap_err(),
        ImportError::Kind
    );
}

/// Whatever kubectl reads as a kubeconfig is read here too.
#[test]
fn what_kubectl_takes_is_taken() {
    let document = kubeconfig(cluster(), json!({ "token": "secret" }));
    let text = document.to_string();
    let utf16 = |mark: char, unit: fn(u16) -> [u8; 2]| {
        let text: String = std::iter::once(mark).chain(text.chars()).collect();
        text.encode_utf16().flat_map(unit).collect::<Vec<u8>>()
    };
    let mut without_kind = document.clone();
    for member in ["apiVersion", "kind"] {
        without_kind.as_object_mut().unwrap().remove(member);
    }
    let mut wrapped = document.clone();
    let data = STANDARD.encode(ca());
    let (first, second) = data.split_at(64);
    wrapped["clusters"][0]["cluster"]["certificate-authority-data"] =
        json!(format!("{first}\n{second}\r\n"));
    let mut both = document.clone();
    both["clusters"][0]["cluster"]["certificate-authority"] = json!("/etc/ca.crt");
    let mut only_context = document.clone();
    only_context["contexts"].as_array_mut().unwrap().pop();
    only_context["current-context"] = json!("");
    let list = json!({
        "apiVersion": "v1", "kind": "List", "items": [secret("value", &document)],
    });
    let anchors = text.replacen("\"https://prod", "&server \"https://prod", 1);
    for (what, input) in [
        (
            "UTF-16, little end first",
            utf16('\u{feff}', u16::to_le_bytes),
        ),
        ("UTF-16, big end first", utf16('\u{feff}', u16::to_be_bytes)),
        ("a byte order mark", format!("\u{feff}{text}").into_bytes()),
        ("no kind", without_kind.to_string().into_bytes()),
        ("wrapped base64", wrapped.to_string().into_bytes()),
        ("file and data", both.to_string().into_bytes()),
        ("one context", only_context.to_string().into_bytes()),
        ("a List with one item", list.to_string().into_bytes()),
        ("an anchor", anchors.into_bytes()),
    ] {
        let mut imported = read_import(&input, Choice::default())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let audience = Audience::new("https://prod").unwrap();
        let text = imported.render_target(None, &audience, now()).unwrap();
        assert!(
            text.contains("https://prod.example.com:6443"),
            "{what}: {text}"
        );
        assert!(text.contains("BEGIN CERTIFICATE"), "{what}: {text}");
    }
}

#[test]
fn contexts_and_names_are_proposed() {
    let mut document = kubeconfig(cluster(), json!({}));
    document["current-context"] = json!(null);
    let error = imported(&document, Choice::default()).unwrap_err();
    assert!(error.to_string().contains("--context: one, two"), "{error}");
    let mut arn = kubeconfig(cluster(), json!({}));
    let name = "arn:aws:eks:eu-west-1:123:cluster/Prod_1";
    arn["clusters"][0]["name"] = json!(name);
    arn["contexts"][0]["context"]["cluster"] = json!(name);
    let error = imported(&arn, Choice::default()).unwrap_err().to_string();
    assert!(
        error.contains("--name arn-aws-eks-eu-west-1-123-cluster-prod-1"),
        "{error}"
    );
}

/// A warning for what imports, and then does not work or means something else.
#[test]
fn what_imports_and_does_not_work_is_warned_of() {
    let warnings = |server: &str| {
        let mut document = kubeconfig(cluster(), json!({}));
        document["clusters"][0]["cluster"]["server"] = json!(server);
        let mut imported = read_import(document.to_string().as_bytes(), Choice::default()).unwrap();
        imported
            .render_target(None, &Audience::new("https://prod").unwrap(), now())
            .unwrap();
        imported.warnings
    };
    for local in [
        "https://127.0.0.1:6443",
        "https://0.0.0.0:6550",
        "https://[::1]:6443",
        "https://localhost:6443",
    ] {
        let warned = warnings(local);
        assert!(
            warned.len() == 1 && warned[0].contains("this machine"),
            "{local}: {warned:?}"
        );
    }
    for hub in [
        "https://kubernetes.default.svc",
        "https://kubernetes.default.svc.cluster.local:443",
    ] {
        let warned = warnings(hub);
        assert!(
            warned.len() == 1 && warned[0].contains("the hub itself"),
            "{hub}: {warned:?}"
        );
    }
    assert_eq!(warnings("https://prod.example.com"), Vec::<String>::new());
    let argo = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "labels": { "argocd.argoproj.io/secret-type": "cluster" } },
        "stringData": {
            "name": "prod", "server": "https://prod.example.com", "namespaces": "a,b", "project": "a",
            "clusterResources": "true", "config": "{}",
        },
    });
    let imported = read_import(argo.to_string().as_bytes(), Choice::default()).unwrap();
    assert_eq!(imported.warnings.len(), 3, "{:?}", imported.warnings);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,300}") {
        let _ = read_import(text.as_bytes(), Choice::default());
    }
}
