//! Starts this binary again as a load generator, so that the CPU time of the load is not the
//! server's. The child reads its task from standard input and answers in lines.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::window::{BEGINS, ENDS};
use super::{Outcome, process};

/// The time limit of one line.
const DEADLINE: Duration = Duration::from_secs(60);

/// A child process that generates load.
pub struct LoadProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl LoadProcess {
    /// Starts the child process and writes its task.
    pub async fn start(argument: &str, order: &impl Serialize) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("the child has no input")?;
        stdin.write_all(&serde_json::to_vec(order)?).await?;
        drop(stdin);
        let lines = BufReader::new(child.stdout.take().ok_or("the child has no output")?).lines();
        Ok(Self { child, lines })
    }

    /// Returns when the measured time begins.
    pub async fn begin_window(&mut self) -> Outcome<()> {
        self.expect_line(BEGINS).await
    }

    /// Returns at the end of the measured time the CPU time of a server meanwhile; `None` where
    /// the system does not report it.
    pub async fn end_window(&mut self, server_pid: u32) -> Outcome<Option<Duration>> {
        let begin = process::cpu_time_of(server_pid);
        self.expect_line(ENDS).await?;
        let end = process::cpu_time_of(server_pid);
        Ok(end.zip(begin).map(|(end, begin)| end.saturating_sub(begin)))
    }

    /// Reads one result.
    pub async fn next_result<T: DeserializeOwned>(&mut self) -> Outcome<T> {
        let line = self.next_line().await?;
        let line = line.ok_or("the load generator ended without a result")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Asks for the end of a load that has none of its own. It still writes its result.
    pub fn stop(&self) -> Outcome<()> {
        let id = self.child.id().map(i32::try_from).transpose()?;
        let id = id.and_then(rustix::process::Pid::from_raw);
        let id = id.ok_or("the load generator has ended")?;
        Ok(rustix::process::kill_process(
            id,
            rustix::process::Signal::TERM,
        )?)
    }

    /// Reads its only result and waits for its end.
    pub async fn result<T: DeserializeOwned>(mut self) -> Outcome<T> {
        let result = self.next_result().await?;
        self.child.wait().await?;
        Ok(result)
    }

    async fn expect_line(&mut self, line: &str) -> Outcome<()> {
        match self.next_line().await? {
            Some(printed) if printed == line => Ok(()),
            printed => {
                Err(format!("the load generator printed {printed:?} instead of {line:?}").into())
            }
        }
    }

    async fn next_line(&mut self) -> Outcome<Option<String>> {
        Ok(tokio::time::timeout(DEADLINE, self.lines.next_line())
            .await
            .map_err(|_| "the load generator did not answer in time")??)
    }
}

/// The child's side: reads the task from standard input.
pub fn read_order<T: DeserializeOwned>() -> Outcome<T> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// The child's side: writes one result.
pub fn write_result(result: &impl Serialize) -> Outcome<()> {
    process::say(&format!("{}\n", serde_json::to_string(result)?))
}
