//! Tests what a tenant, and an admin, learn of accesses on the hub: of one that delivers only to
//! Flux, of a Secret of Cluster API, and with the rights of a tenant.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::rbac::{apply_manifests, service_account_kubeconfig};
use keyferry_integration::runner::TestError;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::cases::{Says, differs};
use super::federation::{AUDIENCE, Federation, TENANT};

const TARGET: &str = "/apis/keyferry.dev/v1alpha1/targetclusters/target";
const ACCESSES: &str = "/apis/keyferry.dev/v1alpha1/namespaces/tenant-a/targetaccesses";

/// Runs after the objects of [`super::starts`] exist.
pub(super) async fn diagnoses(it: &Federation) -> Result<Vec<String>, TestError> {
    prepare(it).await?;
    let tenant = service_account_kubeconfig(&it.hub, TENANT, "developer", 3600).await?;
    let stranger_kubeconfig = service_account_kubeconfig(&it.hub, TENANT, "stranger", 3600).await?;
    let mut wrong = Vec::new();
    for (who, kubeconfig) in [
        ("admin", it.hub.admin_kubeconfig()),
        ("tenant", tenant.path()),
    ] {
        for start in [
            "tenant-a/requested",
            "targetaccess/tenant-a/requested",
            "tenant-a/flux",
            "configmap/tenant-a/map",
            "kustomization/tenant-a/by-map",
            "secret/tenant-a/target",
        ] {
            let (code, report) = ask(it, kubeconfig, start).await?;
            let how = differs(Says::Well, code, &report);
            wrong.extend(how.map(|how| format!("{start} as {who}: {how}")));
        }
        let (code, report) = ask(it, kubeconfig, "secret/tenant-a/capi").await?;
        let how = differs(Says::Undetermined, code, &report);
        wrong.extend(how.map(|how| format!("a Secret of Cluster API as {who}: {how}")));
        let connection = hop(&report, "Connection");
        if connection["status"] != "Well" {
            wrong.push(format!("its Connection as {who}: {connection}"));
        }
    }
    for start in ["tenant-a/requested", "configmap/tenant-a/map"] {
        let (code, report) = ask(it, stranger_kubeconfig.path(), start).await?;
        let how = differs(Says::Undetermined, code, &report);
        wrong.extend(how.map(|how| format!("{start} as nobody: {how}")));
        let detail = hop(&report, "Start")["detail"].to_string();
        if !detail.contains("ask ") {
            wrong.push(format!("{start} as nobody: {detail}"));
        }
    }
    wrong.extend(rights(it).await?);
    wrong.extend(lists(it, tenant.path()).await?);
    Ok(wrong)
}

async fn ask(
    it: &Federation,
    kubeconfig: &Path,
    start: &str,
) -> Result<(Option<i32>, Value), TestError> {
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = [start.to_owned(), "--kubeconfig".to_owned(), kubeconfig];
    it.doctor(&arguments, "").await
}

fn hop(report: &Value, name: &str) -> Value {
    let mut hops = report["hops"].as_array().into_iter().flatten();
    hops.find(|hop| hop["hop"] == name)
        .cloned()
        .unwrap_or_default()
}

/// `can-i` and `doctor --needs` with the names that people type.
async fn rights(it: &Federation) -> Result<Vec<String>, TestError> {
    let kubeconfig = it.hub.admin_kubeconfig().display().to_string();
    let mut wrong = Vec::new();
    for (verb, resource, code, text) in [
        ("get", "po", 0, "may get pods"),
        ("get", "Pod", 0, "may get pods"),
        ("list", "pods", 0, "may list pods"),
        ("get", "deploy", 1, "may not get deployments.apps"),
        ("get", "deployments", 1, "may not get deployments.apps"),
        ("get", "Deployment", 1, "may not get deployments.apps"),
        ("get", "deploymets", 2, "deployments.apps"),
        ("pods", "get", 2, "get is a verb"),
    ] {
        let arguments = [
            "can-i",
            verb,
            resource,
            "--from",
            "tenant-a/flux",
            "--kubeconfig",
            &kubeconfig,
        ];
        let output = it.ground.binary().run(&arguments, &[]).await?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if output.status.code() != Some(code) || !said.contains(text) {
            wrong.push(format!("{arguments:?}: {:?} {said}", output.status));
        }
    }
    for (need, status) in [
        ("get/po", "Well"),
        ("list/Pod", "Well"),
        ("get/deploy", "Broken"),
    ] {
        let arguments = [
            "tenant-a/flux",
            "--needs",
            need,
            "--kubeconfig",
            &kubeconfig,
        ]
        .map(str::to_owned);
        let (_, report) = it.doctor(&arguments, "").await?;
        let rights = hop(&report, "Rights");
        if rights["status"] != status {
            wrong.push(format!("--needs {need}: {rights}"));
        }
    }
    wrong.extend(unknown_resource(it, &kubeconfig).await?);
    Ok(wrong)
}

/// A resource that the target does not serve is a mistake of the user, unless a group of the target
/// cannot be listed.
async fn unknown_resource(it: &Federation, kubeconfig: &str) -> Result<Vec<String>, TestError> {
    let needs = "--needs=get/deploymets";
    let doctor = ["doctor", "tenant-a/flux", needs, "--kubeconfig", kubeconfig];
    let can_i = ["can-i", "get", "deploymets", "--from", "tenant-a/flux"];
    let can_i = [&can_i[..], &["--kubeconfig", kubeconfig]].concat();
    let run = async |arguments: &[&str]| -> Result<(Option<i32>, String), TestError> {
        let output = it.ground.binary().run(arguments, &[]).await?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.code(), said))
    };
    let mut wrong = Vec::new();
    let (code, said) = run(&doctor).await?;
    if code != Some(2) || !said.contains("near it are deployments.apps") || !said.contains("fix: ")
    {
        wrong.push(format!("{needs}: {code:?} {said}"));
    }
    let (name, path) = (
        "v1.down.example.com",
        "/apis/apiregistration.k8s.io/v1/apiservices",
    );
    let down = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": name },
        "spec": {
            "group": "down.example.com", "version": "v1", "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "name": "down", "namespace": "default" },
        },
    });
    it.target.admin().create(path, &down).await?;
    // The target learns of it within some seconds.
    let limit = Instant::now() + Duration::from_secs(30);
    let (mut code, mut said) = run(&doctor).await?;
    while code == Some(2) && Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(500)).await;
        (code, said) = run(&doctor).await?;
    }
    if code != Some(3) || !said.contains("those of down.example.com/v1") {
        wrong.push(format!("{needs} of a partial list: {code:?} {said}"));
    }
    let (code, said) = run(&can_i).await?;
    if code != Some(3) || !said.contains("those of down.example.com/v1") {
        wrong.push(format!("can-i of a partial list: {code:?} {said}"));
    }
    it.target.admin().delete(&format!("{path}/{name}")).await?;
    Ok(wrong)
}

/// `targets` for an admin and for a tenant, and `token` for an access that gives none on request.
async fn lists(it: &Federation, tenant: &Path) -> Result<Vec<String>, TestError> {
    let admin = it.hub.admin_kubeconfig().display().to_string();
    let tenant = tenant.display().to_string();
    let mut wrong = Vec::new();
    let arguments = ["targets", "-o", "json", "--kubeconfig", &admin];
    let output = it.ground.binary().run(&arguments, &[]).await?;
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let flux = rows.as_array().into_iter().flatten();
    let flux: Vec<&Value> = flux.filter(|row| row["access"] == "flux").collect();
    if flux.len() != 1 || flux.iter().any(|row| row["allowed"] != "yes") {
        wrong.push(format!("targets: {rows:#}"));
    }
    for (arguments, text) in [
        (
            ["targets", "-n", "tenant-a", "--kubeconfig", &tenant],
            "ask the hub's admin for list on targetclusters",
        ),
        (
            [
                "token",
                "flux",
                "--namespace=tenant-a",
                "--kubeconfig",
                &admin,
            ],
            "tenant-a/flux delivers only FluxConfigMap: start from configmap/map, or add {type: HTTP}",
        ),
    ] {
        let output = it.ground.binary().run(&arguments, &[]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !said.contains(text) {
            wrong.push(format!("{arguments:?}: {said}"));
        }
    }
    Ok(wrong)
}

/// Writes the accesses, and the statuses that Keyferry would write.
async fn prepare(it: &Federation) -> Result<(), TestError> {
    let admin = it.hub.admin();
    apply_manifests(&it.hub, &[&shipped("broker/crds/targetaccesses.yaml")]).await?;
    it.until_served(ACCESSES).await?;
    let allow = json!([{ "namespaces": [TENANT], "serviceAccounts": ["reconciler"], "deliveries": ["HTTP", "FluxConfigMap"] }]);
    let target = admin
        .patch(TARGET, &json!({ "spec": { "allow": allow } }))
        .await?;
    let status = json!({
        "observedGeneration": target["metadata"]["generation"], "usernamePrefix": "hub:", "clusterResourceNamespace": "keyferry-system",
        "issuer": "https://hub.keyferry.test",
        "discoveryURL": format!("{}/.well-known/openid-configuration", it.documents.url()),
        "discoveryCertificateAuthority": it.ground.ca().cert_pem(),
    });
    admin
        .patch(&format!("{TARGET}/status"), &json!({ "status": status }))
        .await?;
    let flux = json!([{ "name": "flux", "type": "FluxConfigMap", "objectName": "map" }]);
    for (name, deliveries) in [("flux", flux), ("requested", json!([]))] {
        let access = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": name },
            "spec": { "targetClusterRef": { "name": "target" }, "serviceAccountName": "reconciler", "deliveries": deliveries },
        });
        admin.create(ACCESSES, &access).await?;
        let cluster = json!({ "server": it.target.url(), "audience": AUDIENCE, "certificate-authority-data": STANDARD.encode(it.target.ca_pem()) });
        admin
            .patch(
                &format!("{ACCESSES}/{name}/status"),
                &json!({ "status": { "cluster": cluster } }),
            )
            .await?;
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": { "server": it.target.url(), "certificate-authority-data": STANDARD.encode(it.target.ca_pem()) } }],
        "users": [{ "name": "u", "user": { "client-certificate-data": STANDARD.encode("c"), "client-key-data": STANDARD.encode("k") } }],
    });
    let capi = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "capi" }, "data": { "value": STANDARD.encode(kubeconfig.to_string()) } });
    admin
        .create(&format!("/api/v1/namespaces/{TENANT}/secrets"), &capi)
        .await?;
    grant_tenant(it).await
}

/// Grants what ClusterRole `edit` grants in the namespace, with the shipped roles aggregated to it,
/// as far as a diagnosis reads it.
async fn grant_tenant(it: &Federation) -> Result<(), TestError> {
    let path =
        |kind: &str| format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}/{kind}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "tenant" },
        "rules": [
            { "apiGroups": ["keyferry.dev"], "resources": ["targetaccesses"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
            { "apiGroups": [""], "resources": ["configmaps", "secrets", "serviceaccounts", "namespaces"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] },
            { "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["get", "list", "watch"] },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "tenant" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant" },
        "subjects": [{ "kind": "ServiceAccount", "name": "developer", "namespace": TENANT }],
    });
    it.hub.admin().create(&path("roles"), &role).await?;
    it.hub
        .admin()
        .create(&path("rolebindings"), &binding)
        .await?;
    Ok(())
}
