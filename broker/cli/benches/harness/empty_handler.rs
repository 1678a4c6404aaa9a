//! The peer that does nothing: an empty handler behind Keyferry's own TLS listener. It shows the
//! cost that remains without any work on a request.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::routing::any;
use keyferry_api::config::{Listener, TlsFiles, TlsSource, TlsVersion};
use keyferry_listener::TlsListener;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_server::http::listener::{self, Bounds, CertificateAccess};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::server_process::ServerProcess;
use super::stage::Ground;
use super::tls_connection::Size;
use super::{Outcome, block_on, load_process, process};

/// The argument that makes this binary run the empty handler as a separate process.
pub const SERVE: &str = "--serve-empty";
/// The path of the documents.
pub const DOCUMENT_PATH: &str = "/openid/v1/jwks";
const READY: Duration = Duration::from_secs(15);

/// The settings of an empty handler.
#[derive(Deserialize, Serialize)]
struct Order {
    certificate: PathBuf,
    key: PathBuf,
    /// The length of the body in bytes.
    bytes: usize,
}

impl Order {
    fn of(ground: &Ground, bytes: usize) -> Self {
        Self {
            certificate: ground.file("tls.crt"),
            key: ground.file("tls.key"),
            bytes,
        }
    }

    fn answer(&self) -> Bytes {
        Bytes::from(vec![b'x'; self.bytes])
    }

    async fn bind(self, bounds: Bounds) -> Outcome<TlsListener> {
        let listener = Listener {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: TlsSource::Files(TlsFiles {
                certificate: self.certificate,
                key: self.key,
            }),
            min_version: TlsVersion::default(),
            connections_per_address: None,
        };
        Ok(listener::bind_listener(
            &listener,
            bounds,
            None,
            &CertificateAccess::default(),
            &Metrics::default(),
        )
        .await?)
    }
}

/// Serves in this process, like the broker beside it: reads each request's body, and returns this
/// many bytes. It ends with this process.
pub async fn serve_here(ground: &Ground, bytes: usize) -> Outcome<SocketAddr> {
    let order = Order::of(ground, bytes);
    let answer = order.answer();
    let listener = order.bind(Bounds::TOKENS).await?;
    let address = listener.address()?;
    let handler = any(async move |_: Bytes| Response::new(Body::from(answer.clone())));
    let routes = Router::new()
        .route("/v1/token", handler.clone())
        .route(DOCUMENT_PATH, handler);
    tokio::spawn(listener.serve(routes, ReloadSignal::never().into_stream()));
    Ok(address)
}

/// Serves in a separate process, which returns this many bytes at [`DOCUMENT_PATH`].
pub async fn serve_apart(ground: &Ground, bytes: usize) -> Outcome<(ServerProcess, SocketAddr)> {
    let orders = ground.file("empty.json");
    std::fs::write(&orders, serde_json::to_vec(&Order::of(ground, bytes))?)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(SERVE)
        .stdin(std::fs::File::open(orders)?)
        .stdout(Stdio::piped());
    let mut process = ServerProcess::spawn(&mut command)?;
    let output = process
        .take_output()
        .ok_or("the empty handler has no output")?;
    let mut lines = BufReader::new(tokio::process::ChildStdout::from_std(output)?).lines();
    let line = tokio::time::timeout(READY, lines.next_line())
        .await
        .map_err(|_| "the empty handler did not start")??;
    let address = line.ok_or("the empty handler said nothing")?.parse()?;
    Ok((process, address))
}

/// The length of the body with which an empty handler's response is as long on the wire as `like`.
/// `short` is the size of its response with a body of one byte.
pub fn body_length(like: Size, short: Size) -> usize {
    let total = like.head + like.body;
    // The header with the length of the body may itself need more digits.
    let digits = total.to_string().len() - short.body.to_string().len();
    total - short.head - digits
}

/// The separate process: prints its address, and serves until it is killed.
pub fn main() -> Outcome<()> {
    let order: Order = load_process::read_order()?;
    block_on(async {
        let answer = order.answer();
        let listener = order.bind(Bounds::DOCUMENTS).await?;
        process::say(&format!("{}\n", listener.address()?))?;
        let handler = any(async move || Response::new(Body::from(answer.clone())));
        let routes = Router::new().route(DOCUMENT_PATH, handler);
        listener
            .serve(routes, ReloadSignal::never().into_stream())
            .await?;
        Ok(())
    })
}
