//! `configMapRef` of a role: Flux mints for the role's audience, and is the role's user at the target.

use std::sync::Arc;

use futures::future::try_join_all;
use keyferry_integration::control_plane::{ControlPlane, ControlPlaneSpec, Whom};
use keyferry_integration::flux::{until_ready, until_said};
use keyferry_integration::parts::Minor;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::{RECONCILER, audience, until_gone};
use serde_json::json;

use super::by_config_map::{TENANT, apply};
use super::stage::{
    APPS, Stage, access_to, config_map_path, declare, may_apply, user, who_applied,
};

const ROLES: [&str; 2] = ["deploy", "view"];
const TRUSTS_NOBODY: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";
const CLUSTER_ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: role-deploy}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: role-view}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
"#;

/// On both minors. The account itself may apply at each target, so only the role refuses.
pub(crate) async fn applies_what_the_role_may(stage: Arc<Stage>) -> TestResult {
    let minors = [("roles-new", Minor::newest()), ("roles-old", Minor::V1_33)];
    let stage = &stage;
    let checked = minors.map(|(name, minor)| async move {
        let target = target_with_roles(stage, name, minor).await?;
        by_each_role(stage, &target).await
    });
    try_join_all(checked).await?;
    Ok(())
}

/// A target, its roles on the hub, and what `keyferry trust` prints for all of them.
async fn target_with_roles(
    stage: &Stage,
    name: &str,
    minor: Minor,
) -> Result<ControlPlane, TestError> {
    let spec = ControlPlaneSpec {
        minor,
        authentication_config: Some(TRUSTS_NOBODY.to_owned()),
        audit_log: true,
        ..ControlPlaneSpec::named(name)
    };
    let target = stage.control_plane(spec).await?;
    may_apply(&target, &[TENANT]).await?;
    declare(
        &stage.hub,
        &target,
        &target.url(),
        &[(TENANT, "FluxConfigMap")],
    )
    .await?;
    for role in ROLES {
        let object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetCluster",
            "metadata": { "name": role_target(name, role) },
            "spec": {
                "sameAs": name, "role": role,
                "audience": format!("{}/roles/{role}", audience(name)),
                "allow": [{
                    "namespaces": [TENANT], "serviceAccounts": [RECONCILER],
                    "deliveries": ["FluxConfigMap"],
                }],
            },
        });
        let target = role_target(name, role);
        let path = format!("/apis/keyferry.dev/v1alpha1/targetclusters/{target}");
        stage.hub.admin().apply(&path, &object).await?;
        until_ready(&stage.hub, &path).await?;
    }
    let folder = target.folder().join("trust");
    let hub = stage.hub.admin_kubeconfig().display().to_string();
    let authority = stage.broker.ca_path().display().to_string();
    let (output, kubernetes) = (
        folder.display().to_string(),
        format!("1.{}", minor.number()),
    );
    let arguments = [
        "trust",
        name,
        "--kubeconfig",
        &hub,
        "--discovery-ca",
        &authority,
        "--kubernetes",
        &kubernetes,
        "--bind-role",
        "deploy=role-deploy@apps",
        "--bind-role",
        "view=role-view@apps",
        "--output-dir",
        &output,
    ];
    stage.run(&arguments).await?;
    let file = std::fs::read_to_string(folder.join("authentication.yaml"))?;
    target.set_authentication_config(&file).await?;
    let roles = folder.join("cluster-roles.yaml");
    std::fs::write(&roles, CLUSTER_ROLES)?;
    apply_manifests(&target, &[&roles, &folder.join("rbac.yaml")]).await?;
    for (role, verb) in [("deploy", "patch"), ("view", "list")] {
        let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": [verb] });
        let group = format!("hub:role:{role}");
        target
            .until_it_counts(Whom::Group(&group), APPS, &rule)
            .await?;
    }
    Ok(target)
}

fn role_target(target: &str, role: &str) -> String {
    format!("{target}-{role}")
}

/// `deploy` applies and prunes, by the role's user. `view` is refused by the target, by its name.
async fn by_each_role(stage: &Stage, target: &ControlPlane) -> TestResult {
    let hub = &stage.hub;
    for role in ROLES {
        let name = role_target(target.name(), role);
        let (repository, _) = stage.repository_of(&name).await?;
        access_to(&name, hub, TENANT, &name, "FluxConfigMap").await?;
        let spec = apply(hub, &name, repository.url()).await?;
        let of_role = user(TENANT).replacen("hub:", &format!("hub:{role}:"), 1);
        if role == "deploy" {
            until_ready(hub, &spec.path()).await?;
            assert!(target.admin().exists(&config_map_path(&name)).await?);
        } else {
            let refused = format!("User \"{of_role}\" cannot patch resource \"configmaps\"");
            until_said(hub, &spec.path(), &refused).await?;
        }
        assert_eq!(who_applied(target, &name)?, [of_role], "{role}");
        hub.admin().delete(&spec.path()).await?;
        until_gone(hub.admin(), &spec.path()).await?;
        assert!(!target.admin().exists(&config_map_path(&name)).await?);
    }
    Ok(())
}
