//! The rights that an installation grants, as a real apiserver lists them to their owners, compared
//! with files that a reader can review. `KEYFERRY_WRITE_GOLDEN=1` writes the files as 1.37 lists
//! them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, Whom};
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::{apply_manifests, service_account_kubeconfig};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::shipped;
use serde_json::json;

use super::setup::{Hubs, NAMESPACE, TENANT, UNMINTABLE_NAMESPACE};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// What kube-apiserver's own role `system:cluster-trust-bundle-discovery` gives every ServiceAccount
/// from 1.37 on, where the resource is served by default. No other line of a golden file may differ
/// between releases.
const EVERYBODYS_SINCE_1_37: &str =
    "clustertrustbundles.certificates.k8s.io [] [] [get list watch]";

/// The right by which Keyferry watches fleet inputs.
const INPUTS: &str = "configmaps [] [] [get list watch]";

pub(crate) async fn rights_are_the_golden_ones(hubs: Arc<Hubs>) -> TestResult {
    for plane in [&hubs.base, &hubs.chart] {
        let mut everywhere = Vec::new();
        for (namespace, golden) in [
            (NAMESPACE, "own-namespace"),
            (TENANT, "tenant-namespace"),
            (UNMINTABLE_NAMESPACE, "elsewhere"),
        ] {
            let listed = rights(plane, NAMESPACE, "keyferry", namespace).await?;
            compare(plane, &format!("rbac-keyferry-{golden}.txt"), &listed)?;
            // Fleet inputs are ConfigMaps of Keyferry's own namespace, and of no other.
            let of_inputs = |line: &String| namespace == NAMESPACE && line == INPUTS;
            everywhere.extend(listed.into_iter().filter(|line| !of_inputs(line)));
        }
        let reads_all = |line: &String| {
            (line.starts_with("secrets ")
                || line.starts_with("configmaps ")
                || line.starts_with("*"))
                && ["list", "watch", "*"]
                    .iter()
                    .any(|verb| line.contains(verb))
        };
        assert!(
            !everywhere.iter().any(reads_all),
            "Keyferry can list what it must not: {everywhere:#?}"
        );
        let canary = rights(plane, NAMESPACE, "keyferry-canary", NAMESPACE).await?;
        let nobody = rights(plane, NAMESPACE, "default", NAMESPACE).await?;
        assert_eq!(canary, nobody, "the canary has no rights of its own");
        assert_eq!(
            nobody.iter().any(|line| line == EVERYBODYS_SINCE_1_37),
            plane.minor() >= Minor::V1_37,
            "the line is not Keyferry's own: {nobody:#?}"
        );
    }
    Ok(())
}

/// The account that may approve certificates, and so can make any user of the hub.
pub(crate) async fn the_approvers_rights_are_the_golden_ones(hubs: Arc<Hubs>) -> TestResult {
    let approver = shipped("examples/install/certificate-approver/approver.yaml");
    apply_manifests(&hubs.base, &[&approver]).await?;
    let account = "keyferry-certificate-approver";
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let rule = json!({ "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["list"] });
    hubs.base
        .until_it_counts(Whom::User(&user), "", &rule)
        .await?;
    let listed = rights(&hubs.base, NAMESPACE, account, NAMESPACE).await?;
    compare(&hubs.base, "rbac-certificate-approver.txt", &listed)
}

pub(crate) async fn tenants_get_their_rights_by_aggregation(hubs: Arc<Hubs>) -> TestResult {
    for plane in [&hubs.base, &hubs.chart] {
        for role in ["view", "edit", "admin"] {
            until_aggregated(plane, role).await?;
            bind(plane, role, role, TENANT).await?;
            let listed = rights(plane, TENANT, role, TENANT).await?;
            compare(plane, &format!("rbac-tenant-{role}.txt"), &ours(&listed))?;
            let outside = rights(plane, TENANT, role, UNMINTABLE_NAMESPACE).await?;
            assert!(
                ours(&outside).is_empty(),
                "{role} of {TENANT} in {UNMINTABLE_NAMESPACE}: {outside:?}"
            );
        }
        plane.create_service_account(TENANT, "platform").await?;
        plane
            .bind_user_to_cluster_role(
                &format!("system:serviceaccount:{TENANT}:platform"),
                "keyferry-platform-admin",
            )
            .await?;
        let listed = rights(plane, TENANT, "platform", UNMINTABLE_NAMESPACE).await?;
        compare(plane, "rbac-platform-admin.txt", &ours(&listed))?;
    }
    Ok(())
}

/// The rows about Keyferry's own kinds.
fn ours(listed: &[String]) -> Vec<String> {
    listed
        .iter()
        .filter(|line| line.contains("keyferry.dev"))
        .cloned()
        .collect()
}

/// `kubectl auth can-i --list` as the ServiceAccount itself, sorted, with single spaces.
async fn rights(
    plane: &Arc<ControlPlane>,
    home: &str,
    account: &str,
    namespace: &str,
) -> Result<Vec<String>, TestError> {
    let kubeconfig = service_account_kubeconfig(plane, home, account, 600).await?;
    let output = plane
        .kubectl_with(
            kubeconfig.path(),
            &["auth", "can-i", "--list", "-n", namespace],
        )
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !said.is_empty() {
        return Err(format!("kubectl auth can-i --list as {home}/{account}: {said}").into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut lines: Vec<String> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    Ok(lines)
}

fn compare(plane: &ControlPlane, name: &str, listed: &[String]) -> TestResult {
    let path: PathBuf = shipped("integration/golden").join(name);
    let text = format!(
        "Resources, non-resource URLs, resource names, verbs\n{}\n",
        listed.join("\n")
    );
    let write = std::env::var_os("KEYFERRY_WRITE_GOLDEN").is_some_and(|value| value == "1");
    if write && plane.minor() >= Minor::V1_37 {
        std::fs::write(&path, &text)?;
    }
    let mut golden = std::fs::read_to_string(&path)?;
    if plane.minor() < Minor::V1_37 {
        golden = golden.replace(&format!("{EVERYBODYS_SINCE_1_37}\n"), "");
    }
    assert_eq!(
        text, golden,
        "left: what the apiserver lists; right: integration/golden/{name}"
    );
    Ok(())
}

async fn bind(plane: &ControlPlane, account: &str, role: &str, namespace: &str) -> TestResult {
    plane.create_service_account(namespace, account).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": { "name": account },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    plane.admin().create(&path, &binding).await?;
    let role = plane
        .admin()
        .get(&format!(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}"
        ))
        .await?;
    let username = format!("system:serviceaccount:{namespace}:{account}");
    Ok(plane
        .until_it_counts(Whom::User(&username), namespace, &role["rules"][0])
        .await?)
}

/// Waits until the controller manager has copied the rules of labelled ClusterRoles into view, edit
/// and admin.
async fn until_aggregated(plane: &ControlPlane, role: &str) -> TestResult {
    let needed = if role == "view" {
        "\"watch\""
    } else {
        "\"delete\""
    };
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let rules = plane
            .admin()
            .get(&format!(
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}"
            ))
            .await?["rules"]
            .clone();
        let has = |rule: &serde_json::Value| {
            rule["apiGroups"].to_string().contains("keyferry.dev")
                && rule["verbs"].to_string().contains(needed)
        };
        if rules.as_array().is_some_and(|rules| rules.iter().any(has)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!(
                "ClusterRole {role} of {} has no rules about keyferry.dev",
                plane.name()
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
