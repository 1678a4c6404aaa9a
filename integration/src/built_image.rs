//! Keyferry's image, built as `examples/install/image` builds it for a user, without a container
//! daemon.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::documents::repository;
use crate::runner::TestError;

/// Names another profile of Cargo.toml for the image, such as `release`.
const PROFILE: &str = "KEYFERRY_IMAGE_PROFILE";
/// Quick to build: the tests measure no time.
const QUICK: &str = "image-test";

/// An archive of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    /// The archive.
    pub file: PathBuf,
    /// The binary in it.
    pub binary: PathBuf,
    /// The digest that the command prints.
    pub digest: String,
}

impl BuiltImage {
    /// Builds the image under a name. `target` is the folder of the build, which is kept between
    /// runs, or a new one for a build from nothing.
    ///
    /// # Errors
    /// The command fails; with what it printed.
    pub async fn build(name: &str, file: &Path, target: &Path) -> Result<Self, TestError> {
        let profile = std::env::var(PROFILE).unwrap_or_else(|_| QUICK.to_owned());
        eprintln!("building {name} with the profile {profile}");
        let output = Command::new(repository().join("examples/install/image"))
            .arg(name)
            .arg(file)
            .env("PROFILE", &profile)
            .env("CARGO_TARGET_DIR", target)
            // cargo sets them for the tests; they would build everything anew.
            .env_remove("RUSTFLAGS")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().collect();
            let last_lines = lines
                .get(lines.len().saturating_sub(20)..)
                .unwrap_or_default();
            return Err(format!("examples/install/image: {}", last_lines.join("\n")).into());
        }
        Ok(Self {
            file: file.to_owned(),
            binary: binary_below(target, &profile)?,
            digest: String::from_utf8(output.stdout)?.trim().to_owned(),
        })
    }

    /// The folder in which its build is kept.
    pub fn kept_build() -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        target
            .unwrap_or_else(|| repository().join("target"))
            .join("image")
    }
}

/// The binary of a build: below the folder of the target for which it was built.
fn binary_below(target: &Path, profile: &str) -> Result<PathBuf, TestError> {
    for entry in std::fs::read_dir(target)? {
        let binary = entry?.path().join(profile).join("keyferry");
        if binary.is_file() {
            return Ok(binary);
        }
    }
    Err(format!("no binary below {}", target.display()).into())
}
