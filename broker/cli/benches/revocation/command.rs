//! Runs `keyferry revoke` as a platform admin does.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use keyferry_integration::keyferry_process::TARGETS_HERE;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::stage::Stage;
use crate::harness::Outcome;
use crate::harness::process::now;

/// The line that the command prints once the revocation is in the key journal.
const WRITTEN: &str = "every replica stops publishing it";

/// The times of one command that succeeded.
pub struct Revoked {
    /// When the revocation was in the key journal.
    pub written: Instant,
    /// When the command ended.
    pub ended: Instant,
}

/// Revokes a key, with a witness for each target.
pub async fn run_revoke(stage: &Stage, kid: &str, witnesses: &[PathBuf]) -> Outcome<Revoked> {
    let replica = stage.replicas.first().ok_or("there is no replica")?;
    let mut command = Command::new(stage.ground.binary().path());
    command
        .args(["revoke", "--yes", "--kid", kid])
        .args(["--keyferry-namespace", &stage.namespace])
        .arg("--kubeconfig")
        .arg(stage.hub.admin_kubeconfig())
        .arg("--config")
        .arg(replica.config());
    for witness in witnesses {
        command.arg("--witness").arg(witness);
    }
    let mut child = command
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .env(TARGETS_HERE.0, TARGETS_HERE.1)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let errors = child.stderr.take().ok_or("the command has no output")?;
    let mut lines = BufReader::new(errors).lines();
    let (mut written, mut said) = (None, String::new());
    while let Some(line) = lines.next_line().await? {
        if line.contains(WRITTEN) {
            written = Some(now());
        }
        said.push_str(&line);
        said.push('\n');
    }
    let is_proven = child.wait().await?.success();
    match written {
        Some(written) if is_proven => Ok(Revoked {
            written,
            ended: now(),
        }),
        _ => Err(format!("keyferry revoke proved nothing:\n{said}").into()),
    }
}
