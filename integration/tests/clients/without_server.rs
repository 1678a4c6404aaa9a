//! The command line without a server: the file and the user's own rights on the hub decide.

use std::sync::Arc;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use keyferry_integration::parts::Part;
use keyferry_integration::rbac::service_account_kubeconfig;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{TENANT, World};

use super::command::{
    AT_TARGET, direct, failed, is_for_target_a, keyferry, succeeded, whoami, with,
};

pub(crate) async fn the_command_line_without_a_server(world: Arc<World>) -> TestResult {
    let direct = direct(&world, world.hub().admin_kubeconfig());
    let before = world.broker().audit()?.len();
    is_for_target_a(&succeeded(
        keyferry(&world, &with(&["token", "tenant-a/a"], &direct, &[]), &[]).await?,
    )?)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    let document = succeeded(
        keyferry(
            &world,
            &with(&["kubeconfig", "a", "-n", TENANT], &direct, &[]),
            &[],
        )
        .await?,
    )?;
    assert!(
        !document.contains("client-key") && !document.contains("exec:"),
        "the Secret's client key stays where it is"
    );
    std::fs::write(&path, document)?;
    assert_eq!(whoami(&world, &path).await?, AT_TARGET);
    let kubectl = world
        .fleet()
        .parts()
        .locate(Part::Kubectl)
        .await?
        .display()
        .to_string();
    let last = [
        "--",
        kubectl.as_str(),
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    let said = keyferry(&world, &with(&["exec", "tenant-a/a"], &direct, &last), &[]).await?;
    assert_eq!(succeeded(said)?, AT_TARGET);
    // Other tests call the server meanwhile, but none of them uses this file's accesses by this
    // name.
    let written = world.broker().audit()?;
    assert!(
        written
            .iter()
            .skip(before)
            .all(|record| record["caller"] != "harness-admin"),
        "no server was asked"
    );
    Ok(())
}

pub(crate) async fn without_a_server_the_users_own_rights_count(world: Arc<World>) -> TestResult {
    let hub = world.hub();
    hub.create_namespace_with_service_account("people", "viewer")
        .await?;
    // This user may read what the decision needs, but may not mint.
    hub.bind_user_to_cluster_role("system:serviceaccount:people:viewer", "view")
        .await?;
    let viewer = service_account_kubeconfig(hub, "people", "viewer", 600).await?;
    let direct_as_viewer = direct(&world, viewer.path());
    let limit = Instant::now() + Duration::from_secs(20);
    let said = loop {
        let said = failed(
            &world,
            &with(&["token", "tenant-a/a"], &direct_as_viewer, &[]),
            &[],
        )
        .await?;
        // The binding takes effect only after a moment.
        if !said.stderr.contains("reading the ServiceAccount") || Instant::now() > limit {
            break said;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let viewer = viewer.path().display().to_string();
    assert_snapshot!(
        "a-user-who-may-not-mint",
        said.shown.with_name(&viewer, "KUBECONFIG")
    );
    // The file decides first: even an admin gets no token that the file does not allow.
    let direct_as_admin = direct(&world, hub.admin_kubeconfig());
    let said = failed(
        &world,
        &with(&["token", "tenant-a/b"], &direct_as_admin, &[]),
        &[],
    )
    .await?;
    assert_snapshot!("an-access-that-the-file-does-not-allow", said.shown);
    Ok(())
}
