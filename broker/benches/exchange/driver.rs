//! Starts this binary again as the one that sends, and reads this process's CPU time around the measured part.

use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::generator::{Answered, Load};
use super::process;
use super::window::{BEGINS, ENDS};
use crate::Outcome;

/// The argument that makes this binary a load generator.
pub const LOAD: &str = "--send-load";
/// The argument that makes it a stampede.
pub const STAMPEDE: &str = "--send-stampede";
/// No child runs for longer.
const DEADLINE: Duration = Duration::from_secs(60);

/// A load that is being measured.
pub struct Measuring {
    sender: Sender,
    cpu: Option<Duration>,
    duration: Duration,
}

/// One measured load.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What came back.
    pub answered: Answered,
    /// Answers per second.
    pub rate: f64,
    /// This process's CPU time per answer in microseconds; nothing where the system does not tell.
    pub cpu: Option<f64>,
}

/// Starts a load and returns when the measured part begins.
pub async fn begin(load: &Load) -> Outcome<Measuring> {
    let mut sender = Sender::start(LOAD, load).await?;
    sender.expect(BEGINS).await?;
    Ok(Measuring { sender, cpu: process::cpu_time(), duration: load.duration })
}

/// Carries out a load from beginning to end.
pub async fn run(load: &Load) -> Outcome<Sample> {
    begin(load).await?.finish().await
}

impl Measuring {
    /// Waits for the end.
    pub async fn finish(mut self) -> Outcome<Sample> {
        self.sender.expect(ENDS).await?;
        let spent = process::cpu_time().zip(self.cpu).map(|(end, begin)| end.saturating_sub(begin));
        let answered: Answered = self.sender.result().await?;
        let cpu = spent.map(|spent| spent.as_secs_f64() * 1e6 / answered.count.max(1) as f64);
        Ok(Sample { answered, rate: answered.count as f64 / self.duration.as_secs_f64(), cpu })
    }
}

/// A child process that is told what to do on its standard input.
pub struct Sender {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Sender {
    /// Starts it.
    pub async fn start(argument: &str, order: &impl Serialize) -> Outcome<Sender> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut stdin = child.stdin.take().ok_or("the child has no input")?;
        stdin.write_all(&serde_json::to_vec(order)?).await?;
        drop(stdin);
        let lines = BufReader::new(child.stdout.take().ok_or("the child has no output")?).lines();
        Ok(Sender { child, lines })
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
        let result = self.line().await?.ok_or("the load generator ended without a result")?;
        self.child.wait().await?;
        Ok(serde_json::from_str(&result)?)
    }

    /// The next line that it says; nothing at its end.
    pub async fn line(&mut self) -> Outcome<Option<String>> {
        Ok(tokio::time::timeout(DEADLINE, self.lines.next_line()).await.map_err(|_| "the load generator did not answer in time")??)
    }
}
