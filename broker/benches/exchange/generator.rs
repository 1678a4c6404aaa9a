//! The load generator, in a process of its own: keep-alive connections that each send their request again and again.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use super::answer_time::AnswerTime;
use super::process;
use super::tls_connection::{self, TlsConnection};
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

/// Said once the measured time begins, and once it ends.
pub const BEGINS: &str = "begins";
/// See [`BEGINS`].
pub const ENDS: &str = "ends";

#[derive(Clone, Copy)]
struct Window {
    from: Instant,
    until: Instant,
}

/// Reads a [`Load`] from standard input, carries it out and writes [`Answered`].
pub fn main() -> Outcome<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let load: Arc<Load> = Arc::new(serde_json::from_str(&text)?);
    let config = tls_connection::trusting(&load.ca_pem)?;
    // As many threads as there are cores, each with its own connections: nothing is shared while it runs.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(load.connections);
    let (connected, window) = (Arc::new(Barrier::new(threads + 1)), Arc::new(OnceLock::new()));
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (load, config, connected, window) = (Arc::clone(&load), Arc::clone(&config), Arc::clone(&connected), Arc::clone(&window));
            std::thread::spawn(move || work(&load, (thread..load.connections).step_by(threads).collect(), config, &connected, &window))
        })
        .collect();
    connected.wait();
    let from = process::now() + load.warm_up;
    let window = *window.get_or_init(|| Window { from, until: from + load.duration });
    connected.wait();
    std::thread::sleep(window.from.saturating_duration_since(process::now()));
    process::say(&format!("{BEGINS}\n"))?;
    std::thread::sleep(window.until.saturating_duration_since(process::now()));
    process::say(&format!("{ENDS}\n"))?;
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.join().map_err(|_| "a thread of the load generator panicked")??);
    }
    let answered = Answered { count: times.len() as u64, time: AnswerTime::of(times) };
    process::say(&format!("{}\n", serde_json::to_string(&answered)?))
}

/// One thread: connects, waits for the others, and sends until the window closes.
fn work(
    load: &Load,
    indices: Vec<usize>,
    config: Arc<ClientConfig>,
    connected: &Barrier,
    window: &OnceLock<Window>,
) -> Outcome<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let opened = futures::future::try_join_all(indices.iter().map(|_| TlsConnection::open(load.address, Arc::clone(&config)))).await;
        connected.wait();
        connected.wait();
        let window = *window.get().ok_or("there is no window")?;
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
