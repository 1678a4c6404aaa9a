//! Applies the parts of Flux's installation that the two controllers need: CRDs and roles from
//! their own modules.

use std::path::{Path, PathBuf};

use crate::control_plane::ControlPlane;
use crate::parts::{Part, Parts};
use crate::rbac::apply_manifests;
use crate::runner::TestError;

use super::FLUX_NAMESPACE;

/// Applies the CRDs and roles, and waits until the hub serves the new kinds.
pub(super) async fn apply(
    hub: &ControlPlane,
    parts: &Parts,
    folder: &Path,
) -> Result<(), TestError> {
    hub.create_namespace(FLUX_NAMESPACE).await?;
    for part in [Part::SourceController, Part::KustomizeController] {
        let module = parts.module(part).await?;
        hub.create_service_account(FLUX_NAMESPACE, part.binary())
            .await?;
        let definitions = module.join("config/crd/bases");
        let role = role(part, &module, folder)?;
        apply_manifests(hub, &[&definitions, &role]).await?;
    }
    let output = hub
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "crd",
            "--all",
        ])
        .await?;
    if !output.status.success() {
        return Err(format!(
            "Flux's CRDs are not served: {}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(())
}

/// The controller's own ClusterRole under the controller's name, bound to it. kustomize-controller
/// is also bound to cluster-admin, as by Flux's `cluster-reconciler` binding: it impersonates the
/// ServiceAccount of a Kustomization before it applies on the hub.
fn role(part: Part, module: &Path, folder: &Path) -> Result<PathBuf, TestError> {
    let name = part.binary();
    let own = std::fs::read_to_string(module.join("config/rbac/role.yaml"))?;
    let renamed = own.replace("name: manager-role", &format!("name: {name}"));
    if renamed == own {
        return Err(format!("the module of {name} holds no ClusterRole manager-role").into());
    }
    let mut text = format!("{renamed}\n---\n{}", binding(name, name, name));
    if part == Part::KustomizeController {
        text.push_str(&format!(
            "---\n{}",
            binding("cluster-reconciler", "cluster-admin", name)
        ));
    }
    let file = folder.join(format!("{name}-rbac.yaml"));
    std::fs::write(&file, text)?;
    Ok(file)
}

pub(super) fn binding(name: &str, role: &str, account: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {name}\n\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: {role}\n\
         subjects:\n  - kind: ServiceAccount\n    name: {account}\n    namespace: {FLUX_NAMESPACE}\n"
    )
}
