//! The load generator, in a process of its own: keep-alive connections that each send their request
//! again and again.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

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

/// Loads that take turns.
#[derive(Clone, Deserialize, Serialize)]
pub struct Order {
    /// Which there are. All of their connections are opened before the first turn.
    pub loads: Vec<Load>,
    /// Whose turn it is, by its place among them.
    pub turns: Vec<usize>,
}

/// What came back in one turn.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Answered {
    /// Answers within the measured time.
    pub count: u64,
    /// How long they took.
    pub time: AnswerTime,
}

/// One turn as the threads see it.
struct Turn {
    load: usize,
    start: Start,
}

/// Reads an [`Order`] from standard input, carries it out and writes [`Answered`] for each turn.
pub fn main() -> Outcome<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let Order { loads, turns } = serde_json::from_str(&text)?;
    let loads = Arc::new(loads);
    // As many threads as there are cores, each with its own connections: nothing is shared while it
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
                // Whoever would hear it is gone.
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
        let times: Vec<Duration> = of_threads.into_iter().flatten().collect();
        let answered = Answered {
            count: times.len() as u64,
            time: AnswerTime::of(times),
        };
        process::say(&format!("{}\n", serde_json::to_string(&answered)?))?;
    }
    Ok(())
}

/// One thread: connects, and in each turn waits for the others and sends until the window closes.
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
            // The others wait for each thread; then they hear why this one has ended.
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

/// Those of a load's connections that are `mine`, by their place among all of them.
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
        // Whenever it was sent: what is under way when a short turn begins would be missed, and the
        // more of it the slower the answers are.
        if (window.from..=window.until).contains(&answered) {
            times.push(answered - sent);
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
}
