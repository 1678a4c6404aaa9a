//! From an installed hub to the first reconcile at a new target: with `keyferry onboard`, and with
//! Flux alone. Prints how long each took; no figure decides whether the test passes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec};
use keyferry_integration::flux::{GitSource, KubeConfigRef, KustomizationSpec, until_ready};
use keyferry_integration::keyferry_process::TARGETS_HERE;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::RECONCILER;
use serde_json::json;

use super::stage::{APPS, Stage, config_map_path, user, who_applied};

const TENANT: &str = "tenant-b";
/// A target whose apiserver reads a file without any issuer.
const TRUSTS_NOBODY: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";
const NODES: &str = "== on the control plane nodes of the target\n";

pub(crate) async fn reaches_the_first_reconcile_beside_flux_alone(stage: Arc<Stage>) -> TestResult {
    // One after the other, so that neither waits for the other's share of the machine.
    let onboarded = with_keyferry(&stage).await?;
    let alone = flux_alone(&stage).await?;
    eprintln!(
        "from an installed hub to the first reconcile: keyferry onboard {:.0} s with 2 commands and \
         1 file, Flux alone {:.0} s with 4 commands and 1 file; ratio {:.2}",
        onboarded.as_secs_f64(),
        alone.as_secs_f64(),
        onboarded.as_secs_f64() / alone.as_secs_f64(),
    );
    Ok(())
}

async fn target(stage: &Stage, name: &str) -> Result<ControlPlane, TestError> {
    let spec = ControlPlaneSpec {
        authentication_config: Some(TRUSTS_NOBODY.to_owned()),
        audit_log: true,
        ..ControlPlaneSpec::named(name)
    };
    let target = stage.control_plane(spec).await?;
    target.create_namespace(APPS).await?;
    // What `edit` would be with a controller manager.
    let editor = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "config-editor" },
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps"],
            "verbs": ["get", "create", "patch", "delete"],
        }],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/config-editor";
    target.admin().apply(path, &editor).await?;
    Ok(target)
}

async fn with_keyferry(stage: &Stage) -> Result<Duration, TestError> {
    let name = "onboarded";
    let target = target(stage, name).await?;
    let (repository, _) = stage.repository_of(name).await?;
    let started = Instant::now();

    let tenant = format!("{TENANT}/{RECONCILER}");
    let kubeconfig = target.admin_kubeconfig().display().to_string();
    let hub = stage.hub.admin_kubeconfig().display().to_string();
    let out = target.folder().join("onboard.out");
    let present = target.folder().join("present.yaml");
    std::fs::write(&present, TRUSTS_NOBODY)?;
    let command = format!(
        "exec {} onboard target {name} --target-kubeconfig {kubeconfig} --tenant {tenant} --delivery \
         FluxConfigMap --bind config-editor --bind-cluster-wide --merge {} --apply --kubeconfig {hub} \
         > {} 2>&1",
        stage.binary().display(),
        present.display(),
        out.display()
    );
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", &command])
        .env(TARGETS_HERE.0, TARGETS_HERE.1)
        .kill_on_drop(true);
    let mut running = bash.spawn()?;
    let read = || std::fs::read_to_string(&out).unwrap_or_default();
    while !read().contains("trying a token") {
        if started.elapsed() > Duration::from_secs(110) || running.try_wait()?.is_some() {
            return Err(format!("nothing was shown for the target: {}", read()).into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let shown = read();
    let (_, file) = shown.split_once(NODES).ok_or("no file is shown")?;
    // The RBAC at the target follows, because of --bind.
    let (file, _) = file.split_once("\n== ").ok_or("no RBAC is shown")?;
    target
        .set_authentication_config(&format!("{file}\n"))
        .await?;
    let ended = tokio::time::timeout(Duration::from_secs(120), running.wait()).await??;
    assert!(ended.success(), "{}", read());

    apply(stage, name, repository.url()).await?;
    let took = started.elapsed();
    assert_eq!(who_applied(&target, name)?, [user(TENANT)]);
    assert!(target.admin().exists(&config_map_path(name)).await?);
    Ok(took)
}

/// What Flux's own documents ask for: the hub's keys public, a ConfigMap, the target's file, and
/// RBAC there.
async fn flux_alone(stage: &Stage) -> Result<Duration, TestError> {
    let name = "alone";
    let target = target(stage, name).await?;
    let (repository, _) = stage.repository_of(name).await?;
    let audience = format!("https://{name}.keyferry.test");
    let started = Instant::now();

    let api = "rbac.authorization.k8s.io";
    let binding = |name: &str, role: &str, subject: serde_json::Value| {
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": role }, "subjects": [subject],
        })
    };
    let bindings = format!("/apis/{api}/v1/clusterrolebindings");
    let public = binding(
        "keys-are-public",
        "system:service-account-issuer-discovery",
        json!({ "apiGroup": api, "kind": "Group", "name": "system:unauthenticated" }),
    );
    let hub = stage.hub.admin();
    hub.apply(&format!("{bindings}/keys-are-public"), &public)
        .await?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": {
            "provider": "generic", "address": target.url(), "ca.crt": target.ca_pem(),
            "audiences": audience, "serviceAccountName": RECONCILER,
        },
    });
    hub.apply(
        &format!("/api/v1/namespaces/{TENANT}/configmaps/{name}"),
        &object,
    )
    .await?;
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": "https://hub.keyferry.test",
                "discoveryURL": format!("{}/.well-known/openid-configuration", stage.hub.url()),
                "certificateAuthority": stage.hub.ca_pem(),
                "audiences": [audience],
            },
            "claimMappings": { "username": { "claim": "sub", "prefix": "hub:" } },
        }],
    });
    target.set_authentication_config(&file.to_string()).await?;
    let edit = binding(
        "hub-edit",
        "config-editor",
        json!({ "apiGroup": api, "kind": "User", "name": user(TENANT) }),
    );
    target
        .admin()
        .apply(&format!("{bindings}/hub-edit"), &edit)
        .await?;

    apply(stage, name, repository.url()).await?;
    let took = started.elapsed();
    hub.delete(&format!("{bindings}/keys-are-public")).await?;
    assert_eq!(who_applied(&target, name)?, [user(TENANT)]);
    Ok(took)
}

/// Applies the tenant's Kustomization, and waits until it is Ready.
async fn apply(stage: &Stage, name: &str, url: &str) -> TestResult {
    let source = GitSource {
        namespace: TENANT,
        name,
        url,
    };
    source.apply(stage.hub.admin()).await?;
    let spec = KustomizationSpec {
        namespace: TENANT,
        name,
        source: name,
        path: "./apps",
        kube_config: KubeConfigRef::ConfigMap(name),
        impersonating: None,
    };
    spec.apply(stage.hub.admin()).await?;
    until_ready(&stage.hub, &spec.path()).await?;
    Ok(())
}
