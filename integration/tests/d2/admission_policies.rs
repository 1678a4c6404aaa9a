//! Objects that are refused for a tenant's namespace, from every writer: the admin makes every
//! attempt here.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::flux::until_ready;
use keyferry_integration::rest::RestError;
use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until;
use serde_json::{Value, json};

use super::fleet::{D2, config_map};
use crate::shipped_fleet::{RefusedSpec, each_is_refused, kustomization, refused};

const SOURCES: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/tenant-b";

/// A source that is admitted.
fn good_source(d2: &D2) -> Value {
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": { "name": "x" },
        "spec": {
            "interval": "1m",
            "url": format!("oci://{}/fleet/tenant-b/more", d2.addresses.registry),
            "verify": { "provider": "cosign", "secretRef": { "name": "cosign-key" } },
        },
    })
}

pub(crate) async fn sources_are_on_the_allowlist(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let path = format!("{SOURCES}/ocirepositories?dryRun=All");
    let good = good_source(&d2);
    let create = async |object: &Value| d2.hub.admin().create(&path, object).await;
    create(&good).await?;
    let mut chart = good.clone();
    chart["spec"]["url"] = format!("oci://{}/charts/ingress", d2.addresses.registry).into();
    create(&chart).await?;
    let identity = |issuer: &str, subject: &str| {
        let mut keyless = good.clone();
        keyless["spec"]["verify"] = json!({
            "provider": "cosign",
            "matchOIDCIdentity": [{ "issuer": issuer, "subject": subject }],
        });
        keyless
    };
    let allowlist = d2
        .hub
        .admin()
        .get(&config_map("flux-system", "flux-allowlist"))
        .await?;
    let word = |key: &str| {
        allowlist["data"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let (issuer, subject) = (word("oidcIssuer"), word("oidcSubject"));
    create(&identity(&issuer, &subject)).await?;

    let registry = &d2.addresses.registry;
    for url in [
        format!("oci://{registry}/fleet/tenant-a/apps"),
        format!("oci://{registry}/fleet/tenant-b/../tenant-a/apps"),
        format!("oci://{registry}/fleet/tenant-b/%2e%2e/tenant-a/apps"),
        format!("oci://{registry}/fleet/tenant-b/"),
        format!("oci://{registry}/fleet/tenant-b"),
        format!("oci://{registry}/platform/fleet"),
        format!("oci://{registry}/charts/more/ingress"),
        format!("oci://{registry}.evil.example/fleet/tenant-b/apps"),
        "oci://evil.example/fleet/tenant-b/apps".to_owned(),
    ] {
        let mut bad = good.clone();
        bad["spec"]["url"] = url.clone().into();
        refused(create(&bad).await, "spec.url of a tenant source is", &url)?;
    }
    for (issuer, subject) in [(".*", subject.as_str()), (issuer.as_str(), ".*"), ("", "")] {
        let case = format!("{issuer} {subject}");
        refused(
            create(&identity(issuer, subject)).await,
            "spec.verify of a tenant source",
            &case,
        )?;
    }
    // Flux ignores the identity beside a key, and accepts any identity that a tenant's own Sigstore
    // certifies.
    let mut beside_a_key = identity(&issuer, &subject);
    beside_a_key["spec"]["verify"]["secretRef"] = json!({ "name": "mine" });
    let mut own_root = identity(&issuer, &subject);
    own_root["spec"]["verify"]["trustedRootSecretRef"] = json!({ "name": "mine" });
    let mut key_and_root = good.clone();
    key_and_root["spec"]["verify"]["trustedRootSecretRef"] = json!({ "name": "mine" });
    for (case, bad) in [
        ("the identity beside a key of its own", beside_a_key),
        ("the identity by its own trusted root", own_root),
        ("the platform's key and its own trusted root", key_and_root),
    ] {
        refused(create(&bad).await, "spec.verify of a tenant source", case)?;
    }
    let cases: [RefusedSpec; 6] = [
        (
            "not verified",
            |spec| spec["verify"] = Value::Null,
            "spec.verify of a tenant source",
        ),
        (
            "a key of its own",
            |spec| spec["verify"]["secretRef"]["name"] = "mine".into(),
            "spec.verify of a tenant source",
        ),
        (
            "keyless by everybody",
            |spec| spec["verify"] = json!({ "provider": "cosign" }),
            "spec.verify of a tenant source",
        ),
        (
            "notation",
            |spec| spec["verify"]["provider"] = "notation".into(),
            "spec.verify of a tenant source",
        ),
        (
            "without TLS",
            |spec| spec["insecure"] = true.into(),
            "spec.insecure",
        ),
        (
            "the controller's identity",
            |spec| spec["provider"] = "aws".into(),
            "spec.provider",
        ),
    ];
    each_is_refused(&d2.hub, &path, &good, &cases).await?;
    let kinds = [
        (
            "gitrepositories",
            "GitRepository",
            json!({ "interval": "1m", "url": "https://evil.example/apps.git" }),
        ),
        (
            "helmrepositories",
            "HelmRepository",
            json!({ "interval": "1m", "url": "https://evil.example/charts" }),
        ),
        (
            "buckets",
            "Bucket",
            json!({ "interval": "1m", "bucketName": "x", "endpoint": "evil.example" }),
        ),
    ];
    for (resource, kind, spec) in kinds {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": { "name": "x" }, "spec": spec,
        });
        let path = format!("{SOURCES}/{resource}?dryRun=All");
        let answer = d2.hub.admin().create(&path, &object).await;
        refused(answer, "come from an OCIRepository", kind)?;
    }
    // An existing object cannot be changed to it either.
    let change = json!({ "spec": { "verify": null } });
    let path = format!("{SOURCES}/ocirepositories/apps-staging?dryRun=All");
    until_ready(&d2.hub, path.trim_end_matches("?dryRun=All")).await?;
    let answer = d2.hub.admin().patch(&path, &change).await;
    refused(answer, "spec.verify of a tenant source", "an update")
}

pub(crate) async fn objects_lead_to_targets(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let spec = json!({
        "interval": "1m",
        "serviceAccountName": "reconciler",
        "kubeConfig": { "configMapRef": { "name": "target-staging" } },
    });
    let mut applied = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization", "metadata": { "name": "x" }, "spec": spec,
    });
    applied["spec"]["prune"] = true.into();
    applied["spec"]["sourceRef"] = json!({ "kind": "OCIRepository", "name": "apps-staging" });
    let mut released = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease", "metadata": { "name": "x" }, "spec": spec,
    });
    released["spec"]["chartRef"] = json!({ "kind": "OCIRepository", "name": "chart" });
    let both: [RefusedSpec; 5] = [
        (
            "the hub itself",
            |spec| spec["kubeConfig"] = Value::Null,
            "without spec.kubeConfig",
        ),
        (
            "an object of its own",
            |spec| spec["kubeConfig"] = json!({ "configMapRef": { "name": "mine" } }),
            "begins with target-",
        ),
        (
            "a Secret",
            |spec| spec["kubeConfig"] = json!({ "secretRef": { "name": "target-staging" } }),
            "begins with target-",
        ),
        (
            "no account",
            |spec| spec["serviceAccountName"] = Value::Null,
            "spec.serviceAccountName is reconciler",
        ),
        (
            "another account",
            |spec| spec["serviceAccountName"] = "default".into(),
            "spec.serviceAccountName is reconciler",
        ),
    ];
    let of_kustomizations: [RefusedSpec; 1] = [(
        "another's source",
        |spec| spec["sourceRef"]["namespace"] = "tenant-a".into(),
        "stays in the tenant's namespace",
    )];
    let of_releases: [RefusedSpec; 2] = [
        (
            "another's chart",
            |spec| spec["chartRef"]["namespace"] = "tenant-a".into(),
            "stays in the tenant's namespace",
        ),
        (
            "a chart by name",
            |spec| {
                spec["chartRef"] = Value::Null;
                spec["chart"] = json!({ "spec": {
                    "chart": "x", "sourceRef": { "kind": "HelmRepository", "name": "x" },
                } });
            },
            "spec.chartRef, not spec.chart",
        ),
    ];
    let kinds = [
        (
            kustomization("tenant-b", ""),
            &applied,
            &of_kustomizations[..],
        ),
        (
            super::fleet::helm_release("tenant-b", ""),
            &released,
            &of_releases[..],
        ),
    ];
    for (path, good, own) in kinds {
        let path = format!("{}?dryRun=All", path.trim_end_matches('/'));
        each_is_refused(&d2.hub, &path, good, &both).await?;
        each_is_refused(&d2.hub, &path, good, own).await?;
    }
    Ok(())
}

pub(crate) async fn no_allowlist_no_source(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let good = good_source(&d2);
    let path = format!("{SOURCES}/ocirepositories?dryRun=All");
    d2.hub.admin().create(&path, &good).await?;
    let suspended = |on: bool| json!({ "spec": { "suspend": on } });
    // Flux would put the allowlist back.
    let policies = kustomization("flux-system", "policies");
    let sync = kustomization("flux-system", "flux-system");
    for path in [&sync, &policies] {
        d2.hub.admin().patch(path, &suspended(true)).await?;
    }
    let allowlist = config_map("flux-system", "flux-allowlist");
    d2.hub.admin().delete(&allowlist).await?;
    let minute = Duration::from_secs(60);
    until("all sources are refused", minute, || async {
        match d2.hub.admin().create(&path, &good).await {
            Err(RestError::Status {
                status: 422 | 403, ..
            }) => Ok(true),
            Err(other) => Err(other.into()),
            Ok(_) => Ok(false),
        }
    })
    .await?;
    for path in [&policies, &sync] {
        d2.hub.admin().patch(path, &suspended(false)).await?;
    }
    until("the source is admitted again", minute, || async {
        Ok(d2.hub.admin().create(&path, &good).await.is_ok())
    })
    .await
}
