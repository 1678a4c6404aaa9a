//! Tests the objects that a cluster gets from its inputs, and the inputs that it cannot read.

use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::flux::{until_ready, until_said};
use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::until_object;
use keyferry_integration::world::shipped;
use serde_json::{Value, json};

use super::fleet::{CHARTS, D2, TARGETS, config_map, helm_release, input_provider, secret};
use crate::shipped_fleet::kustomization;

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn charts_follow_the_inputs(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let installed = config_map("ingress", "ingress-config");
    for ((target, plane), replicas) in TARGETS.iter().zip(&d2.targets).zip(["1", "3"]) {
        until_object(plane.admin(), &installed, "installed", MINUTE, |_| true).await?;
        let release = until_ready(
            &d2.hub,
            &helm_release("infra", &format!("ingress-{target}")),
        )
        .await?;
        assert!(has_chart(&release, CHARTS[0]), "{release}");
        assert_eq!(
            plane.admin().get(&installed).await?["data"],
            json!({ "cluster": target, "replicas": replicas })
        );
        // The Kustomization beside it, from the tree of the platform team.
        until_ready(&d2.hub, &kustomization("infra", &format!("apps-{target}"))).await?;
        let settings = plane
            .admin()
            .get(&config_map("ingress", "ingress-settings"))
            .await?;
        assert_eq!(
            settings["data"],
            json!({ "environment": target, "domain": format!("{target}.fleet.example.com") })
        );
    }
    // One commit to the inputs of staging: staging alone gets the new chart and value.
    d2.commit(
        "targets/staging/cluster.yaml",
        "version: \"1.0.0\"\n    replicas: 1",
        "version: \"1.1.0\"\n    replicas: 2",
    )
    .await?;
    let [staging, production] = &d2.targets;
    until_object(staging.admin(), &installed, "upgraded", MINUTE, |object| {
        object["data"]["replicas"] == "2"
    })
    .await?;
    let path = helm_release("infra", "ingress-staging");
    until_object(d2.hub.admin(), &path, "upgraded", MINUTE, |object| {
        has_chart(object, CHARTS[1])
    })
    .await?;
    assert_eq!(
        production.admin().get(&installed).await?["data"]["replicas"],
        "3"
    );
    Ok(())
}

/// Whether the latest release is of this chart. Its version ends with the digest of the artifact.
fn has_chart(release: &Value, version: &str) -> bool {
    let latest = release["status"]["history"][0]["chartVersion"].as_str();
    latest.is_some_and(|latest| latest.split('+').next() == Some(version))
}

/// Flux Operator itself, with the credential of one cluster and the URL of the other, by both
/// schemes that it has for a Secret.
pub(crate) async fn none_reads_anothers(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let (own, other) = (TARGETS[0], TARGETS[1]);
    let basic = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "basic" },
        "stringData": { "username": own, "password": d2.tokens[0] },
    });
    let path = format!("/api/v1/namespaces/{own}/secrets/basic");
    d2.hub.admin().apply(&path, &basic).await?;
    secret(&d2.hub, own, "bearer", "token", &d2.tokens[0]).await?;
    for scheme in ["bearer", "basic"] {
        for view in ["cluster", "accesses", "platform-components"] {
            for cluster in [own, other] {
                let name = format!("{scheme}-{view}-{cluster}");
                let provider = input_provider(own, &name);
                let object = provider_of(&d2, &name, scheme, cluster, view);
                d2.hub.admin().apply(&provider, &object).await?;
            }
        }
    }
    for scheme in ["bearer", "basic"] {
        for view in ["cluster", "accesses", "platform-components"] {
            // At first no access may be granted yet.
            let path = input_provider(own, &format!("{scheme}-{view}-{own}"));
            until_object(d2.hub.admin(), &path, "read", MINUTE, |object| {
                let inputs = object["status"]["exportedInputs"].as_array();
                inputs.is_some_and(|inputs| !inputs.is_empty())
            })
            .await?;
            let refused = until_said(
                &d2.hub,
                &input_provider(own, &format!("{scheme}-{view}-{other}")),
                "404",
            )
            .await?;
            assert_eq!(refused["status"]["exportedInputs"], Value::Null);
        }
    }
    Ok(())
}

fn provider_of(d2: &D2, name: &str, scheme: &str, cluster: &str, view: &str) -> Value {
    let url = format!(
        "{}/api/v2/flux/clusters/{cluster}.fleet.example.com/{view}",
        d2.addresses.keyferry
    );
    json!({
        "apiVersion": "fluxcd.controlplane.io/v1",
        "kind": "ResourceSetInputProvider",
        "metadata": {
            "name": name,
            "annotations": { "fluxcd.controlplane.io/reconcileEvery": "2s" },
        },
        "spec": {
            "type": "ExternalService",
            "url": url,
            "secretRef": { "name": scheme },
            "certSecretRef": { "name": "keyferry-ca" },
        },
    })
}

pub(crate) async fn runtime_info_is_printed(d2: Arc<D2>) -> TestResult {
    d2.until_settled().await?;
    let hub = d2.hub.admin_kubeconfig().display().to_string();
    for (target, tag) in TARGETS.iter().zip(["latest", "latest-stable"]) {
        let args = [
            "runtime-info",
            target,
            "--artifact-tag",
            tag,
            "--flux-namespace",
            target,
            "--internal-api-url",
            "https://keyferry.example.com:9443",
            "--kubeconfig",
            &hub,
        ];
        let output = d2.keyferry(&args).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let printed: Vec<Value> =
            serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout))?;
        let file = shipped(&format!(
            "examples/d2/fleet/targets/{target}/runtime-info.yaml"
        ));
        let shipped: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file)?)?;
        assert_eq!(printed, shipped);
    }
    Ok(())
}
