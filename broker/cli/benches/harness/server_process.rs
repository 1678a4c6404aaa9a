//! Servers under test as separate processes, so that the CPU time and the memory of each can be
//! measured alone.

use std::process::{Child, Command, Stdio};

use super::Outcome;
use super::policy::Ports;
use super::stage::Ground;

/// A server's process, which is killed when dropped.
pub struct ServerProcess(Child);

impl ServerProcess {
    /// Starts `keyferry serve` with the files of the ground, and waits until it is ready.
    pub async fn start_keyferry(ground: &Ground, ports: Ports) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyferry"));
        command
            .arg("serve")
            .arg("--config")
            .arg(ground.file("config.yaml"))
            .arg("--kubeconfig")
            .arg(ground.file("hub.kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let keyferry = Self::spawn(&mut command)?;
        ground.until_ready(ports).await?;
        Ok(keyferry)
    }

    /// Starts a command.
    pub fn spawn(command: &mut Command) -> Outcome<Self> {
        Ok(Self(command.spawn()?))
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// What it prints, if its output is piped and not yet taken.
    pub fn take_output(&mut self) -> Option<std::process::ChildStdout> {
        self.0.stdout.take()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
