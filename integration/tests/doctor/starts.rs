//! Tests what users start from: an access of a file, a Secret, objects of Flux.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::cases::{Says, differs};
use super::federation::{AUDIENCE, Federation, TENANT};
use super::tenant;

const KUSTOMIZATIONS: &str =
    "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenant-a/kustomizations";
const HELM_RELEASES: &str = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/tenant-a/helmreleases";

pub(super) async fn what_users_hold(federation: Arc<Federation>) -> TestResult {
    let federation = &*federation;
    federation
        .target
        .restart_with_authentication_config(&federation.configuration)
        .await?;
    federation.until_initialized().await?;
    prepare(federation).await?;
    let hub = [
        "--kubeconfig".to_owned(),
        federation.hub.admin_kubeconfig().display().to_string(),
        "-n".to_owned(),
        TENANT.to_owned(),
    ];
    let config = federation
        .file("doctor-config.yaml", &configuration(federation))?
        .display()
        .to_string();
    let ca = federation
        .file("discovery-ca.crt", federation.ground.ca().cert_pem())?
        .display()
        .to_string();
    let documents = [
        "--discovery-url".to_owned(),
        federation.discovery_url.clone(),
        "--discovery-ca".to_owned(),
        ca.clone(),
    ];
    let access = [
        "--config".to_owned(),
        config,
        "--discovery-ca".to_owned(),
        ca,
    ];
    let mut wrong = Vec::new();
    let unlisted = ["--allow-unlisted-target".to_owned()];
    let as_nobody = ["--as".to_owned(), "tenant-a:nobody".to_owned()];
    for (start, further, says) in [
        ("access/a", &access[..], Says::Well),
        (
            "access/goner",
            &access[..],
            Says::Broken("Token", "TargetNotGranted"),
        ),
        (
            "access/none",
            &access[..],
            Says::Broken("Start", "TargetNotGranted"),
        ),
        ("secret/target", &documents[..], Says::Well),
        (
            "secret/old",
            &documents[..],
            Says::Broken("Claims", "TokenExpired"),
        ),
        (
            "secret/odd",
            &documents[..],
            Says::Broken("Start", "KubeconfigUnusable"),
        ),
        (
            "secret/none",
            &documents[..],
            Says::Broken("Start", "StartUnread"),
        ),
        ("kustomization/by-secret", &documents[..], Says::Well),
        ("kustomization/by-map", &documents[..], Says::Well),
        ("configmap/map", &documents[..], Says::Well),
        ("cm/map", &documents[..], Says::Well),
        ("tga/a", &access[..], Says::Well),
        ("targetaccess/a", &access[..], Says::Well),
        ("targetcluster/target", &documents[..], Says::Undetermined),
        (
            "tgt/none",
            &documents[..],
            Says::Broken("Start", "StartUnread"),
        ),
        // Values that a tenant can write are checked against the TargetClusters: no token is issued
        // or sent.
        (
            "kustomization/silent",
            &documents[..],
            Says::Broken("Start", "FluxReferenceUnusable"),
        ),
        (
            "kustomization/hubs",
            &documents[..],
            Says::Broken("Start", "AudienceIsHubs"),
        ),
        (
            "kustomization/hubs",
            &[&documents[..], &unlisted].concat()[..],
            Says::Broken("Start", "AudienceIsHubs"),
        ),
        (
            "kustomization/away",
            &documents[..],
            Says::Broken("Start", "TargetNotListed"),
        ),
        (
            "kustomization/away",
            &[&documents[..], &unlisted].concat()[..],
            Says::Broken("Start", "TargetNotListed"),
        ),
        (
            "secret/away",
            &documents[..],
            Says::Broken("Start", "TargetNotListed"),
        ),
        (
            "kustomization/climbing",
            &documents[..],
            Says::Broken("Start", "FluxReferenceUnusable"),
        ),
        (
            "kustomization/with-path",
            &documents[..],
            Says::Broken("Start", "FluxReferenceUnusable"),
        ),
        (
            "kustomization/goner",
            &documents[..],
            Says::Broken("Token", "ServiceAccountChanged"),
        ),
        (
            "kustomization/impersonating",
            &documents[..],
            Says::Broken("Impersonation", "ImpersonationDenied"),
        ),
        (
            "kustomization/gate-off",
            &documents[..],
            Says::Broken("Start", "FluxGateOff"),
        ),
        ("helmrelease/by-secret", &documents[..], Says::Well),
        ("helmrelease/by-map", &documents[..], Says::Well),
        (
            "helmrelease/impersonating",
            &documents[..],
            Says::Broken("Impersonation", "ImpersonationDenied"),
        ),
        (
            "helmrelease/here",
            &documents[..],
            Says::Broken("Start", "FluxReferenceUnusable"),
        ),
        (
            "helmrelease/none",
            &documents[..],
            Says::Broken("Start", "StartUnread"),
        ),
        (
            "secret/target",
            &[&documents[..], &as_nobody].concat()[..],
            Says::Broken("Impersonation", "ImpersonationDenied"),
        ),
    ] {
        let arguments = [&[start.to_owned()][..], &hub, further].concat();
        let (code, report) = federation.doctor(&arguments, "").await?;
        wrong.extend(differs(says, code, &report).map(|how| format!("{start}: {how}")));
    }
    for event in federation.hub.audit_events()? {
        if event["objectRef"]["subresource"] == "token" && event["objectRef"]["name"] == "victim" {
            wrong.push(format!(
                "a token was issued for what a tenant wrote: {event:#}"
            ));
        }
    }
    wrong.extend(what_a_kustomization_may_apply(federation, &hub).await?);
    wrong.extend(tenant::diagnoses(federation).await?);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n\n").into())
    }
}

/// `can-i apply kustomization/NAME`: with the Kustomization's own path to the target, and as the
/// user it impersonates.
async fn what_a_kustomization_may_apply(
    it: &Federation,
    hub: &[String; 4],
) -> Result<Vec<String>, TestError> {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a, namespace: apps }\n";
    let file = it.file("applied.yaml", object)?.display().to_string();
    let mut wrong = Vec::new();
    for (start, missing) in [("kustomization/by-secret", 4), ("helmrelease/by-map", 4)] {
        let arguments = [
            "can-i", "apply", start, "-f", &file, "-o", "json", "-n", TENANT, &hub[0], &hub[1],
        ];
        let output = it.ground.binary().run(&arguments, &[]).await?;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.code() != Some(1)
            || answer["missing"].as_array().map(Vec::len) != Some(missing)
        {
            wrong.push(format!(
                "{arguments:?}: {answer:#} {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    // Without a file, it uses what the Kustomization has applied before.
    let arguments = [
        "can-i",
        "apply",
        "kustomization/by-secret",
        "-o",
        "json",
        "-n",
        TENANT,
        &hub[0],
        &hub[1],
    ];
    let untold = it.ground.binary().run(&arguments, &[]).await?;
    if untold.status.code() != Some(2)
        || !String::from_utf8_lossy(&untold.stderr).contains("has applied before")
    {
        wrong.push(format!("{arguments:?} without an inventory: {untold:?}"));
    }
    let entries = json!([{ "id": "apps_a__ConfigMap", "v": "v1" }, { "id": "apps_web_apps_Deployment", "v": "v1" }]);
    let change = json!({ "status": { "inventory": { "entries": entries } } });
    it.hub
        .admin()
        .patch(&format!("{KUSTOMIZATIONS}/by-secret"), &change)
        .await?;
    let told = it.ground.binary().run(&arguments, &[]).await?;
    let answer: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    if told.status.code() != Some(1) || answer["missing"].as_array().map(Vec::len) != Some(8) {
        wrong.push(format!(
            "{arguments:?}: {answer:#} {}",
            String::from_utf8_lossy(&told.stderr)
        ));
    }
    Ok(wrong)
}

fn configuration(it: &Federation) -> String {
    let tls = "  tls: { certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key }\n";
    let pem: String = it
        .target
        .ca_pem()
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let access = |name: &str, account: &str| {
        format!(
            "---\napiVersion: keyferry.dev/v1alpha1\nkind: TargetAccess\nmetadata: {{ name: {name}, namespace: {TENANT} }}\nspec:\n\
             \x20 targetClusterRef: {{ name: target }}\n  serviceAccountName: {account}\n"
        )
    };
    format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\npublicURL: {}\n\
         discovery:\n  address: 127.0.0.1:1\n{tls}api:\n  address: 127.0.0.1:2\n{tls}health:\n  address: 127.0.0.1:3\n---\n\
         apiVersion: keyferry.dev/v1alpha1\nkind: TargetCluster\nmetadata: {{ name: target }}\nspec:\n  address: {}\n  audience: {AUDIENCE}\n\
         \x20 caBundle: |\n{pem}  allow:\n    - namespaces: [{TENANT}]\n      serviceAccounts: [reconciler, goner]\n{}{}",
        it.documents.url(),
        it.target.url(),
        access("a", "reconciler"),
        access("goner", "goner"),
    )
}

async fn prepare(it: &Federation) -> Result<(), TestError> {
    // The documents are at the root, as Keyferry itself serves them.
    let document: Value = json!({ "issuer": "https://hub.keyferry.test", "jwks_uri": format!("{}/hub/keys", it.documents.url()) });
    it.documents
        .put("/.well-known/openid-configuration", &document);
    let good = it.token("reconciler", &[AUDIENCE]).await?;
    let old = it
        .hub
        .sign_again(&good, |claims| claims["exp"] = json!(1))
        .await?;
    for (name, token) in [("target", &good), ("old", &old)] {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": {
                "server": it.target.url(), "certificate-authority-data": STANDARD.encode(it.target.ca_pem()),
            } }],
            "users": [{ "name": "u", "user": { "token": token } }],
        });
        put_secret(it, name, &kubeconfig.to_string()).await?;
    }
    put_secret(it, "odd", "apiVersion: v1\nkind: Config\n").await?;
    let away = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": {
            "server": it.documents.url(), "certificate-authority-data": STANDARD.encode(it.ground.ca().cert_pem()),
        } }],
        "users": [{ "name": "u", "user": { "token": good } }],
    });
    put_secret(it, "away", &away.to_string()).await?;
    list_the_target(it).await?;
    it.hub.create_service_account(TENANT, "victim").await?;
    // Values of an attacker: no audience, the hub's own, another address, a name that reaches into
    // another namespace.
    for (name, address, audiences) in [
        ("silent", it.target.url(), "\n"),
        ("hubs", it.target.url(), "https://hub.keyferry.test"),
        ("away", it.documents.url().to_owned(), AUDIENCE),
    ] {
        let data = json!({
            "provider": "generic", "address": address, "audiences": audiences, "serviceAccountName": "victim", "ca.crt": it.target.ca_pem(),
        });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        it.hub
            .admin()
            .create(&format!("/api/v1/namespaces/{TENANT}/configmaps"), &map)
            .await?;
    }
    serve_flux_kind(
        it,
        "kustomize.toolkit.fluxcd.io",
        "v1",
        "Kustomization",
        KUSTOMIZATIONS,
    )
    .await?;
    serve_flux_kind(
        it,
        "helm.toolkit.fluxcd.io",
        "v2",
        "HelmRelease",
        HELM_RELEASES,
    )
    .await?;
    let plain = it.target.url();
    for (name, address, account) in [
        ("map", plain.as_str(), "reconciler"),
        ("path", &format!("{plain}/k8s/clusters/c-1"), "reconciler"),
        ("goner", plain.as_str(), "goner"),
    ] {
        let data = json!({
            "provider": "generic", "address": address, "audiences": AUDIENCE, "serviceAccountName": account, "ca.crt": it.target.ca_pem(),
        });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        it.hub
            .admin()
            .create(&format!("/api/v1/namespaces/{TENANT}/configmaps"), &map)
            .await?;
    }
    let by_secret = json!({ "secretRef": { "name": "target" } });
    let by_map = |name: &str| json!({ "configMapRef": { "name": name } });
    let gate = "ObjectLevelWorkloadIdentity feature gate is not enabled";
    for (name, reference, account) in [
        ("by-secret", by_secret.clone(), ""),
        ("by-map", by_map("map"), ""),
        ("impersonating", by_secret.clone(), "deployer"),
    ] {
        let object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": name },
            "spec": { "kubeConfig": reference, "serviceAccountName": account },
        });
        it.hub.admin().create(HELM_RELEASES, &object).await?;
    }
    let here = json!({ "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": "here" }, "spec": {} });
    it.hub.admin().create(HELM_RELEASES, &here).await?;
    for (name, reference, account, ready) in [
        ("by-secret", by_secret.clone(), "", ""),
        ("by-map", by_map("map"), "", ""),
        ("with-path", by_map("path"), "", ""),
        ("goner", by_map("goner"), "", ""),
        ("impersonating", by_secret, "deployer", ""),
        ("gate-off", by_map("map"), "", gate),
        ("silent", by_map("silent"), "", ""),
        ("hubs", by_map("hubs"), "", ""),
        ("away", by_map("away"), "", ""),
        (
            "climbing",
            by_map("../../kube-system/configmaps/extension-apiserver-authentication"),
            "",
            "",
        ),
    ] {
        let object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": name },
            "spec": { "kubeConfig": reference, "serviceAccountName": account },
            "status": { "conditions": [{ "type": "Ready", "status": "False", "message": ready }] },
        });
        it.hub.admin().create(KUSTOMIZATIONS, &object).await?;
    }
    Ok(())
}

/// Lists the target as its admins do: an object of the hub, with its CA in a Secret of Keyferry's
/// namespace.
async fn list_the_target(it: &Federation) -> TestResult {
    apply_manifests(&it.hub, &[&shipped("broker/crds/targetclusters.yaml")]).await?;
    it.hub.create_namespace("keyferry-system").await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "target-ca" }, "data": { "ca.crt": STANDARD.encode(it.target.ca_pem()) },
    });
    it.hub
        .admin()
        .create("/api/v1/namespaces/keyferry-system/secrets", &secret)
        .await?;
    let path = "/apis/keyferry.dev/v1alpha1/targetclusters";
    it.until_served(path).await?;
    let target = json!({
        "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster", "metadata": { "name": "target" },
        "spec": { "address": it.target.url(), "audience": AUDIENCE, "certSecretRef": { "name": "target-ca" }, "allow": [] },
    });
    it.hub.admin().create(path, &target).await?;
    Ok(())
}

/// Serves a Flux kind with a schema that accepts everything. Only the names are Flux's own.
async fn serve_flux_kind(
    it: &Federation,
    group: &str,
    version: &str,
    kind: &str,
    path: &str,
) -> TestResult {
    let singular = kind.to_lowercase();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": format!("{singular}s.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": format!("{singular}s"), "singular": singular, "listKind": format!("{kind}List") },
            "versions": [{ "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    it.hub
        .admin()
        .create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &crd,
        )
        .await?;
    it.until_served(path).await
}

async fn put_secret(it: &Federation, name: &str, kubeconfig: &str) -> Result<(), TestError> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": { "value": STANDARD.encode(kubeconfig) } });
    it.hub
        .admin()
        .create(&format!("/api/v1/namespaces/{TENANT}/secrets"), &secret)
        .await?;
    Ok(())
}
