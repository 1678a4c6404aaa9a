//! The version before this one, for tests of an upgrade: the files of a commit, and the image that
//! is built from them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keyferry_image::{Labels, keyferry};
use tokio::process::Command;

use crate::documents::repository;
use crate::keyferry_process::KeyferryBinary;
use crate::parts::PartError;
use crate::process::run_to_end;
use crate::runner::TestError;

/// Names the commit.
const FILE: &str = "integration/previous-version";
/// Compiling takes minutes.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(1200);
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The files and the image of the previous version.
#[derive(Debug)]
pub struct PreviousVersion {
    /// The files of its commit.
    pub tree: PathBuf,
    /// Its image, an archive.
    pub image: PathBuf,
}

impl PreviousVersion {
    /// Builds it below `folder`, where both are kept between runs. The image gets this name.
    ///
    /// # Errors
    /// [`PartError::Unavailable`] in a clone that does not have the commit; and what a command
    /// printed.
    pub async fn build(name: &str, folder: &Path) -> Result<Self, TestError> {
        let commit = commit()?;
        let image = folder.join(format!("{commit}.tar"));
        let tree = unpacked(&commit, folder).await?;
        if !image.exists() {
            let binary = std::fs::read(Self::build_binary(folder).await?.path())?;
            let labels = Labels {
                version: "previous".to_owned(),
                revision: commit,
            };
            let built = keyferry(binary, std::fs::read(CERTIFICATES)?, &labels)?;
            let partial = image.with_extension("partial");
            built.write(name, std::fs::File::create(&partial)?)?;
            std::fs::rename(&partial, &image)?;
        }
        Ok(Self { tree, image })
    }

    /// Builds its binary alone below `folder`, where it is kept between runs.
    ///
    /// # Errors
    /// As [`PreviousVersion::build`].
    pub async fn build_binary(folder: &Path) -> Result<KeyferryBinary, TestError> {
        let commit = commit()?;
        let kept = folder.join(format!("{commit}.keyferry"));
        if !kept.exists() {
            let tree = unpacked(&commit, folder).await?;
            let partial = kept.with_extension("partial");
            std::fs::copy(
                compile(&commit, &tree, &folder.join("build")).await?,
                &partial,
            )?;
            std::fs::rename(&partial, &kept)?;
        }
        Ok(KeyferryBinary::at(kept))
    }
}

/// The files of a commit, which are unpacked the first time.
async fn unpacked(commit: &str, folder: &Path) -> Result<PathBuf, TestError> {
    let tree = folder.join(commit);
    if !tree.exists() {
        unpack(commit, &tree).await?;
    }
    Ok(tree)
}

fn commit() -> Result<String, TestError> {
    let text = std::fs::read_to_string(repository().join(FILE))?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.next().ok_or("it names no commit")?.to_owned())
}

async fn unpack(commit: &str, tree: &Path) -> Result<(), TestError> {
    let partial = tree.with_extension("partial");
    drop(std::fs::remove_dir_all(&partial));
    std::fs::create_dir_all(&partial)?;
    let archive = partial.join("archive.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--output"])
        .arg(&archive)
        .arg(commit)
        .current_dir(repository());
    run_to_end(git, COMPILE_TIMEOUT)
        .await
        .map_err(|error| PartError::Unavailable {
            part: "the previous version of Keyferry",
            version: "of integration/previous-version",
            why: format!("{error}; fix: fetch the whole history of the repository"),
        })?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&partial);
    run_to_end(tar, COMPILE_TIMEOUT).await?;
    std::fs::remove_file(&archive)?;
    std::fs::rename(&partial, tree)?;
    Ok(())
}

/// Compiles a static binary. The settings are those of the profile `image-test`, which an earlier
/// Cargo.toml may not have.
async fn compile(commit: &str, tree: &Path, target: &Path) -> Result<PathBuf, TestError> {
    let version = Command::new("rustc").arg("-vV").output().await?;
    let version = String::from_utf8(version.stdout)?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .ok_or("rustc names no host")?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--locked", "--release", "--target", host])
        .args(["-p", "keyferry", "--no-default-features"])
        .args(["--bin", "keyferry"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("KEYFERRY_COMMIT", commit)
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    eprintln!("building the previous version, {commit}");
    run_to_end(cargo, COMPILE_TIMEOUT).await?;
    Ok(target.join(host).join("release/keyferry"))
}
