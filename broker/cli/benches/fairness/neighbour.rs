//! The neighbour, as a separate process: kept connections that exchange at a constant rate,
//! whatever the answers take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::harness::answer_time::AnswerTime;
use crate::harness::tls_connection::{self, TlsConnection};
use crate::harness::window::{Start, Window};
use crate::harness::{Outcome, load_process, process};

/// The argument that makes this binary the neighbour.
pub const ASK: &str = "--ask-steadily";
/// Together with [`INTERVAL`], 500 requests a second.
const CONNECTIONS: u32 = 20;
/// The time between two requests of one connection.
const INTERVAL: Duration = Duration::from_millis(40);
/// The time before anything counts.
const WARM_UP: Duration = Duration::from_millis(300);

/// What the neighbour asks for.
#[derive(Clone, Deserialize, Serialize)]
pub struct Neighbour {
    /// The address of the server.
    pub address: SocketAddr,
    /// The CA of the server's certificate.
    pub ca_pem: String,
    /// The whole request.
    pub request: String,
    /// The time to measure.
    pub duration: Duration,
}

/// What it found.
#[derive(Deserialize, Serialize)]
pub struct Asked {
    /// Its response times.
    pub time: AnswerTime,
    /// How long it waited for a core itself, in milliseconds a second.
    pub waits: f64,
}

/// Reads a [`Neighbour`] from standard input, asks, and writes [`Asked`]. Any answer but 200 is an
/// error.
pub fn main() -> Outcome<()> {
    let neighbour: Neighbour = load_process::read_order()?;
    let duration = neighbour.duration;
    let start = Arc::new(Start::of(1));
    let started = Arc::clone(&start);
    let asking = std::thread::spawn(move || ask_steadily(&neighbour, &started));
    start.measure(WARM_UP, duration)?;
    let asked = asking.join().map_err(|_| "the neighbour panicked")??;
    load_process::write_result(&asked)
}

fn ask_steadily(neighbour: &Neighbour, start: &Start) -> Outcome<Asked> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let config = tls_connection::trusting(&neighbour.ca_pem)?;
        let open = |_| TlsConnection::open(neighbour.address, Arc::clone(&config));
        let opened = futures::future::try_join_all((0..CONNECTIONS).map(open)).await;
        // Also if it failed: the other thread waits for this one.
        let window = start.ready()?;
        let begin = process::now();
        let request = neighbour.request.as_bytes();
        let asking = opened?.into_iter().zip(0..).map(|(connection, index)| {
            ask_on(
                connection,
                request,
                begin + INTERVAL * index / CONNECTIONS,
                window,
            )
        });
        let own = std::process::id();
        let waits_before = process::waits_of(own);
        let times = futures::future::try_join_all(asking).await?;
        let asked = WARM_UP + neighbour.duration;
        let waits = process::waits_per_second(own, &waits_before, asked);
        let time = AnswerTime::of(times.into_iter().flatten().collect());
        Ok(Asked { time, waits })
    })
}

/// Asks in each interval, and counts the requests that are due in the window. A request that is
/// late because the answer before it was late is measured from when it was due: otherwise a stall
/// of the server would count once, and not for each request that it delays.
async fn ask_on(
    mut connection: TlsConnection,
    request: &[u8],
    first_due: Instant,
    window: Window,
) -> Outcome<Vec<Duration>> {
    let mut times = Vec::new();
    let mut due = first_due;
    while due < window.until {
        let sent = if process::now() < due {
            tokio::time::sleep_until(due.into()).await;
            process::now()
        } else {
            due
        };
        connection.ask(request).await?;
        if due >= window.from {
            times.push(process::now() - sent);
        }
        due += INTERVAL;
    }
    Ok(times)
}
