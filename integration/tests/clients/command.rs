//! Runs the command line, and prepares what its callers need.

use std::path::Path;

use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::transcript::Transcript;
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, TENANT, World, caller_token, claims};
use serde_json::json;
use tempfile::TempDir;

/// The tenant's ServiceAccount by the name that the target gives it.
pub(crate) const AT_TARGET: &str = "hub:system:serviceaccount:tenant-a:reconciler";

/// The exit code and the output of a command.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The whole call, for a snapshot.
    pub(crate) shown: Transcript,
}

pub(crate) async fn keyferry(
    world: &World,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Said, TestError> {
    let output = world.binary().run(args, env).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        shown: Transcript::new("keyferry", args, &output)
            .with_variables(env)
            .with_name(&world.broker().api_url(), "https://KEYFERRY")
            .with_name(&world.broker().discovery_url(), "https://DISCOVERY")
            .with_name(&world.hub().url(), "https://HUB")
            .with_name(&world.target_a().url(), "https://TARGET-A")
            .with_name(&world.target_b().url(), "https://TARGET-B")
            .without_random_words(),
    })
}

pub(crate) fn succeeded(said: Said) -> Result<String, TestError> {
    if said.code != Some(0) || !said.stderr.is_empty() {
        return Err(format!("exit {:?}: {}", said.code, said.stderr).into());
    }
    Ok(said.stdout)
}

/// Runs a command that must fail, with an error for people.
pub(crate) async fn failed(
    world: &World,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Said, TestError> {
    let said = keyferry(world, args, env).await?;
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(1), ""),
        "{args:?}: {}",
        said.stderr
    );
    // Notes may come before.
    let text = said
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("error: "))
        .ok_or_else(|| format!("no error is named: {}", said.stderr))?;
    assert!(
        !text.ends_with('.') && !said.stderr.contains("panicked"),
        "{}",
        said.stderr
    );
    Ok(said)
}

/// The flags with which a command uses the server.
pub(crate) fn server(world: &World) -> [String; 4] {
    let ca = world.broker().ca_path().display().to_string();
    [
        "--server".to_owned(),
        world.broker().api_url(),
        "--certificate-authority".to_owned(),
        ca,
    ]
}

/// The flags with which a command decides without the server.
pub(crate) fn direct(world: &World, kubeconfig: &Path) -> [String; 4] {
    let config = world.broker().config().display().to_string();
    [
        "--config".to_owned(),
        config,
        "--kubeconfig".to_owned(),
        kubeconfig.display().to_string(),
    ]
}

pub(crate) fn with<'a>(first: &[&'a str], further: &'a [String], last: &[&'a str]) -> Vec<&'a str> {
    first
        .iter()
        .copied()
        .chain(further.iter().map(String::as_str))
        .chain(last.iter().copied())
        .collect()
}

/// A file with the tenant's caller token, as a projected volume provides it.
pub(crate) async fn token_file(world: &World) -> Result<(TempDir, String), TestError> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("token");
    std::fs::write(&path, caller_token(world.hub(), TENANT, ACCOUNT).await?)?;
    Ok((folder, path.display().to_string()))
}

pub(crate) fn is_for_target_a(token: &str) -> TestResult {
    let claims = claims(token.trim_end())?;
    assert_eq!(
        (&claims["sub"], &claims["aud"]),
        (
            &json!("system:serviceaccount:tenant-a:reconciler"),
            &json!([AUDIENCE_A])
        )
    );
    Ok(())
}

pub(crate) async fn whoami(world: &World, kubeconfig: &Path) -> Result<String, TestError> {
    let output = world
        .target_a()
        .kubectl_with(
            kubeconfig,
            &[
                "auth",
                "whoami",
                "-o",
                "jsonpath={.status.userInfo.username}",
            ],
        )
        .await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
