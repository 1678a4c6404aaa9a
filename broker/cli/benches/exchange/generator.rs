//! The load generator, as a separate process: keep-alive connections that each send their request
//! repeatedly.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::harness::answer_time::Answered;
use crate::harness::tls_connection::{self, TlsConnection};
use crate::harness::window::{Start, Window};
use crate::harness::{Outcome, load_process, process};

/// The argument that makes this binary a load generator.
pub const LOAD: &str = "--send-load";

/// The settings of a load.
#[derive(Clone, Deserialize, Serialize)]
pub struct Load {
    /// The address of the server.
    pub address: SocketAddr,
    /// The CA of the server's certificate.
    pub ca_pem: String,
    /// Complete requests; each connection sends one of them.
    pub requests: Vec<String>,
    /// The number of connections.
    pub connections: usize,
    /// The time before anything counts.
    pub warm_up: Duration,
    /// The time to measure.
    pub duration: Duration,
    /// The pause of a connection between a response and its next request.
    pub pause: Duration,
}

/// Loads that run alternately.
#[derive(Clone, Deserialize, Serialize)]
pub struct Order {
    /// The loads. All of their connections are opened before the first turn.
    pub loads: Vec<Load>,
    /// The order of the turns, by the index of the load.
    pub turns: Vec<usize>,
}

/// One turn as the threads see it.
struct Turn {
    load: usize,
    start: Start,
}

/// Reads an [`Order`] from standard input, runs it and writes [`Answered`] for each turn.
pub fn main() -> Outcome<()> {
    let Order { loads, turns } = load_process::read_order()?;
    let loads = Arc::new(loads);
    // One thread for each core, with its own connections, so that threads share nothing while it
    // runs.
    let least = loads
        .iter()
        .map(|load| load.connections)
        .min()
        .ok_or("there is nothing to send")?;
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(least);
    let turns: Arc<Vec<Turn>> = Arc::new(
        turns
            .into_iter()
            .map(|load| Turn {
                load,
                start: Start::of(threads),
            })
            .collect(),
    );
    let (timed, times) = mpsc::channel();
    for thread in 0..threads {
        let (loads, turns, timed) = (Arc::clone(&loads), Arc::clone(&turns), timed.clone());
        std::thread::spawn(move || {
            if let Err(error) = work(&loads, &turns, &|index| index % threads == thread, &timed) {
                // A send fails only when the receiver is gone.
                let _ = timed.send(Err(error));
            }
        });
    }
    drop(timed);
    for turn in &*turns {
        let load = loads.get(turn.load).ok_or("a turn of no load")?;
        turn.start.measure(load.warm_up, load.duration)?;
        let of_threads = times
            .iter()
            .take(threads)
            .collect::<Outcome<Vec<Vec<Duration>>>>()?;
        let times = of_threads.into_iter().flatten().collect();
        load_process::write_result(&Answered::of(times))?;
    }
    Ok(())
}

/// The work of one thread: connects, and in each turn waits for the others and sends until the
/// window closes.
fn work(
    loads: &[Load],
    turns: &[Turn],
    mine: &impl Fn(usize) -> bool,
    timed: &mpsc::Sender<Outcome<Vec<Duration>>>,
) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let opened =
            futures::future::try_join_all(loads.iter().map(|load| connect(load, mine))).await;
        if opened.is_err()
            && let Some(first) = turns.first()
        {
            // The others wait for each thread, so report ready before failing.
            first.start.ready()?;
        }
        let mut connections = opened?;
        for turn in turns {
            let (load, connections) = loads
                .get(turn.load)
                .zip(connections.get_mut(turn.load))
                .ok_or("a turn of no load")?;
            let window = turn.start.ready()?;
            let running = connections
                .iter_mut()
                .map(|(index, connection)| send(load, connection, *index, window));
            let times = futures::future::try_join_all(running).await?;
            timed.send(Ok(times.into_iter().flatten().collect()))?;
        }
        Ok(())
    })
}

/// Opens those of a load's connections that are `mine`, by their index among all of them.
async fn connect(
    load: &Load,
    mine: &impl Fn(usize) -> bool,
) -> Outcome<Vec<(usize, TlsConnection)>> {
    let config = tls_connection::trusting(&load.ca_pem)?;
    let open = async |index| {
        Ok((
            index,
            TlsConnection::open(load.address, Arc::clone(&config)).await?,
        ))
    };
    futures::future::try_join_all((0..load.connections).filter(|index| mine(*index)).map(open))
        .await
}

async fn send(
    load: &Load,
    connection: &mut TlsConnection,
    index: usize,
    window: Window,
) -> Outcome<Vec<Duration>> {
    let request = load
        .requests
        .get(index % load.requests.len().max(1))
        .ok_or("there is nothing to send")?
        .as_bytes();
    let mut times = Vec::new();
    loop {
        let sent = process::now();
        if sent >= window.until {
            return Ok(times);
        }
        connection.ask(request).await?;
        let answered = process::now();
        // Count every response within the window, whenever its request was sent. Otherwise the
        // requests in progress at the start of a short turn would be missed, and more of them the
        // slower the server is.
        if (window.from..=window.until).contains(&answered) {
            times.push(answered - sent);
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
}
