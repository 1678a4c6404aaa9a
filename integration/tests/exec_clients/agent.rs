//! Tests the agent as a process.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::transcript::Transcript;
use keyferry_integration::world::{ACCOUNT, Access, TENANT, World, shipped};

use super::stage::{AT_TARGET, Home, run, succeeded};

pub(crate) async fn an_agent_writes_and_keeps_what_it_wrote(world: Arc<World>) -> TestResult {
    world
        .broker()
        .reconfigure(|_, accesses| accesses.push(Access::of(TENANT, "second", "target-a", ACCOUNT)))
        .await?;
    let home = Home::new(&world).await?;
    let directory = home.path().join("tokens");
    let place = directory.display().to_string();
    let arguments = [
        "agent",
        "a",
        "tenant-a/second",
        "-n",
        "tenant-a",
        "--mode",
        "0440",
        "--dir",
        &place,
    ];
    let check = [&arguments[..], &["--check"]].concat();
    let probe = run(&mut home.keyferry(&world, &check)).await?;
    assert_eq!(probe.status.code(), Some(1), "nothing is there yet");

    let mut agent = home
        .keyferry(&world, &arguments)
        .stderr(Stdio::piped())
        .spawn()?;
    let limit = Instant::now() + Duration::from_secs(30);
    while !run(&mut home.keyferry(&world, &check))
        .await?
        .status
        .success()
    {
        assert!(
            Instant::now() < limit && agent.try_wait()?.is_none(),
            "the probe does not succeed"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let id = agent.id().ok_or("it runs")?;
    assert_eq!(listening(id)?, 0, "no port is open");
    for access in ["a", "second"] {
        let kubeconfig = directory.join("tenant-a").join(access).join("kubeconfig");
        let user = home
            .kubectl(
                &world,
                &kubeconfig,
                &[
                    "auth",
                    "whoami",
                    "-o",
                    "jsonpath={.status.userInfo.username}",
                ],
            )
            .await?;
        assert_eq!(succeeded(user)?, AT_TARGET);
        let namespace =
            std::fs::read_to_string(directory.join("tenant-a").join(access).join("namespace"))?;
        assert_eq!(namespace, TENANT);
    }
    // A second agent must not write into the same files.
    let second = run(&mut home.keyferry(&world, &arguments)).await?;
    assert_snapshot!("a-second-agent", shown(&world, &arguments, &second));

    let status = tokio::process::Command::new("kill")
        .args(["-TERM", &id.to_string()])
        .status()
        .await?;
    assert!(status.success());
    let output = tokio::time::timeout(Duration::from_secs(10), agent.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said.matches("written; the token ends at").count(),
        2,
        "{said}"
    );
    let token = std::fs::read_to_string(directory.join("tenant-a/a/token"))?;
    assert!(
        !said.contains(token.rsplit('.').next().unwrap_or_default()),
        "a token in the log"
    );

    // A refusal by the server must not remove existing files.
    let caller = std::fs::read_to_string(home.path().join("caller"))?;
    let (signed, signature) = caller.rsplit_once('.').ok_or("a JWT")?;
    let other = if signature.starts_with('A') { "B" } else { "A" };
    std::fs::write(
        home.path().join("caller"),
        format!("{signed}.{other}{}", signature.get(1..).unwrap_or_default()),
    )?;
    let refused = run(home.keyferry(&world, &arguments).arg("--once")).await?;
    assert_eq!(refused.status.code(), Some(1));
    assert_snapshot!("a-refused-agent", shown(&world, &arguments, &refused));
    assert!(
        run(&mut home.keyferry(&world, &check))
            .await?
            .status
            .success(),
        "the probe reads what is there"
    );
    Ok(())
}

pub(crate) async fn an_agent_without_a_server_and_the_shipped_sidecar(
    world: Arc<World>,
) -> TestResult {
    let home = Home::new(&world).await?;
    let directory = home.path().join("tokens");
    let mut command = home.command(world.binary().path());
    command
        .args(["agent", "tenant-a/a", "--once", "--dir"])
        .arg(&directory)
        .arg("--config")
        .arg(world.broker().config());
    succeeded(
        run(command
            .arg("--kubeconfig")
            .arg(world.hub().admin_kubeconfig()))
        .await?,
    )?;
    let user = [
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    assert_eq!(
        succeeded(
            home.kubectl(&world, &directory.join("kubeconfig"), &user)
                .await?
        )?,
        AT_TARGET
    );

    let sidecar = shipped("examples/in-cluster/agent.yaml");
    let output = world
        .hub()
        .kubectl(&[
            "apply",
            "--dry-run=server",
            "-f",
            &sidecar.display().to_string(),
        ])
        .await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // The agent accepts its arguments: it fails only at the files that are not on this machine.
    let manifest = std::fs::read_to_string(&sidecar)?;
    let (_, rest) = manifest
        .split_once("      args:\n")
        .ok_or("the agent's args")?;
    let arguments: Vec<&str> = rest
        .lines()
        .map_while(|line| line.trim().strip_prefix("- "))
        .collect();
    assert!(arguments.len() > 3, "{arguments:?}");
    let place = format!("--dir={}", directory.join("none").display());
    let named = arguments.iter().map(|argument| {
        if argument.starts_with("--dir=") {
            place.as_str()
        } else {
            argument
        }
    });
    let arguments: Vec<&str> = named.collect();
    let output = run(home
        .command(world.binary().path())
        .args(&arguments)
        .arg("--once"))
    .await?;
    assert_snapshot!(
        "an-agent-without-a-token",
        shown(&world, &arguments, &output)
    );
    Ok(())
}

/// All that a person sees of an agent, without the flags of the server.
fn shown(world: &World, arguments: &[&str], output: &std::process::Output) -> Transcript {
    Transcript::new("keyferry", arguments, output)
        .with_name(&world.broker().api_url(), "https://KEYFERRY")
        .without_random_words()
}

/// The number of listening TCP sockets of a process, from /proc.
fn listening(id: u32) -> Result<usize, TestError> {
    let sockets = std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("fd"))?.flatten();
    let links = sockets.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let own: BTreeSet<String> = links
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let mut count = 0;
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(
            Path::new("/proc")
                .join(id.to_string())
                .join("net")
                .join(table),
        )?;
        let columns = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        // 0A is TCP_LISTEN; the tenth column is the inode.
        count += columns
            .filter(|row| {
                row.get(3) == Some(&"0A") && row.get(9).is_some_and(|inode| own.contains(*inode))
            })
            .count();
    }
    Ok(count)
}
