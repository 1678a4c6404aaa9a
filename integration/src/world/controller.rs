//! What a platform admin applies for a Keyferry that reads its objects from the hub and writes deliveries.

use std::path::{Path, PathBuf};

use super::shipped;
use crate::control_plane::ControlPlane;
use crate::rbac::apply_manifests;
use crate::runner::TestError;

/// The line of the ServerConfiguration that such a Keyferry has.
pub const FROM_THE_HUB: &str = "objects: CustomResources\n";

/// CRDs, namespace, accounts and rights of the shipped installation, and a policy that checks the authors of accesses.
///
/// # Errors
/// What kubectl says.
pub async fn install_controller(hub: &ControlPlane) -> Result<(), TestError> {
    let base =
        ["namespace.yaml", "service-accounts.yaml", "rbac.yaml", "roles.yaml"].map(|name| shipped("examples/install/base").join(name));
    let definitions = ["targetclusters", "targetaccesses", "audiencepairings"].map(|kind| shipped(&format!("broker/crds/{kind}.yaml")));
    let author = [shipped("integration/src/world/author.yaml")];
    let all: Vec<&Path> = base.iter().chain(&definitions).chain(&author).map(PathBuf::as_path).collect();
    Ok(apply_manifests(hub, &all).await?)
}

/// Lets Keyferry mint and write in a tenant's namespace, by the shipped RoleBinding.
///
/// # Errors
/// What kubectl says.
pub async fn bind_minter(hub: &ControlPlane, namespace: &str) -> Result<(), TestError> {
    let file = shipped("examples/install/tenant/minter.yaml").display().to_string();
    let output = hub.kubectl(&["apply", "--server-side", "-n", namespace, "-f", &file]).await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("bind keyferry-minter in {namespace}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
