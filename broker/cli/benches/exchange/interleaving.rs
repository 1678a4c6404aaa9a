//! Loads that run alternately in one child process, with this process's CPU time around the
//! measured part of each turn.

use std::time::Duration;

use super::generator::{LOAD, Load, Order};
use crate::harness::Outcome;
use crate::harness::answer_time::Answered;
use crate::harness::load_process::LoadProcess;

/// Loads that run alternately, in one child process.
pub struct Interleaving(LoadProcess);

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
        Ok(Self(LoadProcess::start(LOAD, order).await?))
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
        self.0.begin_window().await
    }

    /// Waits for the end of the turn that has begun.
    pub async fn end(&mut self) -> Outcome<Turn> {
        let cpu = self.0.end_window(std::process::id()).await?;
        Ok(Turn {
            answered: self.0.next_result().await?,
            cpu,
        })
    }

    /// Runs one whole turn.
    pub async fn next(&mut self) -> Outcome<Turn> {
        self.begin().await?;
        self.end().await
    }
}
