//! Child processes that do not outlive the test. They log to files and are killed on drop, and also
//! when the test process dies.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::runner::TestError;

const SUSPENDED_WITHIN: Duration = Duration::from_secs(5);

/// Why a child process could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It did not start.
    #[error("start {program}: {source}")]
    Start {
        /// The binary.
        program: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It could not be signalled or awaited.
    #[error("{verb} {name}: {source}")]
    Control {
        /// The operation that failed.
        verb: &'static str,
        /// The process.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is already gone.
    #[error("signal {name}: it has exited")]
    Exited {
        /// The process.
        name: String,
    },
}

/// Signals that tests send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    HangUp,
    /// SIGSTOP: the process keeps its sockets but responds to nothing.
    Suspend,
    /// SIGCONT.
    Continue,
    /// SIGKILL.
    Kill,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "TERM",
            Self::HangUp => "HUP",
            Self::Suspend => "STOP",
            Self::Continue => "CONT",
            Self::Kill => "KILL",
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// The name used in messages.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables beside the inherited ones.
    pub env: Vec<(String, OsString)>,
    /// The file that standard output and standard error are appended to.
    pub log: PathBuf,
}

/// Runs a program to its end, with an empty standard input.
///
/// # Errors
/// It does not succeed within the limit; with the end of what it wrote.
pub(crate) async fn run_to_end(mut command: Command, limit: Duration) -> Result<(), TestError> {
    let shown = format!("{:?}", command.as_std());
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(limit, running)
        .await
        .map_err(|_| format!("{shown}: not within {} s", limit.as_secs()))??;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines.get(lines.len().saturating_sub(20)..);
    Err(format!("{shown}: {}", last.unwrap_or_default().join("\n")).into())
}

/// The environment of control planes and controllers, which are written in Go: a larger heap takes
/// a fifth less CPU time at their start, and a run starts more than a hundred.
pub(crate) fn larger_heap() -> (String, OsString) {
    ("GOGC".to_owned(), "400".into())
}

/// A running child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    _guard: Guard,
}

impl Process {
    /// Starts the process with an empty standard input.
    pub async fn spawn(spec: &ProcessSpec) -> Result<Self, ProcessError> {
        let start_error = |source| ProcessError::Start {
            program: spec.program.clone(),
            source,
        };
        let log = File::options()
            .create(true)
            .append(true)
            .open(&spec.log)
            .map_err(start_error)?;
        let child = Command::new(&spec.program)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(start_error)?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(start_error)?;
        let guard = Guard::over(&child).map_err(start_error)?;
        Ok(Self {
            name: spec.name.clone(),
            log: spec.log.clone(),
            child,
            _guard: guard,
        })
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The exit status, once it has exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Completes when the process has exited.
    pub async fn exited(&mut self) {
        // An error means that there is no process to wait for.
        let _ = self.child.wait().await;
    }

    /// The last lines of its log.
    pub fn logs_tail(&self, lines: usize) -> String {
        tail_of_file(&self.log, lines)
    }

    /// Sends a signal.
    pub async fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let Some(id) = self.child.id() else {
            return Err(ProcessError::Exited {
                name: self.name.clone(),
            });
        };
        let status = Command::new("kill")
            .args(["-s", signal.name(), &id.to_string()])
            .status()
            .await
            .map_err(|source| self.control_error("signal", source))?;
        if status.success() {
            Ok(())
        } else {
            Err(ProcessError::Exited {
                name: self.name.clone(),
            })
        }
    }

    /// Sends SIGSTOP and returns once every thread has stopped: until then a thread may still
    /// respond.
    pub async fn suspend(&self) -> Result<(), ProcessError> {
        self.signal(Signal::Suspend).await?;
        let deadline = Instant::now() + SUSPENDED_WITHIN;
        while let Some(id) = self.child.id().filter(|id| !all_threads_stopped(*id)) {
            if Instant::now() >= deadline {
                let source = std::io::Error::other(format!("process {id} still runs"));
                return Err(self.control_error("suspend", source));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Sends SIGTERM, and SIGKILL when the process has not exited after the grace period.
    pub async fn stop(mut self, grace: Duration) -> Result<(), ProcessError> {
        if self.signal(Signal::Terminate).await.is_ok()
            && tokio::time::timeout(grace, self.child.wait()).await.is_ok()
        {
            return Ok(());
        }
        self.kill().await
    }

    /// Sends SIGKILL: the process flushes nothing and closes no connection properly.
    pub async fn kill(mut self) -> Result<(), ProcessError> {
        self.child
            .kill()
            .await
            .map_err(|source| self.control_error("kill", source))
    }

    fn control_error(&self, verb: &'static str, source: std::io::Error) -> ProcessError {
        ProcessError::Control {
            verb,
            name: self.name.clone(),
            source,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.start_kill().is_err() {
            return;
        }
        // The caller removes the folder with its data next, so wait until the process has stopped
        // writing.
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Reads the third field of `/proc/<pid>/task/<tid>/stat`, proc(5). Without that folder, it is
/// assumed that all threads have stopped.
fn all_threads_stopped(id: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    tasks.into_iter().flatten().flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The second field is a name in brackets, which may contain any characters.
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// The last lines of a text file; empty when it cannot be read.
pub fn tail_of_file(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all.iter()
        .skip(all.len().saturating_sub(lines))
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}

/// A shell that kills the child when its pipe from the test process closes. Drop does not run when
/// the test process itself is killed.
#[derive(Debug)]
struct Guard(std::process::Child);

impl Guard {
    fn over(child: &Child) -> std::io::Result<Self> {
        let id = child.id().map(|id| id.to_string()).unwrap_or_default();
        std::process::Command::new("sh")
            .args([
                "-c",
                "trap '' INT TERM HUP; read -r line; kill -s KILL \"$1\"",
                "guard",
                &id,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Kill it before its pipe closes, so that it never signals a process ID that has since been
        // reused.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    async fn shell(script: &str, folder: &Path) -> Process {
        Process::spawn(&ProcessSpec {
            name: "script".to_owned(),
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: Vec::new(),
            log: folder.join("log"),
        })
        .await
        .unwrap()
    }

    async fn wait_for_line(process: &Process, line: &str) {
        tokio::time::timeout(Duration::from_secs(10), async {
            while !process.logs_tail(5).contains(line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn stop_asks_first() {
        let folder = tempfile::tempdir().unwrap();
        let process = shell(
            "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done",
            folder.path(),
        )
        .await;
        wait_for_line(&process, "up").await;
        process.stop(Duration::from_secs(10)).await.unwrap();
        assert_eq!(tail_of_file(&folder.path().join("log"), 1), "bye");
    }

    #[tokio::test]
    async fn stop_kills_what_does_not_listen_and_a_dead_process_takes_no_signal() {
        let folder = tempfile::tempdir().unwrap();
        let process = shell(
            "trap '' TERM; echo up; while :; do sleep 0.05; done",
            folder.path(),
        )
        .await;
        wait_for_line(&process, "up").await;
        process.stop(Duration::from_millis(100)).await.unwrap();

        let mut process = shell("echo done", folder.path()).await;
        wait_for_line(&process, "done").await;
        tokio::time::timeout(Duration::from_secs(10), process.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(process.exit_status().is_some_and(|status| status.success()));
        assert!(matches!(
            process.signal(Signal::HangUp).await,
            Err(ProcessError::Exited { .. })
        ));
    }

    #[tokio::test]
    async fn drop_kills() {
        let folder = tempfile::tempdir().unwrap();
        let process = shell("echo up; exec sleep 600", folder.path()).await;
        let id = process.id().unwrap();
        wait_for_line(&process, "up").await;
        drop(process);
        let alive = Command::new("kill")
            .args(["-s", "0", &id.to_string()])
            .stderr(Stdio::null())
            .status()
            .await
            .unwrap();
        assert!(!alive.success());
    }
}
