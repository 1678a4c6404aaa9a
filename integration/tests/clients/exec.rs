//! Tests `keyferry exec`.

use std::sync::Arc;

use keyferry_integration::parts::Part;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::World;

use super::command::{AT_TARGET, Said, keyferry, server, succeeded, token_file, with};

pub(crate) async fn exec_runs_the_command_and_leaves_nothing(world: Arc<World>) -> TestResult {
    let (server, (_folder, file)) = (server(&world), token_file(&world).await?);
    let temporary = tempfile::tempdir()?;
    let directory = temporary.path().display().to_string();
    let env = [
        ("TMPDIR", directory.as_str()),
        ("KEYFERRY_TOKEN_FILE", file.as_str()),
    ];
    let kubectl = world
        .fleet()
        .parts()
        .locate(Part::Kubectl)
        .await?
        .display()
        .to_string();
    let run = |command: &'static [&'static str]| keyferry_exec(&world, &server, command, &env);

    let last = [
        "--",
        kubectl.as_str(),
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    let said = keyferry(&world, &with(&["exec", "tenant-a/a"], &server, &last), &env).await?;
    assert_eq!(succeeded(said)?, AT_TARGET);

    let shown = succeeded(
        run(&[
            "sh",
            "-c",
            "stat -c %a \"$KUBECONFIG\" \"$(dirname \"$KUBECONFIG\")\"; echo \"$KUBECONFIG\"",
        ])
        .await?,
    )?;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines.get(..2),
        Some(["600", "700"].as_slice()),
        "for this user alone"
    );
    let path = lines.get(2).copied().unwrap_or_default();
    assert!(
        path.starts_with(&directory),
        "the file was where temporary files belong: {path}"
    );

    let said = run(&["sh", "-c", "echo out; echo err >&2; exit 7"]).await?;
    assert_eq!(
        (said.code, said.stdout.as_str(), said.stderr.as_str()),
        (Some(7), "out\n", "err\n")
    );
    let said = run(&["sh", "-c", "kill -s TERM $$"]).await?;
    assert_eq!(said.code, Some(128 + 15), "as a shell says it");
    let said = run(&["/no/such/program"]).await?;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(
        said.stderr.starts_with("error: starting /no/such/program"),
        "{}",
        said.stderr
    );

    // As in a container whose image has no folder for temporary files.
    let nowhere = [("TMPDIR", "/no/such/folder"), env[1]];
    let said = keyferry_exec(&world, &server, &["sh", "-c", "echo ran"], &nowhere).await?;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(
        said.stderr.contains("below /no/such/folder") && said.stderr.contains("fix: mount"),
        "{}",
        said.stderr
    );

    let denied = with(
        &["exec", "tenant-a/b"],
        &server,
        &["--", "sh", "-c", "echo ran"],
    );
    let said = keyferry(&world, &denied, &env).await?;
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(1), ""),
        "the command is not run without a credential"
    );
    assert_eq!(
        std::fs::read_dir(temporary.path())?.count(),
        0,
        "a file is left"
    );
    Ok(())
}

async fn keyferry_exec(
    world: &World,
    server: &[String; 4],
    command: &[&str],
    env: &[(&str, &str)],
) -> Result<Said, TestError> {
    keyferry(
        world,
        &with(
            &["exec", "tenant-a/a"],
            server,
            &[&["--"], command].concat(),
        ),
        env,
    )
    .await
}
