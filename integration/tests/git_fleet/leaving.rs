//! A tenant that is added to the platform repository and removed again.

use std::sync::Arc;

use keyferry_integration::flux::until_ready;
use keyferry_integration::rbac::apply_manifests;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::on_hub::until_gone;
use keyferry_integration::world::shipped;

use super::fleet::{GUEST, GitFleet, commit};
use crate::shipped_fleet::{File, config_map_of, kustomization, replaced};

const BELONGINGS: &str = "/api/v1/namespaces/apps/configmaps/belongings";

pub(crate) async fn a_tenant_comes_and_goes(fleet: Arc<GitFleet>) -> TestResult {
    let (hub, target) = (&fleet.hub, &fleet.targets[1]);
    let (platform, files) = &fleet.platform;
    prepare(&fleet).await?;
    let mut with_guest = files.clone();
    for (path, text) in &mut with_guest {
        if path == "targets/target-b.yaml" {
            *text = replaced(
                text,
                "namespaces: [tenant-b]",
                &format!("namespaces: [tenant-b, {GUEST}]"),
            )?;
        }
    }
    let guests: Vec<File> = with_guest
        .iter()
        .filter(|(path, _)| path.starts_with("tenants/tenant-b/"))
        .map(renamed)
        .collect();
    with_guest.extend(guests);
    commit(platform, &with_guest).await?;
    let (apps, config_map) = (
        kustomization(GUEST, "apps"),
        format!("/api/v1/namespaces/{GUEST}/configmaps/target"),
    );
    until_ready(hub, &apps).await?;
    assert_eq!(
        target.admin().get(BELONGINGS).await?["data"]["owner"],
        GUEST
    );

    // First remove the tenant's own use: the access and the Kustomization, in one commit.
    let gone = ["access.yaml", "sync.yaml"].map(|name| format!("tenants/{GUEST}/{name}"));
    let emptied: Vec<File> = with_guest
        .into_iter()
        .filter(|(path, _)| !gone.contains(path))
        .collect();
    commit(platform, &emptied).await?;
    until_gone(hub.admin(), &apps).await?;
    assert!(
        !target.admin().exists(BELONGINGS).await?,
        "the target ends clean"
    );
    // Its object remained for pruning, but only as long as something uses it.
    until_gone(
        hub.admin(),
        &format!("/apis/keyferry.dev/v1alpha1/namespaces/{GUEST}/targetaccesses/target-b"),
    )
    .await?;
    until_gone(hub.admin(), &config_map).await?;

    // Then remove the namespace.
    commit(platform, files).await?;
    until_gone(hub.admin(), &format!("/api/v1/namespaces/{GUEST}")).await?;
    Ok(())
}

/// Prepares the guest's repository and what the target's admin applies for it, as for tenant-b.
async fn prepare(fleet: &GitFleet) -> Result<(), TestError> {
    let belongings = config_map_of(GUEST, "apps", "belongings");
    fleet
        .git
        .create(&format!("fleet/{GUEST}/apps"))
        .await?
        .commit(&[("apps/belongings.yaml", &belongings)])
        .await?;
    let rights =
        std::fs::read_to_string(shipped("examples/git-fleet/target-clusters/target-b.yaml"))?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rights.yaml");
    // tenant-b already has a binding of this name.
    std::fs::write(
        &file,
        replaced(&rights, "name: flux-ping", &format!("name: {GUEST}-ping"))?
            .replace("tenant-b", GUEST),
    )?;
    Ok(apply_manifests(&fleet.targets[1], &[&file]).await?)
}

fn renamed((path, text): &File) -> File {
    (
        path.replace("tenant-b", GUEST),
        text.replace("tenant-b", GUEST),
    )
}
