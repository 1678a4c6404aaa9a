//! A TLS listener with limits on everything a client can hold open, and a certificate that is read again when it changes.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper::body::Incoming;
use hyper_util::rt::TokioTimer;
use keyferry_core::config::{Listener, TlsFiles};
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use tower::Service;
use tower::make::Shared;

use super::connection::BoundedAcceptor;
use crate::read_again::ReadAgain;

/// How long a client may take over its request's head, and how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// HTTP/2 streams that one connection may have open.
const STREAMS: u32 = 100;
/// How often the certificate's files are looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
/// How long accepted requests get to finish at shutdown.
pub const DRAIN: Duration = Duration::from_secs(20);

/// What the clients of one listener can hold at once. A connection costs 38 KiB, 58 KiB while a head of 15 KB is on its way and 76 KiB
/// with one of 31 KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections.
    connections: usize,
    /// Bytes of a request's head, and of a header list under HTTP/2.
    head: u32,
    /// Whether a TLS session may be resumed. Verifiers do not: without tickets, each handshake takes a tenth less CPU time.
    resumption: bool,
}

impl Bounds {
    /// For the token API: a head holds a token and what a client says beside it.
    pub const TOKENS: Bounds = Bounds { connections: 4096, head: 32 * 1024, resumption: true };
    /// For the published documents, which anybody may read: a head says little, and all connections together cost some 80 MiB.
    pub const DOCUMENTS: Bounds = Bounds { connections: 2048, head: 8 * 1024, resumption: false };
}

/// The listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("listening on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The certificate or key cannot be used.
    #[error("reading the serving certificate {certificate} and its key: both must be PEM and belong together")]
    Certificate {
        /// The certificate's file.
        certificate: PathBuf,
    },
}

/// What answers a listener's requests: a router, or something before one.
pub trait HttpService<B>:
    Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<B, S> HttpService<B> for S where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

/// A bound TLS listener that does not answer yet.
pub struct TlsListener {
    socket: TcpListener,
    tls: RustlsConfig,
    files: TlsFiles,
    bounds: Bounds,
    handle: Handle<SocketAddr>,
}

impl TlsListener {
    /// Binds the address and reads the certificate.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn bind(listener: &Listener, bounds: Bounds) -> Result<TlsListener, ListenError> {
        let wrong = |source| ListenError::Bind { address: listener.address, source };
        let socket = TcpListener::bind(listener.address).map_err(wrong)?;
        socket.set_nonblocking(true).map_err(wrong)?;
        let tls = read(&listener.tls, bounds).await;
        let tls = tls.map_err(|_| ListenError::Certificate { certificate: listener.tls.certificate.clone() })?;
        Ok(TlsListener { socket, tls: RustlsConfig::from_config(tls), files: listener.tls.clone(), bounds, handle: Handle::new() })
    }

    /// The same socket once more, with an end of its own: for what answers until the real thing can.
    ///
    /// # Errors
    /// What the system says.
    pub fn try_clone(&self) -> std::io::Result<TlsListener> {
        let (socket, tls, files) = (self.socket.try_clone()?, self.tls.clone(), self.files.clone());
        Ok(TlsListener { socket, tls, files, bounds: self.bounds, handle: Handle::new() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What ends it.
    pub fn handle(&self) -> Handle<SocketAddr> {
        self.handle.clone()
    }

    /// Answers by `service` until the handle ends it. The certificate is looked at every half minute and when ordered.
    ///
    /// # Errors
    /// What the system says.
    pub async fn serve(self, service: impl HttpService<Incoming>, read_again: ReadAgain) -> std::io::Result<()> {
        let reload = tokio::spawn(reload(self.files, self.bounds, self.tls.clone(), read_again));
        // An answer must not wait until the client has acknowledged the session tickets before it: 40 ms on each new connection.
        let tls = RustlsAcceptor::new(self.tls).acceptor(NoDelayAcceptor::new());
        let mut server =
            axum_server::from_tcp(self.socket)?.acceptor(BoundedAcceptor::new(tls, self.bounds.connections)).handle(self.handle);
        let http = server.http_builder();
        http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE).max_buf_size(self.bounds.head as usize);
        let mut http2 = http.http2();
        http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS).keep_alive_interval(HEADER_DEADLINE);
        http2.max_header_list_size(self.bounds.head);
        let outcome = server.serve(Shared::new(service)).await;
        reload.abort();
        outcome
    }
}

/// The certificate and its key, as the listener uses them.
async fn read(files: &TlsFiles, bounds: Bounds) -> std::io::Result<Arc<ServerConfig>> {
    let config = RustlsConfig::from_pem_file(&files.certificate, &files.key).await?.get_inner();
    if bounds.resumption {
        return Ok(config);
    }
    let mut config = ServerConfig::clone(&*config);
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// A bad new certificate leaves the old one serving.
async fn reload(files: TlsFiles, bounds: Bounds, tls: RustlsConfig, mut read_again: ReadAgain) {
    let bytes = async || Some((tokio::fs::read(&files.certificate).await.ok()?, tokio::fs::read(&files.key).await.ok()?));
    let mut last = bytes().await;
    loop {
        tokio::select! {
            () = tokio::time::sleep(CERTIFICATE_INTERVAL) => {}
            () = read_again.ordered() => {}
        }
        let now = bytes().await;
        if now.is_none() || now == last {
            continue;
        }
        match read(&files, bounds).await {
            Ok(config) => {
                tls.reload_from_config(config);
                tracing::info!(certificate = %files.certificate.display(), "the serving certificate was read again");
            }
            Err(_) => {
                tracing::error!(certificate = %files.certificate.display(), "the changed serving certificate cannot be used; the old one stays")
            }
        }
        last = now;
    }
}
