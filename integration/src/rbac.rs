//! Applies shipped manifests to a control plane, and writes kubeconfigs of ServiceAccounts. Tests
//! run as these, never as the admin.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::kubeconfig::{Credential, write_kubeconfig};

/// Applies files with `kubectl apply --server-side`, one after the other, each with all its
/// documents.
pub async fn apply_manifests(
    plane: &ControlPlane,
    files: &[&Path],
) -> Result<(), ControlPlaneError> {
    for file in files {
        let shown = file.display().to_string();
        let args = ["apply", "--server-side", "--force-conflicts", "-f", &shown];
        let output = plane.kubectl(&args).await?;
        if !output.status.success() {
            return Err(ControlPlaneError::KubectlFailed {
                args: args.join(" "),
                said: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
    }
    Ok(())
}

/// Writes a kubeconfig for an existing ServiceAccount, with a token of the control plane's own
/// audience.
pub async fn service_account_kubeconfig(
    plane: &Arc<ControlPlane>,
    namespace: &str,
    service_account: &str,
    seconds: u64,
) -> Result<ServiceAccountKubeconfig, ControlPlaneError> {
    service_account_kubeconfig_at(plane, &plane.url(), namespace, service_account, seconds).await
}

/// As [`service_account_kubeconfig`], with another server URL, such as that of a chaos proxy.
pub async fn service_account_kubeconfig_at(
    plane: &Arc<ControlPlane>,
    server: &str,
    namespace: &str,
    service_account: &str,
    seconds: u64,
) -> Result<ServiceAccountKubeconfig, ControlPlaneError> {
    let folder = tempfile::Builder::new()
        .prefix(&format!("{namespace}-{service_account}-"))
        .tempdir_in(plane.folder())
        .map_err(|source| ControlPlaneError::file(plane.folder(), source))?;
    let path = folder.path().join("kubeconfig");
    let token_file = folder.path().join("token");
    let credential = Credential::TokenFile(&token_file);
    write_kubeconfig(path.clone(), server, plane.ca_pem(), &credential)
        .map_err(|source| ControlPlaneError::file(&path, source))?;
    let kubeconfig = ServiceAccountKubeconfig {
        plane: Arc::clone(plane),
        namespace: namespace.to_owned(),
        service_account: service_account.to_owned(),
        path,
        token_file,
        _folder: folder,
    };
    kubeconfig.rewrite_token(seconds).await?;
    Ok(kubeconfig)
}

/// A kubeconfig whose user has a `tokenFile`. Dropping it deletes the files.
#[derive(Debug)]
pub struct ServiceAccountKubeconfig {
    plane: Arc<ControlPlane>,
    namespace: String,
    service_account: String,
    path: PathBuf,
    token_file: PathBuf,
    _folder: tempfile::TempDir,
}

impl ServiceAccountKubeconfig {
    /// The path of the kubeconfig.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the token file.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Mints a new token and writes it to the file.
    pub async fn rewrite_token(&self, seconds: u64) -> Result<(), ControlPlaneError> {
        let minted = self
            .plane
            .token_request(&self.namespace, &self.service_account, &[], seconds)
            .await?;
        self.write_token(&minted.token)
    }

    /// Writes a token to the file that is valid except that it expired an hour ago.
    pub async fn expire_token(&self) -> Result<(), ControlPlaneError> {
        let minted = self
            .plane
            .token_request(&self.namespace, &self.service_account, &[], 600)
            .await?;
        let hour_ago = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs()
            .saturating_sub(3600);
        let expired = self
            .plane
            .sign_again(&minted.token, |claims| {
                claims["exp"] = json!(hour_ago);
                claims["iat"] = json!(hour_ago.saturating_sub(600));
                claims["nbf"] = json!(hour_ago.saturating_sub(600));
            })
            .await?;
        self.write_token(&expired)
    }

    /// Replaces the file's content with any text, atomically.
    pub fn write_token(&self, token: &str) -> Result<(), ControlPlaneError> {
        let fresh = self.token_file.with_extension("fresh");
        std::fs::write(&fresh, token)
            .and_then(|()| std::fs::rename(&fresh, &self.token_file))
            .map_err(|source| ControlPlaneError::file(&self.token_file, source))
    }
}
