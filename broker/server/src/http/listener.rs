//! The listeners: limits on everything that a client can keep open, and serving certificates that
//! are reloaded when they change.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::{Accept, NoDelayAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;
use jiff::Timestamp;
use keyferry_api::config::{Listener, TlsFiles};
use keyferry_api::reason::Reason;
use keyferry_hub::clock::{Clock, SystemClock};
use keyferry_hub::metrics::Metrics;
use keyferry_hub::reload_signal::ReloadSignal;
use rustls::SupportedProtocolVersion;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower::make::Shared;

use super::acceptor::BoundedAcceptor;
use super::connection::Times;
use super::gate::{ConnectionLimits, Gate};
use super::serving_certificate::{
    Files, Requirements, ServingCertificate, ServingCertificateError,
};

/// How many bytes a client may send over HTTP/2 before they are read. It is the protocol's default
/// and about as much as one form. Each waiting frame costs some hundred bytes beside its content.
const WINDOW: u32 = 65_535;
/// How often the certificate files are checked for changes.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
/// How long accepted requests get to finish at shutdown.
pub const DRAIN: Duration = Duration::from_secs(20);

/// Limits on what the clients of one listener can occupy. A connection costs 38 KiB, 58 KiB while
/// it sends a head of 15 KB, and 76 KiB with a head of 31 KB.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The listener's name in metrics.
    name: &'static str,
    /// Open connections.
    connections: u32,
    /// Connections in their handshake, in addition to the open ones.
    handshakes: u32,
    /// Open HTTP/2 streams of one connection.
    streams: u32,
    /// Connections of one source, where the configuration sets no limit.
    per_source: Option<NonZeroU32>,
    /// Whether each IPv6 address is a source of its own, and not its /64. Set where clients are in
    /// the cluster: the Pods of a node often share a /64.
    pub(super) each_address: bool,
    /// Bytes of a request head, or of a header list under HTTP/2.
    head: u32,
    /// The supported TLS versions.
    versions: &'static [&'static SupportedProtocolVersion],
    /// Whether the service receives the source of each request.
    pub(super) tells_source: bool,
    pub(super) times: Times,
}

impl Bounds {
    /// For the token API, whose heads carry a token. Its clients are Keyferry's own or new, so TLS
    /// 1.3 is required.
    pub const TOKENS: Self = Self {
        name: "api",
        connections: 4096,
        handshakes: 1024,
        streams: 32,
        per_source: None,
        each_address: true,
        head: 32 * 1024,
        versions: &[&rustls::version::TLS13],
        tells_source: true,
        times: Times::USUAL,
    };
    /// For the published documents, which are public. Heads are small, and all connections together
    /// cost some 80 MiB. Old verifiers may not support more than TLS 1.2.
    pub const DOCUMENTS: Self = Self {
        name: "discovery",
        connections: 2048,
        handshakes: 1024,
        streams: 100,
        per_source: None,
        each_address: false,
        head: 8 * 1024,
        versions: rustls::ALL_VERSIONS,
        tells_source: false,
        times: Times::USUAL,
    };
    /// For health and metrics, which only the kubelet and a scraper reach.
    pub const HEALTH: Self = Self {
        name: "health",
        connections: 256,
        handshakes: 256,
        streams: 100,
        per_source: NonZeroU32::new(32),
        each_address: true,
        head: 8 * 1024,
        versions: &[],
        tells_source: false,
        times: Times::USUAL,
    };

    /// The file descriptors that the listener needs at full load.
    pub const fn descriptors(&self) -> u32 {
        self.connections + self.handshakes
    }
}

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("listening on {address}: {source}")]
    Bind {
        /// The address to listen on.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The certificate or key cannot be used.
    #[error(transparent)]
    Certificate(#[from] ServingCertificateError),
}

/// A bound listener without TLS that does not serve yet.
pub struct PlainListener {
    socket: TcpListener,
    bounds: Bounds,
    gate: Arc<Gate>,
    handle: Handle<SocketAddr>,
}

/// A bound TLS listener that does not serve yet.
pub struct TlsListener {
    plain: PlainListener,
    tls: RustlsConfig,
    files: TlsFiles,
    requirements: Requirements,
    metrics: Metrics,
}

impl PlainListener {
    /// Binds the address.
    ///
    /// # Errors
    /// [`ListenError::Bind`].
    pub fn bind(
        address: SocketAddr,
        bounds: Bounds,
        metrics: Metrics,
    ) -> Result<Self, ListenError> {
        let room = ConnectionLimits {
            connections: bounds.connections,
            handshakes: bounds.handshakes,
            per_source: bounds.per_source,
        };
        Self::with_room(address, bounds, room, metrics)
    }

    fn with_room(
        address: SocketAddr,
        bounds: Bounds,
        room: ConnectionLimits,
        metrics: Metrics,
    ) -> Result<Self, ListenError> {
        let wrong = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).map_err(wrong)?;
        socket.set_nonblocking(true).map_err(wrong)?;
        Ok(Self {
            socket,
            bounds,
            gate: Gate::new(bounds.name, room, metrics),
            handle: Handle::new(),
        })
    }

    /// Serves these routes until the process ends.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn serve(self, routes: Router) -> std::io::Result<()> {
        self.serve_through(NoDelayAcceptor::new(), routes).await
    }

    async fn serve_through<A>(self, handshake: A, routes: Router) -> std::io::Result<()>
    where
        A: Accept<
                TcpStream,
                Router,
                Service = Router,
                Future: Send,
                Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
            > + Clone
            + Send
            + Sync
            + 'static,
    {
        let Self {
            socket,
            bounds,
            gate,
            handle,
        } = self;
        let acceptor = BoundedAcceptor::new(handshake, gate, bounds);
        let mut server = axum_server::from_tcp(socket)?
            .acceptor(acceptor)
            .handle(handle);
        let http = server.http_builder();
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.times.head)
            .max_buf_size(bounds.head as usize);
        let mut http2 = http.http2();
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(bounds.streams)
            .keep_alive_interval(bounds.times.head);
        http2
            .max_header_list_size(bounds.head)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        server.serve(Shared::new(routes)).await
    }
}

impl TlsListener {
    /// Binds the address and reads the serving certificate. If `host` is known, the certificate
    /// must be valid for it.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(
        listener: &Listener,
        bounds: Bounds,
        host: Option<&str>,
        metrics: Metrics,
    ) -> Result<Self, ListenError> {
        let certificate = read(listener, bounds, host)?;
        let room = ConnectionLimits {
            connections: bounds.connections,
            handshakes: bounds.handshakes,
            per_source: listener.connections_per_address,
        };
        let plain = PlainListener::with_room(listener.address, bounds, room, metrics.clone())?;
        metrics.serving_certificate(bounds.name, certificate.not_after.as_second());
        let (tls, files, requirements) = (
            RustlsConfig::from_config(certificate.config),
            listener.tls.clone(),
            requirements(bounds, host),
        );
        Ok(Self {
            plain,
            tls,
            files,
            requirements,
            metrics,
        })
    }

    /// Clones the listener: the same socket with its own shutdown handle. A temporary service
    /// answers on it until the real one can.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        let PlainListener {
            socket,
            bounds,
            gate,
            ..
        } = &self.plain;
        let plain = PlainListener {
            socket: socket.try_clone()?,
            bounds: *bounds,
            gate: Arc::clone(gate),
            handle: Handle::new(),
        };
        let (tls, files, requirements) = (
            self.tls.clone(),
            self.files.clone(),
            self.requirements.clone(),
        );
        Ok(Self {
            plain,
            tls,
            files,
            requirements,
            metrics: self.metrics.clone(),
        })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.plain.socket.local_addr()
    }

    /// The handle that shuts the listener down.
    pub fn handle(&self) -> Handle<SocketAddr> {
        self.plain.handle.clone()
    }

    /// Serves these routes until the handle shuts it down. The certificate files are
    /// checked for changes every 30 seconds and on each reload signal.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn serve(self, routes: Router, reload_signal: ReloadSignal) -> std::io::Result<()> {
        let Self {
            plain,
            tls,
            files,
            requirements,
            metrics,
        } = self;
        let reload = Reload {
            listener: plain.bounds.name,
            files,
            requirements,
            tls: tls.clone(),
            metrics,
        };
        let reload = tokio::spawn(reload.follow(reload_signal));
        let handshake = RustlsAcceptor::new(tls)
            .handshake_timeout(plain.bounds.times.handshake)
            .acceptor(NoDelayAcceptor::new());
        let outcome = plain.serve_through(handshake, routes).await;
        reload.abort();
        outcome
    }
}

fn requirements(bounds: Bounds, host: Option<&str>) -> Requirements {
    Requirements {
        host: host.map(str::to_owned),
        versions: bounds.versions,
    }
}

/// Checks the serving certificate of a listener, without opening it.
///
/// # Errors
/// The certificate cannot be used.
pub fn check_certificate(
    listener: &Listener,
    bounds: Bounds,
    host: Option<&str>,
) -> Result<(), ServingCertificateError> {
    read(listener, bounds, host).map(|_| ())
}

fn read(
    listener: &Listener,
    bounds: Bounds,
    host: Option<&str>,
) -> Result<ServingCertificate, ServingCertificateError> {
    ServingCertificate::of(
        &Files::read(&listener.tls)?,
        &listener.tls,
        &requirements(bounds, host),
        now(),
    )
}

fn now() -> Timestamp {
    SystemClock::start().now().wall
}

/// Reloads the certificate of one listener when its files change. If the new certificate is
/// invalid, the old one stays active.
struct Reload {
    listener: &'static str,
    files: TlsFiles,
    requirements: Requirements,
    tls: RustlsConfig,
    metrics: Metrics,
}

impl Reload {
    async fn follow(self, mut reload_signal: ReloadSignal) {
        let mut last = Files::read(&self.files).ok();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CERTIFICATE_INTERVAL) => {}
                () = reload_signal.ordered() => {}
            }
            let Ok(read) = Files::read(&self.files) else {
                continue;
            };
            if last.as_ref() == Some(&read) {
                continue;
            }
            let checked = ServingCertificate::of(&read, &self.files, &self.requirements, now());
            self.metrics
                .serving_certificate_reloaded(self.listener, checked.is_ok());
            match checked {
                Ok(certificate) => {
                    self.tls.reload_from_config(certificate.config);
                    self.metrics
                        .serving_certificate(self.listener, certificate.not_after.as_second());
                    tracing::info!(certificate = %self.files.certificate.display(), "the serving certificate was reloaded");
                }
                Err(error) => tracing::error!(
                    reason = %Reason::ServingCertificateInvalid, listener = self.listener, %error,
                    "the changed serving certificate cannot be used; the old one stays"
                ),
            }
            last = Some(read);
        }
    }
}

#[cfg(test)]
mod tests;
