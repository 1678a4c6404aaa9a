//! The load, as a separate process: kept connections or a new one for each request, with or without
//! slow clients beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use rustls::ClientConfig;
use rustls::client::Resumption;
use serde::{Deserialize, Serialize};

use crate::harness::answer_time::Answered;
use crate::harness::tls_connection::{self, TlsConnection};
use crate::harness::window::{Start, Window};
use crate::harness::{Outcome, load_process, process};

/// The argument that makes this binary generate the load.
pub const LOAD: &str = "--send-discovery-load";
/// The number of parts in which a slow client sends its request.
const PARTS: usize = 5;
/// The pause of a slow client after each part. It is within the time that servers allow for a
/// request's head.
const REST: Duration = Duration::from_secs(1);
/// The number of concurrent handshakes of slow clients, in each thread.
const OPENING: usize = 16;

/// The settings of a load.
#[derive(Clone, Deserialize, Serialize)]
pub struct Load {
    /// The address of the server.
    pub address: SocketAddr,
    /// The CA of the server's certificate.
    pub ca_pem: String,
    /// The whole request.
    pub request: String,
    /// The number of concurrent senders.
    pub senders: usize,
    /// Whether each request uses its own connection with a full handshake, like a verifier without
    /// a session cache.
    pub new_connections: bool,
    /// The number of slow clients, which are connected all the time.
    pub slow: usize,
    /// The time before anything counts.
    pub warm_up: Duration,
    /// The time to measure.
    pub duration: Duration,
}

/// The responses that the load received.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Received {
    /// The responses to the senders within the measured time.
    pub answered: Answered,
    /// The responses to slow clients, over the whole run.
    pub slow_answers: u64,
    /// Slow clients whose connection the server ended.
    pub slow_lost: u64,
}

#[derive(Default)]
struct Slow {
    answers: AtomicU64,
    lost: AtomicU64,
}

/// The state that the threads share.
struct Shared {
    load: Load,
    config: Arc<ClientConfig>,
    start: Start,
    slow: Slow,
}

/// Reads a [`Load`] from standard input, runs it and writes [`Received`].
pub fn main() -> Outcome<()> {
    let load: Load = load_process::read_order()?;
    let mut config = Arc::unwrap_or_clone(tls_connection::trusting(&load.ca_pem)?);
    config.resumption = Resumption::disabled();
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(load.senders);
    let shared = Arc::new(Shared {
        load,
        config: Arc::new(config),
        start: Start::of(threads),
        slow: Slow::default(),
    });
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || work(&shared, thread, threads))
        })
        .collect();
    shared
        .start
        .measure(shared.load.warm_up, shared.load.duration)?;
    let mut times = Vec::new();
    for worker in workers {
        times.extend(
            worker
                .join()
                .map_err(|_| "a thread of the load panicked")??,
        );
    }
    let slow = |number: &AtomicU64| number.load(Ordering::Relaxed);
    load_process::write_result(&Received {
        answered: Answered::of(times),
        slow_answers: slow(&shared.slow.answers),
        slow_lost: slow(&shared.slow.lost),
    })
}

/// One thread with its share of senders and slow clients.
fn work(shared: &Arc<Shared>, thread: usize, threads: usize) -> Outcome<Vec<Duration>> {
    let share = |all: usize| (thread..all).step_by(threads);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let times = runtime.block_on(async {
        let opened = connect(
            shared,
            share(shared.load.slow).count(),
            share(shared.load.senders).count(),
        )
        .await;
        let window = shared.start.ready()?;
        let (slow, senders) = opened?;
        for (index, connection) in slow.into_iter().enumerate() {
            tokio::spawn(be_slow(Arc::clone(shared), connection, index));
        }
        let times = futures::future::try_join_all(
            senders
                .into_iter()
                .map(|connection| send(shared, connection, window)),
        )
        .await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(times.into_iter().flatten().collect())
    });
    // This also ends the slow clients.
    runtime.shutdown_background();
    times
}

async fn connect(
    shared: &Shared,
    slow: usize,
    senders: usize,
) -> Outcome<(Vec<TlsConnection>, Vec<Option<TlsConnection>>)> {
    let open = || TlsConnection::open(shared.load.address, Arc::clone(&shared.config));
    let slow = stream::iter(0..slow)
        .map(|_| open())
        .buffer_unordered(OPENING)
        .try_collect()
        .await?;
    let mut ready = Vec::new();
    for _ in 0..senders {
        ready.push(if shared.load.new_connections {
            None
        } else {
            Some(open().await?)
        });
    }
    Ok((slow, ready))
}

async fn send(
    shared: &Shared,
    mut kept: Option<TlsConnection>,
    window: Window,
) -> Outcome<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let sent = process::now();
        if sent >= window.until {
            return Ok(times);
        }
        let request = shared.load.request.as_bytes();
        match &mut kept {
            Some(connection) => connection.ask(request).await?,
            None => {
                TlsConnection::open(shared.load.address, Arc::clone(&shared.config))
                    .await?
                    .ask(request)
                    .await?
            }
        };
        let answered = process::now();
        if sent >= window.from && answered <= window.until {
            times.push(answered - sent);
        }
    }
}

/// Sends requests slowly and repeatedly.
async fn be_slow(shared: Arc<Shared>, mut connection: TlsConnection, index: usize) {
    // Spread the slow clients over time.
    tokio::time::sleep(REST.mul_f64((index % 100) as f64 / 100.0)).await;
    let request = shared.load.request.as_bytes();
    loop {
        for part in request.chunks(request.len().div_ceil(PARTS)) {
            if connection.send(part).await.is_err() {
                shared.slow.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            tokio::time::sleep(REST).await;
        }
        let counter = if connection.answer().await.is_ok() {
            &shared.slow.answers
        } else {
            &shared.slow.lost
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if std::ptr::eq(counter, &shared.slow.lost) {
            return;
        }
    }
}
