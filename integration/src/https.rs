//! An HTTPS server in the test process, whose handlers can cut the connection of a request.

use std::future::{Ready, ready};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use axum::middleware::AddExtension;
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::accept::Accept;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use tokio::net::TcpStream;
use tower::Layer;

use crate::pki::CertifiedKey;
use crate::ports::bound_listener;

/// A running server on its own port. Dropping it ends it, and also its open connections.
#[derive(Debug)]
pub struct HttpsServer {
    address: SocketAddr,
    handle: Handle<SocketAddr>,
}

impl HttpsServer {
    /// Serves the routes over HTTP/1.1 and HTTP/2. Handlers can ask for `Extension<Connection>`.
    pub async fn start(certificate: &CertifiedKey, routes: Router) -> io::Result<Self> {
        let tls = RustlsConfig::from_pem(
            certificate.cert_pem.clone().into_bytes(),
            certificate.key_pem.clone().into_bytes(),
        )
        .await?;
        let listener = bound_listener()?;
        let address = listener.local_addr()?;
        let handle = Handle::new();
        let server = axum_server::from_tcp(listener)?
            .handle(handle.clone())
            .acceptor(RustlsAcceptor::new(tls).acceptor(ConnectionAcceptor));
        tokio::spawn(server.serve(routes.into_make_service()));
        Ok(Self { address, handle })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

/// The TCP connection below a request.
#[derive(Debug, Clone)]
pub struct Connection(Arc<std::net::TcpStream>);

impl Connection {
    /// Ends it in both directions at once. The peer sees it break, without a response and without a
    /// TLS close_notify.
    pub fn cut(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// A reference for cutting it later that does not keep it open.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0))
    }
}

/// A reference to a connection that does not keep it open, from [`Connection::downgrade`].
#[derive(Debug, Clone)]
pub struct WeakConnection(Weak<std::net::TcpStream>);

impl WeakConnection {
    /// The connection, if it still exists.
    pub fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection)
    }

    /// Whether this refers to the given connection.
    pub fn is_of(&self, connection: &Connection) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&connection.0))
    }
}

/// Passes a second handle of the socket to the handlers.
#[derive(Debug, Clone, Copy)]
struct ConnectionAcceptor;

impl<S> Accept<TcpStream, S> for ConnectionAcceptor {
    type Stream = TcpStream;
    type Service = AddExtension<S, Connection>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let second = stream
            .set_nodelay(true)
            .and_then(|()| stream.as_fd().try_clone_to_owned());
        ready(second.map(|socket| {
            let connection = Connection(Arc::new(std::net::TcpStream::from(socket)));
            (stream, Extension(connection).layer(service))
        }))
    }
}
