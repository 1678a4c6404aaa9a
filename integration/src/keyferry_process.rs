//! The real `keyferry` binary: built once, run as a server or for a single command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::http_client::plain_client;
use crate::process::{Process, ProcessError, ProcessSpec, Signal, tail_of_file};
use crate::readiness::{NotReady, wait_until_ready};
use crate::rest::RestError;

/// The environment variable that allows the targets of tests, which are on this host.
pub const TARGETS_HERE: (&str, &str) = ("KEYFERRY_ALLOW_TARGET_CIDR", "127.0.0.0/8");
const GRACE: Duration = Duration::from_secs(20);
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Why the binary could not be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyferryError {
    /// cargo failed to build it.
    #[error("build keyferry: {0}")]
    Build(String),
    /// The process could not be started or stopped.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It did not become ready.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// No client could be created to check readiness.
    #[error(transparent)]
    Client(#[from] RestError),
    /// A one-shot call did not run, or did not finish in time.
    #[error("run keyferry {args}: {source}")]
    Run {
        /// Its arguments.
        args: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A built binary.
#[derive(Debug, Clone)]
pub struct KeyferryBinary {
    path: PathBuf,
}

/// The settings of a server to start: `keyferry serve --config FILE [--kubeconfig FILE]`.
#[derive(Debug, Clone)]
pub struct ServeSpec {
    /// The name of its log file, `<folder>/<name>.log`.
    pub name: String,
    /// The folder for the log.
    pub folder: PathBuf,
    /// Its configuration file, which contains the ports.
    pub config: PathBuf,
    /// The kubeconfig for the hub, with the identity that Keyferry uses there.
    pub kubeconfig: Option<PathBuf>,
    /// Further arguments.
    pub args: Vec<OsString>,
    /// Environment variables beside the inherited ones.
    pub env: Vec<(String, OsString)>,
    /// A plain http URL that answers 200 once the server is ready.
    pub ready_url: String,
    /// How long it may take to become ready.
    pub ready_within: Duration,
}

impl KeyferryBinary {
    /// Builds the binary with cargo, or uses the file that `KEYFERRY_BIN` names. A process builds it
    /// once, so that all its suites run the same one.
    pub async fn build() -> Result<Self, KeyferryError> {
        static BUILT: OnceCell<KeyferryBinary> = OnceCell::const_new();
        BUILT.get_or_try_init(Self::built_now).await.cloned()
    }

    async fn built_now() -> Result<Self, KeyferryError> {
        if let Some(path) = std::env::var_os("KEYFERRY_BIN") {
            return Ok(Self { path: path.into() });
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            // Beside `keyferry-integration`, so that other crates have the features that the unit
            // tests gave them, and are built once. Keyferry's own crates get none of theirs.
            .args(["build", "-p", "keyferry", "-p", "keyferry-integration"])
            .args(["--bin", "keyferry"])
            // A suite that measures is built in this profile, and so is what it measures.
            .args((!cfg!(debug_assertions)).then_some("--release"))
            .arg("--message-format=json-render-diagnostics")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| KeyferryError::Build(format!("cargo did not start: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(KeyferryError::Build(said));
        }
        executable_in(&String::from_utf8_lossy(&output.stdout))
            .map(|path| Self { path })
            .ok_or_else(|| KeyferryError::Build("cargo named no executable".to_owned()))
    }

    /// Uses a binary that is already built, such as that of a benchmark.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path of the binary.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a server and waits until it is ready.
    pub async fn serve(&self, spec: &ServeSpec) -> Result<KeyferryProcess, KeyferryError> {
        let log = spec.folder.join(format!("{}.log", spec.name));
        let mut args: Vec<OsString> =
            vec!["serve".into(), "--config".into(), (&spec.config).into()];
        if let Some(kubeconfig) = &spec.kubeconfig {
            args.extend(["--kubeconfig".into(), kubeconfig.into()]);
        }
        args.extend(spec.args.iter().cloned());
        let mut env = vec![(TARGETS_HERE.0.to_owned(), TARGETS_HERE.1.into())];
        env.extend(spec.env.iter().cloned());
        let mut process = Process::spawn(&ProcessSpec {
            name: spec.name.clone(),
            program: self.path.clone(),
            args,
            env,
            log: log.clone(),
        })
        .await?;
        wait_until_ready(
            &spec.name,
            &mut process,
            &plain_client()?,
            &spec.ready_url,
            spec.ready_within,
        )
        .await?;
        Ok(KeyferryProcess { process, log })
    }

    /// Runs the binary once, for at most 60 s: a CLI command, or a server that is expected to
    /// refuse its configuration.
    pub async fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Result<Output, KeyferryError> {
        self.run_within(RUN_LIMIT, args, env).await
    }

    /// As [`KeyferryBinary::run`], with a longer time limit.
    pub async fn run_within(
        &self,
        limit: Duration,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Output, KeyferryError> {
        let mut command = Command::new(&self.path);
        // Ignore any kubeconfig or client.yaml of the user who runs the tests.
        command
            .env_remove("KUBECONFIG")
            .env_remove("XDG_CONFIG_HOME")
            .env("HOME", "/nonexistent")
            .env(TARGETS_HERE.0, TARGETS_HERE.1);
        let run = command
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let run_error = |source| KeyferryError::Run {
            args: args.join(" "),
            source,
        };
        tokio::time::timeout(limit, run)
            .await
            .map_err(|_| run_error(std::io::ErrorKind::TimedOut.into()))?
            .map_err(run_error)
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct KeyferryProcess {
    process: Process,
    log: PathBuf,
}

impl KeyferryProcess {
    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// The exit status, once it has exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.exit_status()
    }

    /// Its log file: standard output and standard error.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The end of its log.
    pub fn logs_tail(&self, lines: usize) -> String {
        tail_of_file(&self.log, lines)
    }

    /// Sends SIGHUP.
    pub async fn hang_up(&self) -> Result<(), KeyferryError> {
        self.signal(Signal::HangUp).await
    }

    /// Sends a signal.
    pub async fn signal(&self, signal: Signal) -> Result<(), KeyferryError> {
        Ok(self.process.signal(signal).await?)
    }

    /// Sends SIGTERM, and SIGKILL after 20 s.
    pub async fn stop(self) -> Result<(), KeyferryError> {
        Ok(self.process.stop(GRACE).await?)
    }

    /// Sends SIGKILL.
    pub async fn kill(self) -> Result<(), KeyferryError> {
        Ok(self.process.kill().await?)
    }
}

/// The executable of the last artifact that has one, in cargo's JSON messages (The Cargo Book,
/// External tools).
fn executable_in(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_the_messages() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"executable\":null}\n",
            "{\"reason\":\"compiler-artifact\",\"executable\":\"/t/debug/keyferry\"}\n",
            "{\"reason\":\"build-finished\",\"success\":true}\n",
        );
        assert_eq!(executable_in(messages), Some("/t/debug/keyferry".into()));
        assert_eq!(executable_in("{}"), None);
    }
}
