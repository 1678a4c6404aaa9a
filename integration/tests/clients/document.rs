//! Tests the kubeconfig in clients that are not Keyferry's.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{ACCOUNT, TENANT, World, caller_token};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::command::AT_TARGET;

pub(crate) async fn kubeconfig_file(world: &World) -> Result<(TempDir, PathBuf), TestError> {
    let caller = caller_token(world.hub(), TENANT, ACCOUNT).await?;
    let answer = world.broker().kubeconfig_of(&caller, TENANT, "a").await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        answer
            .headers
            .get("content-type")
            .and_then(|value| value.to_str().ok()),
        Some("application/yaml")
    );
    assert_eq!(
        answer
            .headers
            .get("cache-control")
            .and_then(|value| value.to_str().ok()),
        Some("no-store")
    );
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    std::fs::write(&path, answer.body)?;
    Ok((folder, path))
}

pub(crate) async fn kubectl_takes_the_kubeconfig_as_it_is(world: Arc<World>) -> TestResult {
    let (_folder, path) = kubeconfig_file(&world).await?;
    let target = world.target_a();
    let output = target
        .kubectl_with(&path, &["auth", "whoami", "-o", "json"])
        .await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let review: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(review["status"]["userInfo"]["username"], AT_TARGET);
    assert_eq!(
        review["status"]["userInfo"]["groups"],
        json!(["system:authenticated"])
    );

    // The target's own RBAC decides what this user may do: nothing until a target admin binds the
    // user.
    let listing = ["get", "namespaces", "-o", "name"];
    let output = target.kubectl_with(&path, &listing).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("Forbidden") && said.contains(AT_TARGET),
        "{said}"
    );
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "namespace-reader" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"] }],
    });
    target
        .admin()
        .apply(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/namespace-reader",
            &reader,
        )
        .await?;
    target
        .bind_user_to_cluster_role(AT_TARGET, "namespace-reader")
        .await?;
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let output = target.kubectl_with(&path, &listing).await?;
        if output.status.success() {
            assert!(String::from_utf8_lossy(&output.stdout).contains("namespace/kube-system"));
            return Ok(());
        }
        assert!(
            Instant::now() < limit,
            "the binding does not count: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn client_go_takes_the_kubeconfig_as_it_is(world: Arc<World>) -> TestResult {
    let (_folder, path) = kubeconfig_file(&world).await?;
    let program = world.fleet().parts().locate(Part::ClientGo).await?;
    let output = Command::new(program)
        .arg(path)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await??;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let user: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(user["username"], AT_TARGET);
    assert_eq!(user["groups"], json!(["system:authenticated"]));
    Ok(())
}
