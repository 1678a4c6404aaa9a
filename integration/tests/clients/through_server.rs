//! Tests `keyferry token` and `keyferry kubeconfig` through a server.

use std::sync::Arc;

use insta::assert_snapshot;
use keyferry_integration::rbac::service_account_kubeconfig;
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::{ACCOUNT, Subject, TENANT, World, let_mint};
use serde_json::Value;

use super::command::{
    AT_TARGET, failed, is_for_target_a, keyferry, server, succeeded, token_file, whoami, with,
};

pub(crate) async fn a_token_by_the_command_line_through_a_server(world: Arc<World>) -> TestResult {
    let (server, (_folder, file)) = (server(&world), token_file(&world).await?);
    let by_flag = succeeded(
        keyferry(
            &world,
            &with(&["token", "tenant-a/a"], &server, &["--token-file", &file]),
            &[],
        )
        .await?,
    )?;
    is_for_target_a(&by_flag)?;
    assert_eq!(by_flag.lines().count(), 1);
    let env = [
        ("KEYFERRY_TOKEN_FILE", file.as_str()),
        ("KEYFERRY_NAMESPACE", TENANT),
    ];
    is_for_target_a(&succeeded(
        keyferry(&world, &with(&["token", "a"], &server, &[]), &env).await?,
    )?)?;
    let env = [
        ("KEYFERRY_SERVER", server[1].as_str()),
        ("KEYFERRY_CERTIFICATE_AUTHORITY", server[3].as_str()),
        env[0],
    ];
    is_for_target_a(&succeeded(
        keyferry(&world, &["token", "a", "-n", TENANT], &env).await?,
    )?)?;

    let json = with(
        &["token", "tenant-a/a", "-o", "json"],
        &server,
        &["--token-file", &file],
    );
    let answer: Value = serde_json::from_str(&succeeded(keyferry(&world, &json, &[]).await?)?)?;
    is_for_target_a(answer["token"].as_str().unwrap_or_default())?;
    assert!(
        answer["expiresInSeconds"]
            .as_u64()
            .is_some_and(|seconds| (3000..=3540).contains(&seconds))
    );

    // A user who may mint for the ServiceAccount, with a kubeconfig of the hub.
    world
        .hub()
        .create_namespace_with_service_account("people", "deployer")
        .await?;
    let_mint(
        world.hub(),
        "people",
        Subject::ServiceAccount("people", "deployer"),
        TENANT,
        &[ACCOUNT],
    )
    .await?;
    let person = service_account_kubeconfig(world.hub(), "people", "deployer", 600).await?;
    let person = person.path().display().to_string();
    let minting = with(
        &["token", "tenant-a/a"],
        &server,
        &["--service-account", ACCOUNT, "--kubeconfig", &person],
    );
    is_for_target_a(&succeeded(keyferry(&world, &minting, &[]).await?)?)?;
    let minting = with(
        &["token", "tenant-a/a"],
        &server,
        &["--service-account", "default", "--kubeconfig", &person],
    );
    let said = failed(&world, &minting, &[]).await?;
    assert_snapshot!(
        "an-account-that-the-user-may-not-mint-for",
        said.shown.with_name(&person, "KUBECONFIG")
    );
    Ok(())
}

pub(crate) async fn a_kubeconfig_by_the_command_line_through_a_server(
    world: Arc<World>,
) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let document = keyferry(
        &world,
        &with(
            &["kubeconfig", "tenant-a/a"],
            &server,
            &["--token-file", &file],
        ),
        &[],
    )
    .await?;
    let path = folder.path().join("config");
    std::fs::write(&path, succeeded(document)?)?;
    assert_eq!(whoami(&world, &path).await?, AT_TARGET);
    Ok(())
}
