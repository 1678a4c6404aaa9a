//! The command line finds the hub's kubeconfig as kubectl does, and `client.yaml` serves every
//! command that asks a server.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use insta::assert_snapshot;
use keyferry_integration::runner::TestResult;
use keyferry_integration::transcript::joined;
use keyferry_integration::user_home::printed_client_file;
use keyferry_integration::world::{ACCOUNT, World};

use super::command::{failed, is_for_target_a, keyferry, server, succeeded, token_file};

pub(crate) async fn kubeconfig_is_honoured_as_kubectl_does(world: Arc<World>) -> TestResult {
    let config = world.broker().config().display().to_string();
    let admin = world.hub().admin_kubeconfig();
    let home = tempfile::tempdir()?;
    std::fs::create_dir(home.path().join(".kube"))?;
    symlink(admin, home.path().join(".kube/config"))?;
    let home = home.path().display().to_string();
    let file = admin.display().to_string();
    let list = format!("/no/such/file:{file}");
    let direct = ["token", "tenant-a:a", "--config", &config];
    for env in [
        ("KUBECONFIG", &list),
        ("HOME", &home),
        ("KEYFERRY_KUBECONFIG", &file),
    ] {
        let env = [(env.0, env.1.as_str())];
        is_for_target_a(&succeeded(keyferry(&world, &direct, &env).await?)?)?;
    }
    // A list without an existing file must not fall back to another identity.
    let env = [("KUBECONFIG", "/no/such/file"), ("HOME", &home)];
    let said = failed(&world, &direct, &env).await?;
    assert_snapshot!("a-list-without-an-existing-file", said.shown);
    // The caller token is found too, and the client file to write names the file that was found.
    let [_, url, _, ca] = &server(&world);
    let through = [
        "--server",
        url,
        "--certificate-authority",
        ca,
        "--service-account",
        ACCOUNT,
    ];
    let minted = [&["token", "tenant-a/a"], &through[..]].concat();
    is_for_target_a(&succeeded(
        keyferry(&world, &minted, &[("KUBECONFIG", &list)]).await?,
    )?)?;
    let stanza = [&["kubeconfig", "tenant-a/a", "--exec"], &through[..]].concat();
    let printed = keyferry(&world, &stanza, &[("KUBECONFIG", &list)]).await?;
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    // The user database has the home folder.
    let (_, home) = printed
        .stderr
        .split_once("client.yaml in ")
        .ok_or("no folder")?;
    let (home, _) = home.split_once("/.config").ok_or("no home folder")?;
    assert_snapshot!(
        "a-stanza-and-the-file-to-write",
        printed.shown.with_name(home, "/home/jane")
    );
    let (stanza, own) = (printed.stdout, printed_client_file(&printed.stderr));
    let own = own.unwrap_or_default();
    assert!(
        own.contains(&format!("kubeconfig: {file:?}")) && own.contains("context: "),
        "{}",
        printed.stderr
    );
    assert!(!stanza.contains("--"), "{stanza}");
    Ok(())
}

pub(crate) async fn the_users_own_file_serves_every_command(world: Arc<World>) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let [_, url, _, ca] = &server;
    let home = folder.path().join("xdg");
    std::fs::create_dir_all(home.join("keyferry"))?;
    let text = format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: \
         {url}\ncertificateAuthority: {ca}\ntokenFile: {file}\n"
    );
    std::fs::write(home.join("keyferry/client.yaml"), text)?;
    let home = home.display().to_string();
    let env = [("XDG_CONFIG_HOME", home.as_str())];
    is_for_target_a(&succeeded(
        keyferry(&world, &["token", "tenant-a/a"], &env).await?,
    )?)?;
    let printed = keyferry(
        &world,
        &["exec", "tenant-a/a", "--", "sh", "-c", "cat $KUBECONFIG"],
        &env,
    )
    .await?;
    assert!(succeeded(printed)?.contains("apiVersion"));
    let directory = folder.path().join("agent").display().to_string();
    let agent = keyferry(
        &world,
        &["agent", "tenant-a/a", "--once", "--dir", &directory],
        &env,
    )
    .await?;
    assert_eq!(agent.code, Some(0), "{}", agent.stderr);
    // With --server, nothing from the file applies, so its token is not sent to that server.
    let calls = [
        ["token", "tenant-a/a", "--server", "https://127.0.0.1:1"],
        ["token", "tenant-a/a", "--token-file", "/other"],
    ];
    let mut shown = Vec::new();
    for call in calls {
        shown.push(failed(&world, &call, &env).await?.shown);
    }
    assert_snapshot!("flags-beside-the-users-own-file", joined(&shown));
    Ok(())
}
