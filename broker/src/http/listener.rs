//! A TLS listener with limits on everything a client can hold open, and a certificate that is read again when it changes.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;
use keyferry_core::config::{Listener, TlsFiles};

use super::connection::BoundedAcceptor;
use crate::read_again::ReadAgain;

/// How long a client may take over its request's head, and how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(30);
/// The most bytes of a request's head: a token and what a client says beside it.
const HEADER_BYTES: usize = 32 * 1024;
/// The same under HTTP/2.
const HEADER_LIST_BYTES: u32 = 32 * 1024;
/// HTTP/2 streams that one connection may have open.
const STREAMS: u32 = 100;
/// How often the certificate's files are looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
/// How long accepted requests get to finish at shutdown.
pub const DRAIN: Duration = Duration::from_secs(20);

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

/// A bound TLS listener that does not answer yet.
pub struct TlsListener {
    socket: TcpListener,
    tls: RustlsConfig,
    files: TlsFiles,
    handle: Handle<SocketAddr>,
}

impl TlsListener {
    /// Binds the address and reads the certificate.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn bind(listener: &Listener) -> Result<TlsListener, ListenError> {
        let wrong = |source| ListenError::Bind { address: listener.address, source };
        let socket = TcpListener::bind(listener.address).map_err(wrong)?;
        socket.set_nonblocking(true).map_err(wrong)?;
        let tls = RustlsConfig::from_pem_file(&listener.tls.certificate, &listener.tls.key).await;
        let tls = tls.map_err(|_| ListenError::Certificate { certificate: listener.tls.certificate.clone() })?;
        Ok(TlsListener { socket, tls, files: listener.tls.clone(), handle: Handle::new() })
    }

    /// The same socket once more, with an end of its own: for what answers until the real thing can.
    ///
    /// # Errors
    /// What the system says.
    pub fn try_clone(&self) -> std::io::Result<TlsListener> {
        let (socket, tls, files) = (self.socket.try_clone()?, self.tls.clone(), self.files.clone());
        Ok(TlsListener { socket, tls, files, handle: Handle::new() })
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

    /// Answers by `routes` until the handle ends it. The certificate is looked at every half minute and when ordered.
    ///
    /// # Errors
    /// What the system says.
    pub async fn serve(self, routes: Router, read_again: ReadAgain) -> std::io::Result<()> {
        let reload = tokio::spawn(reload(self.files, self.tls.clone(), read_again));
        // An answer must not wait until the client has acknowledged the session tickets before it: 40 ms on each new connection.
        let tls = RustlsAcceptor::new(self.tls).acceptor(NoDelayAcceptor::new());
        let mut server = axum_server::from_tcp(self.socket)?.acceptor(BoundedAcceptor::new(tls)).handle(self.handle);
        let http = server.http_builder();
        http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE).max_buf_size(HEADER_BYTES);
        let mut http2 = http.http2();
        http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS).keep_alive_interval(HEADER_DEADLINE);
        http2.max_header_list_size(HEADER_LIST_BYTES);
        let outcome = server.serve(routes.into_make_service()).await;
        reload.abort();
        outcome
    }
}

/// A bad new certificate leaves the old one serving.
async fn reload(files: TlsFiles, tls: RustlsConfig, mut read_again: ReadAgain) {
    let read = async || Some((tokio::fs::read(&files.certificate).await.ok()?, tokio::fs::read(&files.key).await.ok()?));
    let mut last = read().await;
    loop {
        tokio::select! {
            () = tokio::time::sleep(CERTIFICATE_INTERVAL) => {}
            () = read_again.ordered() => {}
        }
        let now = read().await;
        if now.is_none() || now == last {
            continue;
        }
        match tls.reload_from_pem_file(&files.certificate, &files.key).await {
            Ok(()) => tracing::info!(certificate = %files.certificate.display(), "the serving certificate was read again"),
            Err(_) => {
                tracing::error!(certificate = %files.certificate.display(), "the changed serving certificate cannot be used; the old one stays")
            }
        }
        last = now;
    }
}
