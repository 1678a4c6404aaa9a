//! Runs the real Helm.

use std::process::Stdio;
use std::time::Duration;

use keyferry_integration::control_plane::ControlPlane;
use keyferry_integration::fleet::Fleet;
use keyferry_integration::parts::Part;
use keyferry_integration::runner::TestError;
use tokio::process::Command;

use super::setup::{NAMESPACE, chart};

const LIMIT: Duration = Duration::from_secs(90);

/// The result and the output of Helm.
pub(crate) struct Said {
    args: String,
    pub(crate) good: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// Helm's output. A failure of Helm becomes the test's failure.
    pub(crate) fn success(self) -> Result<String, TestError> {
        if self.good {
            Ok(self.stdout)
        } else {
            Err(format!("helm {}: {}{}", self.args, self.stdout, self.stderr).into())
        }
    }
}

/// Runs Helm, as the admin of a control plane if one is given.
pub(crate) async fn helm(
    fleet: &Fleet,
    plane: Option<&ControlPlane>,
    args: &[&str],
) -> Result<Said, TestError> {
    let program = fleet.parts().locate(Part::Helm).await?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env("HOME", fleet.folder())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, fleet.folder().join("helm"));
    }
    if let Some(plane) = plane {
        command.arg("--kubeconfig").arg(plane.admin_kubeconfig());
    }
    let output = tokio::time::timeout(LIMIT, command.output())
        .await
        .map_err(|_| format!("helm {} takes too long", args.join(" ")))??;
    Ok(Said {
        args: args.join(" "),
        good: output.status.success(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// `helm template` of the chart, for Keyferry's namespace.
pub(crate) async fn template(fleet: &Fleet, more: &[&str]) -> Result<Said, TestError> {
    let chart = chart();
    let mut args = vec!["template", "keyferry", &chart, "-n", NAMESPACE];
    args.extend(more);
    helm(fleet, None, &args).await
}
