//! The real kubectl against a control plane.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::{ControlPlane, ControlPlaneError};
use crate::parts::Part;

const LIMIT: Duration = Duration::from_secs(60);

impl ControlPlane {
    /// Runs the real kubectl as the admin.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Output, ControlPlaneError> {
        self.kubectl_with(&self.admin_kubeconfig, args).await
    }

    /// Runs the real kubectl with a kubeconfig.
    pub async fn kubectl_with(
        &self,
        kubeconfig: &Path,
        args: &[&str],
    ) -> Result<Output, ControlPlaneError> {
        let program = self.parts.locate(Part::Kubectl).await?;
        let run = Command::new(program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(args)
            // Its discovery cache lies below HOME.
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let shown = || args.join(" ");
        match tokio::time::timeout(LIMIT, run).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(source)) => Err(ControlPlaneError::Kubectl {
                args: shown(),
                source,
            }),
            Err(_) => Err(ControlPlaneError::Kubectl {
                args: shown(),
                source: std::io::ErrorKind::TimedOut.into(),
            }),
        }
    }
}
