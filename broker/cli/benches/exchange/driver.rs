//! Starts this binary again as the load generator, and reads this process's CPU time around the
//! measured part.

use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::generator::{Answered, Load, Order};
use super::process;
use super::window::{BEGINS, ENDS};
use crate::Outcome;

/// The argument that makes this binary a load generator.
pub const LOAD: &str = "--send-load";
/// The argument that makes this binary run the stampede.
pub const STAMPEDE: &str = "--send-stampede";
/// The time limit of a child process.
const DEADLINE: Duration = Duration::from_secs(60);

/// Loads that run alternately, in one child process.
pub struct Interleaving {
    sender: Sender,
}

/// The result of one load in its turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The responses that the load received.
    pub answered: Answered,
    /// This process's CPU time meanwhile; `None` where the system does not report it.
    pub cpu: Option<Duration>,
}

impl Interleaving {
    /// Starts the child process with these loads.
    pub async fn start(order: &Order) -> Outcome<Self> {
        Ok(Self {
            sender: Sender::start(LOAD, order).await?,
        })
    }

    /// Runs one load for one turn.
    pub async fn once(load: &Load) -> Outcome<Self> {
        Self::start(&Order {
            loads: vec![load.clone()],
            turns: vec![0],
        })
        .await
    }

    /// Returns when the measured part of the next turn begins.
    pub async fn begin(&mut self) -> Outcome<()> {
        self.sender.expect(BEGINS).await
    }

    /// Waits for the end of the turn that has begun.
    pub async fn end(&mut self) -> Outcome<Turn> {
        let begin = process::cpu_time();
        self.sender.expect(ENDS).await?;
        let cpu = process::cpu_time()
            .zip(begin)
            .map(|(end, begin)| end.saturating_sub(begin));
        let line = self
            .sender
            .line()
            .await?
            .ok_or("the load generator ended without a result")?;
        Ok(Turn {
            answered: serde_json::from_str(&line)?,
            cpu,
        })
    }

    /// Runs one whole turn.
    pub async fn next(&mut self) -> Outcome<Turn> {
        self.begin().await?;
        self.end().await
    }
}

/// A child process that reads its task from standard input.
pub struct Sender {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Sender {
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

    /// Waits for this line.
    pub async fn expect(&mut self, line: &str) -> Outcome<()> {
        match self.line().await? {
            Some(said) if said == line => Ok(()),
            said => Err(format!("the load generator said {said:?} instead of {line:?}").into()),
        }
    }

    /// Reads its result and waits for its end.
    pub async fn result<T: DeserializeOwned>(mut self) -> Outcome<T> {
        let result = self
            .line()
            .await?
            .ok_or("the load generator ended without a result")?;
        self.child.wait().await?;
        Ok(serde_json::from_str(&result)?)
    }

    /// The next line of its output; `None` at the end.
    pub async fn line(&mut self) -> Outcome<Option<String>> {
        Ok(tokio::time::timeout(DEADLINE, self.lines.next_line())
            .await
            .map_err(|_| "the load generator did not answer in time")??)
    }
}
