//! The admission policies on the hub, installed as docs/guides/hub.md says.

use std::time::Duration;

use keyferry_integration::runner::TestResult;
use keyferry_integration::wait::{until, until_object};
use serde_json::json;

use super::installation::{Installation, Policies, Way};
use super::installed::{access, until_rolled_out};
use super::setup::{Cluster, has_condition};

/// The hub must have served the definitions for a minute.
const WAIT_LIMIT: Duration = Duration::from_secs(150);
const FILE: &str = "policies.yaml";

/// Installs them, and waits until the command finds nothing that they allow and should refuse.
pub(crate) async fn install(cluster: &Cluster, installed: Installation<'_>) -> TestResult {
    let kubeconfig = cluster.hub.admin_kubeconfig().display().to_string();
    let command = ["admission-policies", "--kubeconfig", &kubeconfig];
    let file = cluster.ground.folder().join(FILE);
    until("the command leaves out no binding", WAIT_LIMIT, || async {
        let printed = cluster.ground.binary().run(&command, &[]).await?;
        let said = String::from_utf8_lossy(&printed.stderr);
        if !printed.status.success() {
            return Err(said.into_owned().into());
        }
        std::fs::write(&file, &printed.stdout)?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(!said.contains("left out for now"))
    })
    .await?;
    match installed.way {
        Way::Chart => {
            let with = Installation {
                policies: Policies::With,
                ..installed
            };
            with.apply(cluster).await?;
            until_rolled_out(cluster).await?;
        }
        Way::Base => {
            let file = file.display().to_string();
            let apply = ["apply", "--server-side", "-f", &file];
            cluster.kubectl(&apply).await?;
        }
    }
    let check = [&command[..], &["--check"]].concat();
    let checked = until("the policies hold", WAIT_LIMIT, || async {
        Ok(cluster
            .ground
            .binary()
            .run(&check, &[])
            .await?
            .status
            .success())
    });
    if let Err(error) = checked.await {
        let said = cluster.ground.binary().run(&check, &[]).await?;
        return Err(format!("{error}: {}", String::from_utf8_lossy(&said.stdout)).into());
    }
    Ok(())
}

/// Deletes those that `kubectl` applied: the bindings, then the policies.
pub(crate) async fn remove(cluster: &Cluster) -> TestResult {
    let kind = "validatingadmissionpolicybindings";
    let all = cluster.kubectl(&["get", kind, "-o", "name"]).await?;
    let bindings: Vec<&str> = all
        .lines()
        .filter(|name| name.contains("/keyferry-"))
        .collect();
    cluster
        .kubectl(&[&["delete"], &bindings[..]].concat())
        .await?;
    let file = cluster.ground.folder().join(FILE).display().to_string();
    let rest = ["delete", "--ignore-not-found", "-f", &file];
    cluster.kubectl(&rest).await?;
    Ok(())
}

/// With the policies, Keyferry proves each access at its target, and writes a kubeconfig with a
/// token.
pub(crate) async fn accesses_are_proven(cluster: &Cluster) -> TestResult {
    let admin = cluster.hub.admin();
    for name in ["prod", "stage"] {
        let object = admin.get(&access(name)).await?;
        let mut deliveries = object["spec"]["deliveries"].clone();
        if let Some(all) = deliveries.as_array_mut() {
            all.push(json!({ "name": "secret", "type": "KubeConfigSecret" }));
        }
        let change = json!({ "spec": { "deliveries": deliveries } });
        admin.patch(&access(name), &change).await?;
        let proven = |object: &serde_json::Value| {
            object["status"]["observedGeneration"] == object["metadata"]["generation"]
                && [
                    "Ready",
                    "Delivered",
                    "TargetReachable",
                    "TargetAuthenticates",
                ]
                .iter()
                .all(|kind| has_condition(object, kind))
        };
        until_object(admin, &access(name), "proven", WAIT_LIMIT, proven).await?;
    }
    Ok(())
}
