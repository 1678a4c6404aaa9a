//! `keyferry tree` and `keyferry inspect` on a hub with Flux.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::flux::until_ready;
use keyferry_integration::rbac::service_account_kubeconfig;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until_object;
use keyferry_integration::world::on_hub::{RECONCILER, access_path, until_gone};
use serde_json::{Value, json};

use super::by_config_map::{TENANT, apply};
use super::stage::{Stage, access, user};

/// The account of a tenant who may read its own namespace, and no TargetCluster.
const READER: &str = "tree-reader";
const SOON: Duration = Duration::from_secs(60);

/// The steps of a path, each with its state.
fn states(step: &Value) -> Vec<(String, String)> {
    let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
    let below = step["below"].as_array().into_iter().flatten();
    std::iter::once((text("kind"), text("state")))
        .chain(below.flat_map(states))
        .collect()
}

async fn tree(
    stage: &Stage,
    name: &str,
    kubeconfig: &Path,
) -> Result<(Option<i32>, Value), TestError> {
    let access = format!("{TENANT}/{name}");
    let kubeconfig = kubeconfig.display().to_string();
    let line = ["tree", &access, "-o", "json", "--kubeconfig", &kubeconfig];
    let output = stage.ground().binary().run(&line, &[]).await?;
    let document = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("keyferry tree: {error}: {said}")
    })?;
    Ok((output.status.code(), document))
}

pub(crate) async fn shows_each_step_to_an_admin_and_to_a_tenant(stage: Arc<Stage>) -> TestResult {
    let name = "as-a-tree";
    let hub = &stage.hub;
    let (repository, _) = stage.repository_of(name).await?;
    access(hub, TENANT, name, "FluxConfigMap").await?;
    let spec = apply(hub, name, repository.url()).await?;
    until_ready(hub, &spec.path()).await?;
    let accepted = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "TargetAuthenticates" && condition["status"] == "True"
        })
    };
    let path = access_path(TENANT, name);
    until_object(hub.admin(), &path, "accepted by its target", SOON, accepted).await?;

    let mut expected = [
        ("TargetAccess", "Holds"),
        ("ConfigMap", "Holds"),
        ("Kustomization", "Holds"),
        ("ServiceAccount", "Holds"),
        ("TargetCluster", "Holds"),
        ("target", "Holds"),
        ("CA", "Holds"),
        ("user", "Holds"),
        ("rights", "NotAsked"),
    ]
    .map(|(kind, state)| (kind.to_owned(), state.to_owned()));
    let (code, document) = tree(&stage, name, hub.admin_kubeconfig()).await?;
    assert_eq!(
        (code, &document["verdict"]),
        (Some(0), &json!("Well")),
        "{document:#}"
    );
    assert_eq!(states(&document["root"]), expected, "{document:#}");
    assert!(document.to_string().contains(&user(TENANT)), "{document:#}");

    let reader = reader_of(hub, READER).await?;
    let (code, document) = tree(&stage, name, reader.path()).await?;
    expected[4].1 = "Unknown".to_owned();
    assert_eq!(
        (code, &document["verdict"]),
        (Some(3), &json!("Undetermined")),
        "{document:#}"
    );
    assert_eq!(states(&document["root"]), expected, "{document:#}");
    let right = "get targetclusters.keyferry.dev is missing";
    assert!(document.to_string().contains(right), "{document:#}");

    let stranger = service_account_kubeconfig(hub, "default", "default", 3600).await?;
    let (code, document) = tree(&stage, name, stranger.path()).await?;
    assert_eq!(code, Some(3), "{document:#}");
    let unknown = [("TargetAccess".to_owned(), "Unknown".to_owned())];
    assert_eq!(states(&document["root"]), unknown, "{document:#}");

    hub.admin().delete(&spec.path()).await?;
    until_gone(hub.admin(), &spec.path()).await?;
    hub.admin().delete(&path).await?;
    until_gone(hub.admin(), &path).await?;
    let (code, document) = tree(&stage, name, hub.admin_kubeconfig()).await?;
    assert_eq!(
        (code, &document["verdict"]),
        (Some(1), &json!("Broken")),
        "{document:#}"
    );
    Ok(())
}

/// A kubeconfig of an account that may read what a tenant may, in its own namespace.
async fn reader_of(
    hub: &Arc<ControlPlane>,
    name: &str,
) -> Result<keyferry_integration::rbac::ServiceAccountKubeconfig, TestError> {
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({ "name": name, "namespace": TENANT });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    let rule = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["get", "list"] });
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
        "rules": [
            rule("", &["configmaps", "serviceaccounts"]),
            rule("keyferry.dev", &["targetaccesses"]),
            rule("kustomize.toolkit.fluxcd.io", &["kustomizations"]),
            rule("helm.toolkit.fluxcd.io", &["helmreleases"]),
        ],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": rbac, "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": TENANT }],
    });
    for (base, plural, object) in [
        ("/api/v1".to_owned(), "serviceaccounts", account),
        (format!("/apis/{rbac}/v1"), "roles", role),
        (format!("/apis/{rbac}/v1"), "rolebindings", binding),
    ] {
        let path = format!("{base}/namespaces/{TENANT}/{plural}/{name}");
        hub.admin().apply(&path, &object).await?;
    }
    Ok(service_account_kubeconfig(hub, TENANT, name, 3600).await?)
}

pub(crate) async fn a_token_of_the_hub_is_inspected_with_its_published_keys(
    stage: Arc<Stage>,
) -> TestResult {
    let hub = &stage.hub;
    let minted = service_account_kubeconfig(hub, TENANT, RECONCILER, 3600).await?;
    let token = std::fs::read_to_string(minted.token_file())?;
    for (plane, state, code) in [
        (hub.as_ref(), "Valid", 0),
        (&stage.targets[0], "KeyNotInSet", 1),
    ] {
        let keys = stage.folder().join(format!("inspected-{state}.jwks"));
        std::fs::write(&keys, plane.admin().get_text("/openid/v1/jwks").await?)?;
        let [file, keys] = [minted.token_file(), &keys].map(|path| path.display().to_string());
        let line = ["inspect", &file, "--jwks", &keys, "-o", "json"];
        let output = stage.ground().binary().run(&line, &[]).await?;
        let said = String::from_utf8(output.stdout)?;
        let document: Value = serde_json::from_str(&said)?;
        assert_eq!(output.status.code(), Some(code), "{document:#}");
        assert_eq!(document["signature"]["state"], state, "{document:#}");
        let account = json!([TENANT, RECONCILER]);
        let named = &document["serviceAccount"];
        assert_eq!(
            json!([named["namespace"], named["name"]]),
            account,
            "{document:#}"
        );
        assert_eq!(document["expired"], false, "{document:#}");
        let repeats = token.trim().split('.').any(|part| said.contains(part));
        assert!(!repeats, "it prints a part of the token: {document:#}");
    }
    Ok(())
}
