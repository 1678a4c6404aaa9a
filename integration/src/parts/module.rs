//! Finds the source folder of a pinned tool, or of a library of it, in Go's module cache.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::build::TOOLCHAIN;
use super::{Part, PartError};

/// Asks Go for the folder. Go downloads the module if necessary and checks it against go.sum.
pub(super) async fn folder(
    manifest: &Path,
    part: Part,
    module: &str,
) -> Result<PathBuf, PartError> {
    let unavailable = |why: String| PartError::Unavailable {
        part: part.binary(),
        version: part.version(),
        why,
    };
    let output = Command::new("go")
        .current_dir(manifest)
        .env("GOTOOLCHAIN", TOOLCHAIN)
        .args(["mod", "download", "-json", module])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| {
            unavailable(format!(
                "its sources are wanted, and go did not start: {error}"
            ))
        })?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match answer["Dir"].as_str().filter(|folder| !folder.is_empty()) {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let said = answer["Error"].as_str().unwrap_or(&said).to_owned();
            Err(unavailable(format!(
                "its sources are wanted, and go mod download failed: {said}"
            )))
        }
    }
}
