//! The load generator, in a process of its own: keep-alive connections that each send their request again and again.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use super::answer_time::AnswerTime;
use super::process;
use super::tls_connection::{self, TlsConnection};
use super::window::{Start, Window};
use crate::Outcome;

/// What to send.
#[derive(Clone, Deserialize, Serialize)]
pub struct Load {
    /// To whom.
    pub address: SocketAddr,
    /// Whose certificate to expect.
    pub ca_pem: String,
    /// Whole requests; a connection sends one of them.
    pub requests: Vec<String>,
    /// How many connections.
    pub connections: usize,
    /// How long before anything counts.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// How long a connection rests between an answer and its next request.
    pub pause: Duration,
}

/// What came back.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Answered {
    /// Answers within the measured time.
    pub count: u64,
    /// How long they took.
    pub time: AnswerTime,
}

/// Reads a [`Load`] from standard input, carries it out and writes [`Answered`].
pub fn main() -> Outcome<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let load: Arc<Load> = Arc::new(serde_json::from_str(&text)?);
    let config = tls_connection::trusting(&load.ca_pem)?;
    // As many threads as there are cores, each with its own connections: nothing is shared while it runs.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(load.connections);
    let start = Arc::new(Start::of(threads));
    let workers = (0..threads)
        .map(|thread| {
            let (load, config, start) = (Arc::clone(&load), Arc::clone(&config), Arc::clone(&start));
            std::thread::spawn(move || work(&load, (thread..load.connections).step_by(threads).collect(), config, &start))
        })
        .collect();
    let answered = start.measure(load.warm_up, load.duration, workers)?;
    process::say(&format!("{}\n", serde_json::to_string(&answered)?))
}

/// One thread: connects, waits for the others, and sends until the window closes.
fn work(load: &Load, indices: Vec<usize>, config: Arc<ClientConfig>, start: &Start) -> Outcome<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let opened = futures::future::try_join_all(indices.iter().map(|_| TlsConnection::open(load.address, Arc::clone(&config)))).await;
        let window = start.ready()?;
        let running = opened?.into_iter().zip(indices).map(|(connection, index)| send(load, connection, index, window));
        let times = futures::future::try_join_all(running).await?;
        Ok(times.into_iter().flatten().collect())
    })
}

async fn send(load: &Load, mut connection: TlsConnection, index: usize, window: Window) -> Outcome<Vec<Duration>> {
    let request = load.requests.get(index % load.requests.len().max(1)).ok_or("there is nothing to send")?.as_bytes();
    let mut times = Vec::new();
    loop {
        let sent = process::now();
        if sent >= window.until {
            return Ok(times);
        }
        connection.ask(request).await?;
        let answered = process::now();
        if sent >= window.from && answered <= window.until {
            times.push(answered - sent);
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
}
