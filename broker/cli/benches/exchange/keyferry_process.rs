//! The shipped binary as a separate process, which ends when its value is dropped.

use std::process::{Child, Command, Stdio};

use super::policy::Ports;
use super::stage::Ground;
use crate::Outcome;

/// A `keyferry serve` process, which is killed when dropped.
pub struct Keyferry(Child);

impl Keyferry {
    /// Starts `keyferry serve` with the files of the ground, and waits until it is ready.
    pub async fn start(ground: &Ground, ports: Ports) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyferry"));
        command
            .arg("serve")
            .arg("--config")
            .arg(ground.file("config.yaml"));
        command
            .arg("--kubeconfig")
            .arg(ground.file("hub.kubeconfig"));
        let keyferry = Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?,
        );
        ground.until_ready(ports).await?;
        Ok(keyferry)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Keyferry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
