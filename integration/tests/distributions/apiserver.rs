//! What a distribution gives to kube-apiserver.

use keyferry_integration::runner::TestError;
use serde::Deserialize;

/// The part of a kube-apiserver's command line and Pod that concerns the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiServer {
    /// The value of `--authentication-config`, or empty.
    pub(crate) authentication_config: String,
    /// The folders and files of the node that it sees.
    pub(crate) mounts: Vec<Mount>,
}

/// A folder or file of a host, as another file system sees it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mount {
    host: String,
    inside: String,
    read_only: bool,
}

impl ApiServer {
    /// The file on the node that kube-apiserver reads.
    ///
    /// # Errors
    /// There is none, or kube-apiserver would not see a new file in its place.
    pub(crate) fn file(&self) -> Result<String, TestError> {
        if self.authentication_config.is_empty() {
            return Err("kube-apiserver gets no --authentication-config".into());
        }
        at_host(&self.authentication_config, &self.mounts)
    }
}

/// The path at the host of a file that is read through read-only mounts of folders.
///
/// # Errors
/// No mount has the path, or one has the file itself. Such a mount would show the old file after a
/// rename.
pub(crate) fn at_host(path: &str, mounts: &[Mount]) -> Result<String, TestError> {
    let wrong = |why: &str| TestError::from(format!("{path}: {why}: {mounts:?}"));
    if mounts.iter().any(|mount| mount.inside == path) {
        return Err(wrong("the file itself is mounted"));
    }
    let below = |mount: &Mount| {
        path.strip_prefix(&mount.inside)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let mount = mounts
        .iter()
        .filter(|mount| below(mount))
        .max_by_key(|mount| mount.inside.len())
        .ok_or_else(|| wrong("no mount has it"))?;
    if !mount.read_only {
        return Err(wrong("its mount can be written"));
    }
    let rest = path.get(mount.inside.len()..).unwrap_or_default();
    Ok(format!("{}{rest}", mount.host))
}
