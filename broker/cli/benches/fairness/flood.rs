//! The flood, as a separate process: as much as half a core can send, from four addresses.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::client::Resumption;
use serde::{Deserialize, Serialize};
use tokio::net::TcpSocket;
use tokio::signal::unix::{SignalKind, signal};

use super::cpu_share::CpuShare;
use crate::harness::stage::client_builder;
use crate::harness::tls_connection::{self, TlsConnection};
use crate::harness::window::BEGINS;
use crate::harness::{Outcome, load_process, process};

/// The argument that makes this binary a flood.
pub const FLOOD: &str = "--flood";
/// The time before anything counts: it opens its connections and uses up the bursts that the limits
/// allow.
const LEAD: Duration = Duration::from_millis(1500);
/// When it ends if nobody stops it.
const MAX_DURATION: Duration = Duration::from_secs(60);
/// The neighbour has another address, 127.0.0.1. Several, because one address has few connections.
const SOURCES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];
/// As many streams as a connection of the token API may have.
const STREAMS: usize = 32;
/// The pause of a slow body after each byte.
const SLOW_PAUSE: Duration = Duration::from_secs(1);

/// What a flood does on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Way {
    /// Sends the requests in turn, each after the answer to the one before.
    Requests,
    /// Also, but never again one that was answered with 200.
    FreshRequests,
    /// Sends many requests together, reads the answers, and connects again.
    Together,
    /// Sends requests by HTTP/2, as many at once as a connection may have.
    Streams,
    /// Sends the head of the request, and then a byte of its body a second.
    SlowBodies,
    /// Completes a TLS handshake, closes and connects again.
    Handshakes,
    /// Sends nothing, and uses the cores all the same.
    Computation,
}

/// The settings of a flood.
#[derive(Deserialize, Serialize)]
pub struct Flood {
    /// The address of the server.
    pub address: SocketAddr,
    /// The CA of the server's certificate.
    pub ca_pem: String,
    /// What each connection does.
    pub way: Way,
    /// Complete requests.
    pub requests: Vec<String>,
    /// The number of connections.
    pub connections: usize,
}

/// What came of a flood after its [`LEAD`].
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Flooded {
    /// The requests, handshakes or bytes of slow bodies a second.
    pub rate: f64,
    /// The share of them that was refused.
    pub refused: f64,
    /// The cores that the flood used.
    pub cores: f64,
}

struct Flooder {
    flood: Flood,
    config: Arc<ClientConfig>,
    requests: RefCell<VecDeque<Rc<str>>>,
    share: CpuShare,
    counts_from: Instant,
    accepted: Cell<u64>,
    refused: Cell<u64>,
}

/// Reads a [`Flood`] from standard input, sends it until it is terminated, and writes [`Flooded`].
pub fn main() -> Outcome<()> {
    let flood: Flood = load_process::read_order()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let flooded = runtime.block_on(async { Flooder::new(flood)?.send_flood().await })?;
    load_process::write_result(&flooded)
}

impl Flooder {
    fn new(mut flood: Flood) -> Outcome<Self> {
        let mut config = Arc::unwrap_or_clone(tls_connection::trusting(&flood.ca_pem)?);
        config.resumption = Resumption::disabled();
        let requests: Vec<Rc<str>> = flood.requests.drain(..).map(Rc::from).collect();
        // Each connection takes one while it waits for the answer.
        let length = requests.len().max(flood.connections);
        Ok(Self {
            config: Arc::new(config),
            requests: RefCell::new(requests.iter().cycle().take(length).cloned().collect()),
            share: CpuShare::new()?,
            counts_from: process::now() + LEAD,
            accepted: Cell::new(0),
            refused: Cell::new(0),
            flood,
        })
    }

    async fn send_flood(self) -> Outcome<Flooded> {
        let mut stop = signal(SignalKind::terminate())?;
        let sources = SOURCES.iter().cycle().take(self.flood.connections);
        let connections = sources.map(|source| self.run_connection(*source));
        let mut all = Box::pin(futures::future::try_join_all(connections));
        // It ends only by an error.
        if let Ok(ended) = tokio::time::timeout_at(self.counts_from.into(), &mut all).await {
            ended?;
        }
        let used_before = self.share.used()?;
        process::say(&format!("{BEGINS}\n"))?;
        tokio::select! {
            ended = all => drop(ended?),
            _ = stop.recv() => {}
            () = tokio::time::sleep(MAX_DURATION) => {}
        }
        let seconds = (process::now() - self.counts_from).as_secs_f64();
        let (accepted, refused) = (self.accepted.get() as f64, self.refused.get() as f64);
        Ok(Flooded {
            rate: (accepted + refused) / seconds,
            refused: refused / (accepted + refused).max(1.0),
            cores: (self.share.used()? - used_before).as_secs_f64() / seconds,
        })
    }

    /// One connection at a time, for ever.
    async fn run_connection(&self, source: Ipv4Addr) -> Outcome<()> {
        loop {
            match self.flood.way {
                Way::Requests | Way::FreshRequests => {
                    self.send_requests(self.open(source).await?).await?;
                }
                Way::Together => self.send_together(self.open(source).await?).await?,
                Way::SlowBodies => self.send_slowly(self.open(source).await?).await?,
                Way::Handshakes => {
                    self.open(source).await?;
                    self.count(true);
                }
                Way::Streams => self.send_streams(source).await?,
                Way::Computation => self.use_share().await?,
            }
        }
    }

    /// Uses the cores as long as a flood may, without a connection.
    async fn use_share(&self) -> Outcome<()> {
        loop {
            self.share.wait().await?;
            tokio::task::yield_now().await;
        }
    }

    /// One connection by HTTP/2 at a time, which sends the first request on each stream.
    async fn send_streams(&self, source: Ipv4Addr) -> Outcome<()> {
        let client = client_builder(&self.flood.ca_pem)?
            .local_address(IpAddr::from(source))
            .http2_prior_knowledge()
            .build()?;
        let url = format!("https://{}/v1/token", self.flood.address);
        let request = self.requests.borrow().front().cloned();
        let request = request.ok_or("the flood has no request")?;
        let (_, form) = request.split_once("\r\n\r\n").ok_or("no body")?;
        let stream = async || -> Outcome<()> {
            loop {
                self.share.wait().await?;
                // Without an answer, the server has ended the connection.
                if let Ok(answer) = client.post(&url).body(form.to_owned()).send().await {
                    self.count(answer.status() == 200);
                }
            }
        };
        let streams = (0..STREAMS).map(|_| stream());
        futures::future::try_join_all(streams).await.map(drop)
    }

    /// Opens a connection. One that the server ends in its handshake counts as refused.
    async fn open(&self, source: Ipv4Addr) -> Outcome<TlsConnection> {
        loop {
            self.share.wait().await?;
            let socket = TcpSocket::new_v4()?;
            socket.bind((source, 0).into())?;
            let stream = socket.connect(self.flood.address).await?;
            match TlsConnection::over(stream, Arc::clone(&self.config)).await {
                Ok(connection) => return Ok(connection),
                Err(_) => self.count(false),
            }
        }
    }

    /// Sends requests until the server ends the connection.
    async fn send_requests(&self, mut connection: TlsConnection) -> Outcome<()> {
        loop {
            self.share.wait().await?;
            let request = self.requests.borrow_mut().pop_front();
            let request = request.ok_or("the flood has no request left")?;
            let status = connection.ask_status(request.as_bytes()).await;
            let accepted = status.as_ref().is_ok_and(|status| *status == 200);
            if !(accepted && self.flood.way == Way::FreshRequests) {
                self.requests.borrow_mut().push_back(request);
            }
            if status.is_err() {
                return Ok(());
            }
            self.count(accepted);
        }
    }

    /// Sends requests that are one text, and reads answers until the server ends the connection.
    async fn send_together(&self, mut connection: TlsConnection) -> Outcome<()> {
        let requests = self.requests.borrow().front().cloned();
        let requests = requests.ok_or("the flood has no request")?;
        let mut answered = connection
            .send(requests.as_bytes())
            .await
            .map(|()| Vec::new());
        while let Ok(statuses) = answered {
            for status in statuses {
                self.count(status == 200);
            }
            self.share.wait().await?;
            answered = connection.next_statuses().await;
        }
        Ok(())
    }

    /// Sends a request without its last bytes until the server ends the connection.
    async fn send_slowly(&self, mut connection: TlsConnection) -> Outcome<()> {
        let request = self.requests.borrow().front().cloned();
        let request = request.ok_or("the flood has no request")?;
        let (head, _) = request.split_once("\r\n\r\n").ok_or("no head")?;
        let head = [head, "\r\n\r\n"].concat();
        let mut piece = head.as_bytes();
        while connection.send(piece).await.is_ok() {
            self.count(true);
            piece = b"a";
            tokio::time::sleep(SLOW_PAUSE).await;
            self.share.wait().await?;
        }
        self.count(false);
        Ok(())
    }

    fn count(&self, accepted: bool) {
        if process::now() >= self.counts_from {
            let counter = if accepted {
                &self.accepted
            } else {
                &self.refused
            };
            counter.set(counter.get() + 1);
        }
    }
}
