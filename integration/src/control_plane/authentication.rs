//! Replaces the AuthenticationConfiguration of a running control plane, and waits until it is
//! active.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::{ControlPlane, ControlPlaneError, ControlPlaneSpec};
use crate::process::tail_of_file;

/// kube-apiserver watches the file. If it misses a change, it re-reads the file within a minute.
const RELOAD_WITHIN: Duration = Duration::from_secs(90);
const RELOADS: &str = "apiserver_authentication_config_controller_automatic_reloads_total{";

impl ControlPlane {
    /// Replaces the file atomically and waits until kube-apiserver has accepted or refused it.
    /// Returns at once when the file already has this text. With an issuer in it, this takes about
    /// 10 s: kube-apiserver checks at once whether the new authenticator has its discovery
    /// document, and then every 10 s.
    pub async fn set_authentication_config(&self, text: &str) -> Result<(), ControlPlaneError> {
        let path = self.authentication_config_path()?;
        if std::fs::read_to_string(path).is_ok_and(|present| present == text) {
            return Ok(());
        }
        let before = self.reloads().await?;
        swap(path, text)?;
        self.wait_for_reload(before).await
    }

    /// Replaces the file and restarts, which takes about 2 s. The first token may arrive before the
    /// issuer's discovery document has been read, so retry until a deadline.
    pub async fn restart_with_authentication_config(
        &self,
        text: &str,
    ) -> Result<(), ControlPlaneError> {
        let path = self.authentication_config_path()?;
        self.stop().await?;
        swap(path, text)?;
        self.restart().await
    }

    /// The file of its AuthenticationConfiguration.
    ///
    /// # Errors
    /// It was started without one.
    pub fn authentication_config_path(&self) -> Result<&Path, ControlPlaneError> {
        self.authentication_config.as_deref().ok_or_else(|| {
            ControlPlaneError::NoAuthenticationConfig {
                name: self.spec.name.clone(),
            }
        })
    }

    async fn wait_for_reload(&self, before: Reloads) -> Result<(), ControlPlaneError> {
        let deadline = Instant::now() + RELOAD_WITHIN;
        while Instant::now() < deadline {
            let now = self.reloads().await?;
            if now.accepted > before.accepted {
                return Ok(());
            }
            if now.refused > before.refused {
                return Err(ControlPlaneError::ReloadRefused {
                    name: self.spec.name.clone(),
                    log: self.lines_about_authentication(),
                });
            }
            // Poll slowly: every read of the metrics makes kube-apiserver open a connection to etcd
            // and log it.
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Err(ControlPlaneError::ReloadLate {
            name: self.spec.name.clone(),
            seconds: RELOAD_WITHIN.as_secs(),
        })
    }

    async fn reloads(&self) -> Result<Reloads, ControlPlaneError> {
        Ok(Reloads::read(&self.admin.get_text("/metrics").await?))
    }

    fn lines_about_authentication(&self) -> String {
        tail_of_file(&self.folder.join("kube-apiserver.log"), 200)
            .lines()
            .filter(|line| line.contains("authentication config"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Replaces a file atomically.
pub(super) fn swap(path: &Path, text: &str) -> Result<(), ControlPlaneError> {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).map_err(|source| ControlPlaneError::file(&fresh, source))?;
    std::fs::rename(&fresh, path).map_err(|source| ControlPlaneError::file(path, source))
}

/// How often kube-apiserver has accepted and refused a changed file since its start.
#[derive(Debug, Default, PartialEq)]
struct Reloads {
    accepted: f64,
    refused: f64,
}

impl Reloads {
    fn read(metrics: &str) -> Self {
        let mut all = Self::default();
        for line in metrics.lines().filter(|line| line.starts_with(RELOADS)) {
            let count = line
                .rsplit_once(' ')
                .and_then(|(_, number)| number.parse::<f64>().ok())
                .unwrap_or_default();
            if line.contains("status=\"success\"") {
                all.accepted += count;
            } else if line.contains("status=\"failure\"") {
                all.refused += count;
            }
        }
        all
    }
}

pub(super) fn write_first(
    spec: &ControlPlaneSpec,
    folder: &Path,
) -> Result<Option<PathBuf>, ControlPlaneError> {
    let Some(text) = &spec.authentication_config else {
        return Ok(None);
    };
    // A separate folder, so that the watch does not see writes to logs beside the file.
    let own = folder.join("authentication");
    std::fs::create_dir_all(&own).map_err(|source| ControlPlaneError::file(&own, source))?;
    let path = own.join("config.yaml");
    std::fs::write(&path, text).map_err(|source| ControlPlaneError::file(&path, source))?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_and_refused_reloads_are_told_apart() {
        let metrics = concat!(
            "# HELP apiserver_authentication_config_controller_automatic_reloads_total text\n",
            "apiserver_authentication_config_controller_automatic_reloads_total{apiserver_id_hash=\"a\",status=\"failure\"} 2\n",
            "apiserver_authentication_config_controller_automatic_reloads_total{apiserver_id_hash=\"a\",status=\"success\"} 1\n",
        );
        assert_eq!(
            Reloads::read(metrics),
            Reloads {
                accepted: 1.0,
                refused: 2.0
            }
        );
        assert_eq!(Reloads::read(""), Reloads::default());
    }
}
