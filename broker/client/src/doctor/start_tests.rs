//! What a diagnosis starts from, on a hub that serves prepared objects and refuses the rest.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_api::name::{AccessName, Namespace};
use keyferry_hub::client::HubAccess;
use keyferry_kube_authn::Code;
use keyferry_testing::{Authority, EmbeddedTarget, TargetOptions};
use serde_json::{Value, json};

use crate::configuration_source::ConfigurationSource;
use crate::direct::Direct;
use crate::doctor::diagnosis::{Diagnosis, Finding, Hop, Status, TokenEvidence, examine};
use crate::doctor::flux::{FluxKind, from_config_map, from_flux};
use crate::doctor::plan::{Permission, Plan};
use crate::doctor::start::{from_access, from_secret};
use crate::doctor::{Means, gather_evidence};

const TARGETS: &str = "/apis/keyferry.dev/v1alpha1/targetclusters";
const ACCESSES: &str = "/apis/keyferry.dev/v1alpha1/namespaces/tenant-a/targetaccesses";

/// A hub with these objects by path. It answers 403 to the paths that begin with one of
/// `forbidden`, and 404 to all others.
struct Hub {
    access: HubAccess,
    _folder: tempfile::TempDir,
}

#[derive(Clone, Default)]
struct Answers {
    objects: BTreeMap<String, Value>,
    forbidden: Vec<&'static str>,
}

impl Answers {
    fn with(mut self, path: &str, object: Value) -> Self {
        self.objects.insert(path.to_owned(), object);
        self
    }

    fn forbidding(mut self, paths: &[&'static str]) -> Self {
        self.forbidden.extend(paths);
        self
    }

    fn respond_to(&self, path: &str) -> axum::response::Response {
        let status = |code: StatusCode, reason: &str| {
            let message = format!("User \"jane\" cannot read {path}");
            let body = json!({ "kind": "Status", "apiVersion": "v1", "reason": reason, "message": message });
            (code, Json(body)).into_response()
        };
        if self.forbidden.iter().any(|start| path.starts_with(start)) {
            return status(StatusCode::FORBIDDEN, "Forbidden");
        }
        match self.objects.get(path) {
            Some(object) => Json(object.clone()).into_response(),
            None => status(StatusCode::NOT_FOUND, "NotFound"),
        }
    }

    async fn start(self) -> Hub {
        let authority = Authority::new("hub").unwrap();
        let identity = authority.server_identity(&["127.0.0.1"]).unwrap();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(
            identity.tls_config().unwrap(),
        ));
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(async move |uri: Uri| self.respond_to(uri.path()));
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(server.serve(router.into_make_service()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let url = format!("https://{address}");
        let user = json!({ "token": "jane" });
        std::fs::write(&path, kubeconfig(&url, authority.ca_pem(), &user)).unwrap();
        Hub {
            access: HubAccess {
                kubeconfig: Some(path),
                ..HubAccess::default()
            },
            _folder: folder,
        }
    }
}

fn kubeconfig(url: &str, ca_pem: &str, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": { "server": url, "certificate-authority-data": STANDARD.encode(ca_pem) } }],
        "users": [{ "name": "u", "user": user }],
    });
    config.to_string()
}

fn secret(key: &str, kubeconfig: &str) -> Value {
    json!({ "data": { key: STANDARD.encode(kubeconfig) } })
}

async fn target() -> EmbeddedTarget {
    let ca = Authority::new("discovery").unwrap();
    let options = TargetOptions::new("https://hub.example", "target-a", "hub:", ca.ca_pem());
    EmbeddedTarget::start(options).await.unwrap()
}

fn tenant() -> Namespace {
    Namespace::new("tenant-a").unwrap()
}

fn access_name() -> AccessName {
    AccessName::parse("tenant-a/prod").unwrap()
}

/// A TargetCluster with this address and CA, as the hub serves it.
fn target_cluster(url: &str, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
        "metadata": { "name": "prod", "uid": "t", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "address": url, "audience": "target-a", "caBundle": ca_pem,
            "allow": [{ "namespaces": ["tenant-a"], "serviceAccounts": ["reconciler"] }] },
        "status": { "observedGeneration": 1, "usernamePrefix": "hub:", "clusterResourceNamespace": "keyferry-system",
            "discoveryURL": "https://keys.example/.well-known/openid-configuration", "discoveryCertificateAuthority": ca_pem },
    })
}

fn access(url: &str, ca_pem: &str, deliveries: &Value) -> Value {
    json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess",
        "metadata": { "name": "prod", "namespace": "tenant-a", "uid": "a", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "targetClusterRef": { "name": "prod" }, "serviceAccountName": "reconciler", "deliveries": deliveries },
        "status": {
            "conditions": [{ "type": "Authorized", "status": "True", "reason": "Ready" }],
            "cluster": { "server": url, "certificate-authority-data": STANDARD.encode(ca_pem), "audience": "target-a" },
        },
    })
}

fn config_map(address: &str, authority: &str) -> Value {
    json!({ "data": { "provider": "generic", "address": address, "audiences": "target-a", "serviceAccountName": "reconciler", "ca.crt": authority } })
}

fn flux_delivery() -> Value {
    json!([{ "name": "flux", "type": "FluxConfigMap", "objectName": "prod" }])
}

async fn admitted(hub: &Hub, plan: Plan) -> Plan {
    let source = ConfigurationSource::Hub;
    plan.admit(&source, &hub.access, Permission::default())
        .await
}

async fn diagnosed(mut plan: Plan) -> Diagnosis {
    plan.guard = keyferry_platform::testing::loopback_guard();
    examine(&gather_evidence(plan, &Means::default()).await.unwrap())
}

fn finding(diagnosis: &Diagnosis, hop: Hop) -> &Finding {
    let mut findings = diagnosis.findings.iter();
    findings.find(|finding| finding.hop == hop).unwrap()
}

fn client_certificate() -> Value {
    json!({ "client-certificate-data": STANDARD.encode("c"), "client-key-data": STANDARD.encode("k") })
}

#[tokio::test]
async fn a_secret_of_cluster_api_is_not_called_broken() {
    let target = target().await;
    let kubeconfig = kubeconfig(target.url(), target.ca_pem(), &client_certificate());
    let kustomization = json!({
        "spec": { "kubeConfig": { "secretRef": { "name": "capi" } } },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded" }] },
    });
    let hub = Answers::default()
        .with(
            "/api/v1/namespaces/tenant-a/secrets/capi",
            secret("value", &kubeconfig),
        )
        .with(
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenant-a/kustomizations/capi",
            kustomization,
        )
        .with(TARGETS, json!({ "items": [] }))
        .start()
        .await;
    for plan in [
        from_secret(&hub.access, &tenant(), "capi", None).await,
        from_flux(&hub.access, FluxKind::Kustomization, &tenant(), "capi").await,
    ] {
        let diagnosis = diagnosed(admitted(&hub, plan).await).await;
        assert_eq!(diagnosis.broken, None, "{diagnosis:#?}");
        assert_eq!(
            finding(&diagnosis, Hop::Token).detail,
            "authenticates with a client certificate; there is no token to check"
        );
        assert_eq!(finding(&diagnosis, Hop::Connection).status, Status::Well);
    }
    let requests = target.requests();
    assert!(requests.is_empty(), "no credential was sent: {requests:?}");
}

#[tokio::test]
async fn a_secret_without_the_expected_key_names_its_keys() {
    let kubeconfig = kubeconfig("https://t", "x", &client_certificate());
    let hub = Answers::default()
        .with(
            "/api/v1/namespaces/tenant-a/secrets/admin",
            secret("admin.conf", &kubeconfig),
        )
        .start()
        .await;
    let plan = from_secret(&hub.access, &tenant(), "admin", None).await;
    let detail = plan.problem.unwrap().detail;
    assert!(
        detail.contains("admin.conf") && detail.contains("--secret-key"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_ca_in_the_wrong_form_is_a_broken_hop_with_its_object_and_its_fix() {
    let pem = Authority::new("t").unwrap().ca_pem().to_owned();
    let hub = Answers::default()
        .with(
            "/api/v1/namespaces/tenant-a/configmaps/prod",
            config_map("https://t", &STANDARD.encode(&pem)),
        )
        .with(TARGETS, json!({ "items": [] }))
        .start()
        .await;
    let plan = from_config_map(&hub.access, &tenant(), "prod").await;
    let diagnosis = diagnosed(admitted(&hub, plan).await).await;
    assert_eq!(diagnosis.broken, Some(Hop::Start));
    let start = finding(&diagnosis, Hop::Start);
    assert!(
        start
            .detail
            .contains("configmap/prod: its ca.crt is base64 of PEM"),
        "{start:?}"
    );
    assert!(start.fix.unwrap().contains("without base64"));
    assert_eq!(start.cause, Some(Code::FluxReferenceUnusable.into()));
    assert_eq!(diagnosis.findings.len(), 16);
}

#[tokio::test]
async fn an_access_that_delivers_only_to_flux_is_followed() {
    let target = target().await;
    let (url, pem) = (target.url(), target.ca_pem());
    let object = access(url, pem, &flux_delivery());
    let hub = Answers::default()
        .with(&format!("{TARGETS}/prod"), target_cluster(url, pem))
        .with(TARGETS, json!({ "items": [target_cluster(url, pem)] }))
        .with(&format!("{ACCESSES}/prod"), object)
        .with(
            "/api/v1/namespaces/tenant-a/configmaps/prod",
            config_map(url, pem),
        )
        .forbidding(&["/api/v1/namespaces/tenant-a/serviceaccounts/reconciler/token"])
        .start()
        .await;
    let direct = Direct {
        source: ConfigurationSource::Hub,
        hub: hub.access.clone(),
    };
    let plan = from_access(&access_name(), &direct).await;
    assert_eq!(plan.problem, None);
    assert!(plan.start.ends_with("by configmap/prod"), "{}", plan.start);
    assert!(plan.to_issue.is_some() && plan.target_is_tenants);
    assert_eq!(
        plan.published_at.as_deref(),
        Some("https://keys.example/.well-known/openid-configuration")
    );
    assert_eq!(plan.published_ca.as_deref(), Some(pem.as_bytes()));
    // To issue a token takes a right of the user, whose lack is no broken hop.
    let plan = admitted(&hub, plan).await;
    assert_eq!(
        (plan.problem.as_ref(), plan.target_name.as_deref()),
        (None, Some("prod"))
    );
    let TokenEvidence::Unknown(why) = &plan.token_evidence else {
        panic!("{:?}", plan.token_evidence)
    };
    assert!(
        why.contains("ask for create on serviceaccounts/token"),
        "{why}"
    );
    let diagnosis = diagnosed(plan).await;
    assert_eq!(finding(&diagnosis, Hop::Token).status, Status::Undetermined);
    assert_eq!(finding(&diagnosis, Hop::Start).status, Status::Well);
    // Where the documents are is known from the status, so that they cannot be read is a finding.
    assert_eq!(diagnosis.broken, Some(Hop::Discovery));
}

/// A tenant may read its accesses, and no TargetCluster.
#[tokio::test]
async fn a_tenant_is_led_by_the_status_of_its_own_access() {
    let target = target().await;
    let (url, pem) = (target.url(), target.ca_pem());
    for deliveries in [json!([]), flux_delivery()] {
        let object = access(url, pem, &deliveries);
        let hub = Answers::default()
            .with(&format!("{ACCESSES}/prod"), object.clone())
            .with(ACCESSES, json!({ "items": [object] }))
            .with(
                "/api/v1/namespaces/tenant-a/configmaps/prod",
                config_map(url, pem),
            )
            .with(
                "/api/v1/namespaces/tenant-a/configmaps/other",
                config_map("https://203.0.113.1", pem),
            )
            .forbidding(&[TARGETS, "/api/v1/namespaces/tenant-a/serviceaccounts"])
            .start()
            .await;
        let direct = Direct {
            source: ConfigurationSource::Hub,
            hub: hub.access.clone(),
        };
        let plan = admitted(&hub, from_access(&access_name(), &direct).await).await;
        assert_eq!((plan.problem.as_ref(), plan.unknown.as_ref()), (None, None));
        assert_eq!(plan.target.as_ref().unwrap().url, url);
        let diagnosis = diagnosed(plan).await;
        assert_eq!(diagnosis.broken, None, "{diagnosis:#?}");
        assert_eq!(finding(&diagnosis, Hop::Connection).status, Status::Well);
        // Where the tenant may not look, nothing is known, and nothing is issued or sent.
        let elsewhere = from_config_map(&hub.access, &tenant(), "other").await;
        let elsewhere = admitted(&hub, elsewhere).await;
        assert!(elsewhere.problem.is_none() && elsewhere.target.is_none());
        let why = elsewhere.unknown.unwrap();
        assert!(
            why.contains("ask its admin for list on targetclusters"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn a_user_without_rights_learns_whom_to_ask() {
    let hub = Answers::default()
        .forbidding(&["/apis/", "/api/"])
        .start()
        .await;
    let direct = Direct {
        source: ConfigurationSource::Hub,
        hub: hub.access.clone(),
    };
    let flux = from_flux(&hub.access, FluxKind::HelmRelease, &tenant(), "prod").await;
    for plan in [
        from_access(&access_name(), &direct).await,
        from_config_map(&hub.access, &tenant(), "prod").await,
        from_secret(&hub.access, &tenant(), "prod", None).await,
        flux,
    ] {
        let start = plan.start.clone();
        let diagnosis = diagnosed(admitted(&hub, plan).await).await;
        assert_eq!(diagnosis.broken, None, "{start}: {diagnosis:#?}");
        let detail = &finding(&diagnosis, Hop::Start).detail;
        assert!(detail.contains("ask "), "{start}: {detail}");
    }
}

/// Finalizers that make a list larger than the client reads of a single object.
fn large_finalizers() -> Value {
    json!(["x".repeat(4_000_000)])
}

/// A TargetCluster that is too large to be read leads to an unknown server. So no other server may
/// be called unlisted, and none may get a token for an audience that may be listed.
#[tokio::test]
async fn a_target_that_is_too_large_to_be_read_is_not_called_unlisted() {
    let target = target().await;
    let (url, pem) = (target.url(), target.ca_pem());
    let mut listed = target_cluster(url, pem);
    listed["metadata"]["finalizers"] = large_finalizers();
    let mut large = target_cluster("https://203.0.113.1", pem);
    large["metadata"]["name"] = json!("large");
    large["spec"]["caBundle"] = json!("x".repeat(1_100_000));
    let elsewhere = |audience: &str| {
        let mut map = config_map("https://203.0.113.1", pem);
        map["data"]["audiences"] = json!(audience);
        map
    };
    let hub = Answers::default()
        .with(TARGETS, json!({ "items": [listed, large] }))
        .with(
            "/api/v1/namespaces/tenant-a/configmaps/prod",
            config_map(url, pem),
        )
        .with(
            "/api/v1/namespaces/tenant-a/configmaps/other",
            elsewhere("other"),
        )
        .start()
        .await;
    let plan = from_config_map(&hub.access, &tenant(), "prod").await;
    let plan = admitted(&hub, plan).await;
    assert_eq!(plan.target_name.as_deref(), Some("prod"), "{plan:?}");
    for unlisted_target in [false, true] {
        let permission = Permission {
            unlisted_target,
            ..Permission::default()
        };
        let plan = from_config_map(&hub.access, &tenant(), "other").await;
        let plan = plan.admit(&ConfigurationSource::Hub, &hub.access, permission);
        let plan = plan.await;
        assert!(plan.problem.is_none() && plan.target.is_none(), "{plan:?}");
        let why = plan.unknown.unwrap();
        assert!(
            why.contains("TargetCluster large is too large to be read, and must be made smaller"),
            "{why}"
        );
    }
    let plan =
        crate::doctor::start::from_target("missing", &ConfigurationSource::Hub, &hub.access).await;
    let detail = plan.problem.unwrap().detail;
    assert!(
        detail.contains("TargetCluster large is too large to be read"),
        "{detail}"
    );
}

#[tokio::test]
async fn large_bindings_do_not_hide_a_mistaken_one() {
    let user = "system:serviceaccount:tenant-a:reconciler";
    let binding = |name: &str, subjects: Value, finalizers: Value| {
        json!({
            "metadata": { "name": name, "namespace": "apps", "finalizers": finalizers },
            "subjects": subjects,
        })
    };
    let mistaken = json!([{ "kind": "User", "name": user }]);
    let bindings = [
        binding("large", Value::Null, large_finalizers()),
        binding("mistaken", mistaken, Value::Null),
    ];
    let hub = Answers::default()
        .with(
            "/apis/rbac.authorization.k8s.io/v1/rolebindings",
            json!({ "items": bindings }),
        )
        .start()
        .await;
    let client = hub.access.client().await.unwrap();
    let found = crate::doctor::bindings::mistaken(&client, user).await;
    let found: Vec<&str> = found.iter().map(|one| one.binding.as_str()).collect();
    assert_eq!(found, ["RoleBinding apps/mistaken"]);
}
