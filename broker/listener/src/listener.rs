//! The listeners: limits on everything that a client can keep open, and serving certificates that
//! are reloaded when they change.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::{Accept, NoDelayAcceptor};
use axum_server::tls_rustls::RustlsAcceptor;
use futures::Stream;
use hyper_util::rt::TokioTimer;
use keyferry_api::config::Listener;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::make::Shared;

use crate::acceptor::{BoundedAcceptor, ChainOf};
use crate::certificate_reload::CertificateReload;
use crate::certificate_source::{CertificateRead, CertificateSource, ServingCertificateError};
use crate::client_certificate::{self, ClientCertificates};
use crate::connection::Times;
use crate::discovery_authority::{self, DiscoveryAuthorityMismatch};
use crate::gate::{ConnectionLimits, Gate};
use crate::metrics::ListenerMetrics;
use crate::serving_certificate::{Requirements, ServingCertificate};

/// How many bytes a client may send over HTTP/2 before they are read. It is the protocol's default
/// and about as much as one form. Each waiting frame costs some hundred bytes beside its content.
const HTTP2_WINDOW_BYTES: u32 = 65_535;
/// How long accepted requests get to finish at shutdown.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

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
    pub(crate) each_address: bool,
    /// Bytes of a request head, or of a header list under HTTP/2.
    head: u32,
    /// Whether the service receives the source of each request.
    pub(crate) tells_source: bool,
    client_certificates: ClientCertificates,
    pub(crate) times: Times,
}

impl Bounds {
    /// For the token API, whose heads carry a token.
    pub const TOKENS: Self = Self {
        name: "api",
        connections: 4096,
        handshakes: 1024,
        streams: 32,
        per_source: None,
        each_address: true,
        head: 32 * 1024,
        tells_source: true,
        client_certificates: ClientCertificates::Ignored,
        times: Times::DEFAULT,
    };
    /// For the published documents, which are public. Heads are small, and all connections together
    /// cost some 80 MiB.
    pub const DOCUMENTS: Self = Self {
        name: "discovery",
        connections: 2048,
        handshakes: 1024,
        streams: 100,
        per_source: None,
        each_address: false,
        head: 8 * 1024,
        tells_source: false,
        client_certificates: ClientCertificates::Ignored,
        times: Times::DEFAULT,
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
        tells_source: false,
        client_certificates: ClientCertificates::Ignored,
        times: Times::DEFAULT,
    };
    /// For metrics on a listener of their own, which only scrapers reach.
    pub const METRICS: Self = Self {
        name: "metrics",
        tells_source: true,
        ..Self::HEALTH
    };
    /// For redirects to the published documents, over plain HTTP.
    pub const REDIRECTS: Self = Self {
        name: "discovery_http",
        connections: 512,
        handshakes: 256,
        streams: 100,
        per_source: NonZeroU32::new(32),
        each_address: false,
        head: 8 * 1024,
        tells_source: false,
        client_certificates: ClientCertificates::Ignored,
        times: Times::DEFAULT,
    };

    /// For a viewer on its reader's machine.
    pub(crate) const VIEWER: Self = Self {
        name: "viewer",
        connections: 32,
        handshakes: 32,
        streams: 8,
        per_source: None,
        each_address: true,
        head: 8 * 1024,
        tells_source: false,
        client_certificates: ClientCertificates::Ignored,
        times: Times::DEFAULT,
    };

    /// The same limits for a listener that asks its clients for certificates, or does not. Each
    /// connection with a certificate costs up to 16 KiB more.
    #[must_use]
    pub const fn with_client_certificates(self, client_certificates: ClientCertificates) -> Self {
        Self {
            client_certificates,
            ..self
        }
    }

    /// The file descriptors that the listener needs at full load.
    pub const fn needed_descriptors(&self) -> u32 {
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

/// A connection after the TLS handshake.
type TlsStream = <RustlsAcceptor<NoDelayAcceptor> as Accept<TcpStream, Router>>::Stream;

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
    certificate: CertificateReload,
}

impl PlainListener {
    /// Binds the address.
    ///
    /// # Errors
    /// [`ListenError::Bind`].
    pub fn bind(
        address: SocketAddr,
        bounds: Bounds,
        metrics: Arc<dyn ListenerMetrics>,
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
        metrics: Arc<dyn ListenerMetrics>,
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

    /// The address on which it listens.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The handle that shuts the listener down.
    pub fn handle(&self) -> Handle<SocketAddr> {
        self.handle.clone()
    }

    /// Serves these routes until the handle shuts it down.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn serve(self, routes: Router) -> std::io::Result<()> {
        self.serve_through(NoDelayAcceptor::new(), |_| None, routes)
            .await
    }

    async fn serve_through<A>(
        self,
        handshake: A,
        chain_of: ChainOf<A::Stream>,
        routes: Router,
    ) -> std::io::Result<()>
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
        let acceptor = BoundedAcceptor::new(handshake, chain_of, gate, bounds);
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
            .initial_stream_window_size(HTTP2_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_WINDOW_BYTES);
        server.serve(Shared::new(routes)).await
    }
}

impl TlsListener {
    /// Reads the serving certificate from `source` and binds the address. If `host` is known, the
    /// certificate must be valid for it.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn bind(
        listener: &Listener,
        bounds: Bounds,
        host: Option<&str>,
        source: Arc<dyn CertificateSource>,
        metrics: Arc<dyn ListenerMetrics>,
    ) -> Result<Self, ListenError> {
        let requirements = certificate_requirements(listener, host, bounds.client_certificates);
        let certificate =
            CertificateReload::start(bounds.name, source, requirements, Arc::clone(&metrics))
                .await?;
        let room = ConnectionLimits {
            connections: bounds.connections,
            handshakes: bounds.handshakes,
            per_source: listener.connections_per_address,
        };
        let plain = PlainListener::with_room(listener.address, bounds, room, metrics)?;
        Ok(Self { plain, certificate })
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
        Ok(Self {
            plain,
            certificate: self.certificate.clone(),
        })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.plain.address()
    }

    /// The handle that shuts the listener down.
    pub fn handle(&self) -> Handle<SocketAddr> {
        self.plain.handle()
    }

    /// `ca.crt` of the Secret that the certificate in use is from, or beside its file, as it was
    /// last read. Only if it verifies the certificate for the listener's host.
    pub fn authority(&self) -> watch::Receiver<Option<Vec<u8>>> {
        self.certificate.authority()
    }

    /// Serves these routes until the handle shuts it down. The certificate is reloaded when its
    /// source says that it may have changed, and on each item of `reload_signal`.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn serve(
        self,
        routes: Router,
        reload_signal: impl Stream<Item = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let Self { plain, certificate } = self;
        let handshake = RustlsAcceptor::new(certificate.tls())
            .handshake_timeout(plain.bounds.times.handshake)
            .acceptor(NoDelayAcceptor::new());
        let reload = tokio::spawn(certificate.run_reload(reload_signal));
        let chain_of = |stream: &TlsStream| client_certificate::peer_chain(stream.get_ref().1);
        let outcome = plain.serve_through(handshake, chain_of, routes).await;
        reload.abort();
        outcome
    }
}

fn certificate_requirements(
    listener: &Listener,
    host: Option<&str>,
    client_certificates: ClientCertificates,
) -> Requirements {
    Requirements {
        host: host.map(str::to_owned),
        min_version: listener.min_version,
        client_certificates,
    }
}

/// Checks the serving certificate of a listener, without opening it. Returns what is wrong with the
/// CA certificates beside it, if clients use a known host.
///
/// # Errors
/// The certificate cannot be used.
pub async fn check_certificate(
    listener: &Listener,
    host: Option<&str>,
    source: &dyn CertificateSource,
) -> Result<Option<DiscoveryAuthorityMismatch>, ServingCertificateError> {
    let CertificateRead {
        content, read_at, ..
    } = source.read_certificate().await;
    let content = content?;
    let requirements = certificate_requirements(listener, host, ClientCertificates::Ignored);
    ServingCertificate::load_checked(&content, &requirements, read_at)?;
    Ok(discovery_authority::verified_authority(&content, &requirements, read_at).err())
}

#[cfg(test)]
pub(crate) mod tests;
