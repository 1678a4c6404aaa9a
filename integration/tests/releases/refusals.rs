//! Tests what `.ci/release` refuses. Each message names the field, its value and the fix.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keyferry_integration::runner::{TestError, TestResult};

use super::stage::{PASSWORD, Stage, run};

const LIMIT: Duration = Duration::from_secs(60);

async fn refused(
    stage: &Stage,
    clone: &Path,
    arguments: &[&str],
    parts: &[&str],
) -> Result<(), TestError> {
    let mut command = stage.release_command(clone);
    command.args(arguments);
    assert_refused(command, parts).await
}

/// Asserts that the command fails, and that its message has these parts and a fix.
pub(super) async fn assert_refused(
    command: tokio::process::Command,
    parts: &[&str],
) -> Result<(), TestError> {
    let shown = format!("{:?}", command.as_std());
    let output = run(command, LIMIT).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{shown} is not refused");
    for part in parts.iter().chain(&["fix: "]) {
        assert!(said.contains(part), "not {part:?}, but: {said}");
    }
    Ok(())
}

/// Replaces a text of a file of the clone, and commits it.
async fn change(
    stage: &Stage,
    clone: &Path,
    file: &str,
    from: &str,
    to: &str,
) -> Result<(), TestError> {
    let path = clone.join(file);
    let text = std::fs::read_to_string(&path)?;
    assert!(text.contains(from), "{file} has {from:?}");
    std::fs::write(&path, text.replacen(from, to, 1))?;
    stage.commit_all(clone).await
}

/// Refused are a commit that has not passed every stage of `.ci/full`, and then, where no list of
/// known vulnerabilities was fetched lately, every commit.
async fn untested_content_is_refused(stage: &Stage, clone: &Path) -> Result<(), TestError> {
    let stages = ".ci/full-stages";
    refused(stage, clone, &["--check"], &[stages, "from_nothing"]).await?;
    let record = clone.join(stages);
    let before = std::fs::read_to_string(&record)?;
    let hash = "git ls-files --stage -- . ':(exclude).ci/full-stages' | git hash-object --stdin";
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", hash]).current_dir(clone);
    let hash = String::from_utf8(run(shell, LIMIT).await?.stdout)?;
    let passed: String = before
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(' ')?;
            Some(format!(
                "{name} {} {}\n",
                hash.trim(),
                rest.split_once(' ')?.1
            ))
        })
        .collect();
    std::fs::write(&record, passed)?;
    stage.commit_all(clone).await?;
    // A fetch that failed leaves an empty file with the time of the attempt.
    let failed_fetch = stage.path("failed-fetch/advisory-dbs/advisory-db/.git");
    std::fs::create_dir_all(&failed_fetch)?;
    std::fs::write(failed_fetch.join("FETCH_HEAD"), "")?;
    for home in ["no-cargo-home", "failed-fetch"] {
        let mut without_database = stage.release_command(clone);
        without_database
            .arg("--check")
            .env("CARGO_HOME", stage.path(home));
        assert_refused(without_database, &["cargo deny fetch db"]).await?;
    }
    std::fs::write(&record, before)?;
    stage.commit_all(clone).await
}

pub(super) async fn what_cannot_be_released_is_refused(stage: Arc<Stage>) -> TestResult {
    let clone = stage.clone_as("refused").await?;
    let check: &[&str] = &["--check"];
    let mut good = stage.release_command(&clone);
    good.args(check).env("KEYFERRY_RELEASE_PROFILE", "dev");
    let output = run(good, LIMIT).await?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    untested_content_is_refused(&stage, &clone).await?;

    refused(&stage, &clone, &[], &["no output folder"]).await?;
    refused(&stage, &clone, &["--sing"], &["--sing"]).await?;
    let key = ["--key", "../cosign.key", "../out"];
    refused(&stage, &clone, &key, &["--key", ".ci/sign"]).await?;
    let mut with_password = stage.release_command(&clone);
    with_password.arg("--check").env(PASSWORD.0, PASSWORD.1);
    assert_refused(with_password, &[PASSWORD.0, "unset"]).await?;
    let full = stage.path("full");
    std::fs::create_dir(&full)?;
    std::fs::write(full.join("precious"), "kept")?;
    let folder = full.display().to_string();
    refused(&stage, &clone, &[&folder], &[&folder, "precious"]).await?;
    assert_eq!(std::fs::read_to_string(full.join("precious"))?, "kept");

    std::fs::write(clone.join("new-file"), "")?;
    refused(&stage, &clone, check, &["?? new-file"]).await?;
    std::fs::remove_file(clone.join("new-file"))?;

    let version = stage.version.as_str();
    let chart = "examples/helm/keyferry/Chart.yaml";
    for field in ["version", "appVersion"] {
        let right = format!("\n{field}: {version}");
        let wrong = format!("\n{field}: 99.0.0");
        change(&stage, &clone, chart, &right, &wrong).await?;
        refused(
            &stage,
            &clone,
            check,
            &[&format!("{field} of {chart}"), "99.0.0", version],
        )
        .await?;
        change(&stage, &clone, chart, &wrong, &right).await?;
    }
    let manifest = "examples/install/base/deployment.yaml";
    let (right, wrong) = (
        format!("image: keyferry:{version}"),
        "image: keyferry:99.0.0",
    );
    change(&stage, &clone, manifest, &right, wrong).await?;
    refused(&stage, &clone, check, &[wrong, version]).await?;
    change(&stage, &clone, manifest, wrong, &right).await?;
    let heading = format!("\n## {version}");
    change(&stage, &clone, "CHANGELOG.md", &heading, "\n## Unreleased").await?;
    refused(&stage, &clone, check, &["CHANGELOG.md", version]).await?;
    let own = format!("\nversion = \"{version}\"");
    change(&stage, &clone, "Cargo.toml", &own, "\nversion = \"next\"").await?;
    refused(
        &stage,
        &clone,
        check,
        &["workspace.package.version", "\"next\""],
    )
    .await
}
