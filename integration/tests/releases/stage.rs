//! Two clean clones of one commit, and the release that was made from each. One is signed.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use keyferry_integration::parts::{Part, PartError, Parts};
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// For a program that reads or writes a few files. Only the release itself compiles.
const LIMIT: Duration = Duration::from_secs(240);
const RELEASE_LIMIT: Duration = Duration::from_secs(2400);

/// The password of the key that signs.
pub(crate) const PASSWORD: (&str, &str) = ("COSIGN_PASSWORD", "of a test");

/// The folder of the release that is signed, and of the one that it is compared with.
pub(crate) const RELEASE: &str = "release";
pub(crate) const SECOND: &str = "second";

pub(crate) struct Stage {
    pub(crate) parts: Parts,
    folder: TempDir,
    /// The commit that was released.
    pub(crate) commit: String,
    /// The version of the workspace.
    pub(crate) version: String,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        std::fs::read_to_string(self.path("release.log")).unwrap_or_default()
    }
}

impl Stage {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let parts = Parts::from_environment();
        for part in [Part::Helm, Part::Cosign] {
            match parts.locate(part).await {
                Err(missing @ PartError::Unavailable { .. }) => {
                    return Err(NotStarted::Missing(missing.to_string()));
                }
                located => located.map_err(NotStarted::failed)?,
            };
        }
        if !repository().join(".git").exists() {
            return Err(NotStarted::Missing(
                "a release is made from a checkout of git, and this folder is none".to_owned(),
            ));
        }
        let mut stage = Self {
            parts,
            folder: tempfile::tempdir().map_err(NotStarted::failed)?,
            commit: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        stage.release().await.map_err(NotStarted::failed)?;
        Ok(stage)
    }

    /// Clones the last commit, names the version in the changelog as a maintainer does, makes the
    /// release at two paths, and signs it.
    async fn release(&mut self) -> Result<(), TestError> {
        let source = self.clone_as("source").await?;
        self.commit = self.git(&source, &["rev-parse", "HEAD"]).await?;
        let cosign = self.parts.locate(Part::Cosign).await?;
        let mut key = Command::new(cosign);
        key.arg("generate-key-pair")
            .current_dir(self.folder.path())
            .env(PASSWORD.0, PASSWORD.1);
        succeeded(key, LIMIT).await?;
        let other_path = self.clone_from(&source, "other/deeper/source").await?;
        for (clone, folder) in [(&source, RELEASE), (&other_path, SECOND)] {
            let mut command = self.release_command(clone);
            command
                .arg(self.path(folder))
                .env("KEYFERRY_RELEASE_PROFILE", "dev");
            let output = run(command, RELEASE_LIMIT).await?;
            std::fs::write(self.path("release.log"), &output.stderr)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(format!(".ci/release {folder}: {said}").into());
            }
        }
        // Some gigabytes that nothing reads.
        std::fs::remove_dir_all(other_path.join("target"))?;
        succeeded(self.sign_command(SECOND, RELEASE), RELEASE_LIMIT).await?;
        Ok(())
    }

    /// `.ci/sign` for two folders of this fixture, with the key that users of the test trust.
    pub(crate) fn sign_command(&self, second: &str, release: &str) -> Command {
        let mut command = Command::new(self.source().join(".ci/sign"));
        command
            .args(["--key", "cosign.key", "--second", second, release])
            .current_dir(self.folder.path())
            .env("KEYFERRY_RELEASE_PROFILE", "dev")
            .env(PASSWORD.0, PASSWORD.1);
        command
    }

    /// A clone of the last commit whose changelog has a section for the version.
    pub(crate) async fn clone_as(&self, name: &str) -> Result<PathBuf, TestError> {
        let folder = self.clone_from(&repository(), name).await?;
        let changelog = folder.join("CHANGELOG.md");
        let text = std::fs::read_to_string(&changelog)?;
        let heading = format!("\n## {}\n", self.version);
        if !text.contains(&heading) {
            std::fs::write(&changelog, text.replacen("\n## Unreleased\n", &heading, 1))?;
            self.commit_all(&folder).await?;
        }
        Ok(folder)
    }

    /// A clone of the last commit of a repository.
    async fn clone_from(&self, repository: &Path, name: &str) -> Result<PathBuf, TestError> {
        let folder = self.path(name);
        let mut clone = Command::new("git");
        clone
            .args(["clone", "--quiet", "--no-local", "--depth=1"])
            .arg(format!("file://{}", repository.display()))
            .arg(&folder);
        succeeded(clone, LIMIT).await?;
        Ok(folder)
    }

    /// Commits every change of a clone.
    pub(crate) async fn commit_all(&self, clone: &Path) -> Result<(), TestError> {
        let author = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
        let commit = ["commit", "--quiet", "--all", "--message", "Release"];
        self.git(clone, &[&author[..], &commit].concat()).await?;
        Ok(())
    }

    async fn git(&self, folder: &Path, arguments: &[&str]) -> Result<String, TestError> {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(folder);
        Ok(succeeded(git, LIMIT).await?.trim().to_owned())
    }

    /// `.ci/release` of a clone, without the settings of the build that runs this test.
    pub(crate) fn release_command(&self, clone: &Path) -> Command {
        let mut command = Command::new(clone.join(".ci/release"));
        command.current_dir(clone);
        for variable in ["CARGO_TARGET_DIR", "RUSTFLAGS", "KEYFERRY_COMMIT"] {
            command.env_remove(variable);
        }
        command
    }

    /// A file or folder of this fixture.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The clone that was released.
    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// A file of the release.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path(RELEASE).join(name)
    }

    /// The text of a file of the release.
    pub(crate) fn text(&self, name: &str) -> Result<String, TestError> {
        std::fs::read_to_string(self.file(name)).map_err(|error| format!("{name}: {error}").into())
    }

    /// A JSON document of the release.
    pub(crate) fn json(&self, name: &str) -> Result<Value, TestError> {
        Ok(serde_json::from_str(&self.text(name)?)?)
    }

    /// Unpacks an archive of the release into a folder of its own.
    pub(crate) async fn unpack(&self, archive: &str, into: &str) -> Result<PathBuf, TestError> {
        let folder = self.path(into);
        std::fs::create_dir_all(&folder)?;
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(self.file(archive)).current_dir(&folder);
        succeeded(tar, LIMIT).await?;
        Ok(folder)
    }

    /// Runs a part, with no other home than the fixture's.
    pub(crate) async fn part(&self, part: Part, arguments: &[&str]) -> Result<Output, TestError> {
        let mut command = Command::new(self.parts.locate(part).await?);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env(PASSWORD.0, PASSWORD.1);
        run(command, LIMIT).await
    }
}

/// The folder of this repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The SHA-256 digest of a file, in hex.
pub(crate) fn sha256(path: &Path) -> Result<String, TestError> {
    let bytes = std::fs::read(path)?;
    Ok(digest(&SHA256, &bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Runs a program to its end.
pub(crate) async fn run(mut command: Command, limit: Duration) -> Result<Output, TestError> {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    Ok(tokio::time::timeout(limit, running).await??)
}

/// Runs a program that must succeed; returns what it prints.
pub(crate) async fn succeeded(command: Command, limit: Duration) -> Result<String, TestError> {
    let shown = format!("{:?}", command.as_std());
    let output = run(command, limit).await?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// As [`succeeded`], with the limit of a program that compiles nothing.
pub(crate) async fn printed(command: Command) -> Result<String, TestError> {
    succeeded(command, LIMIT).await
}
