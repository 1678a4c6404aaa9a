//! The TLS listener on loopback that hub and target share.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::response::Response;
use axum::{Router, ServiceExt as AxumServiceExt};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use tokio::task::JoinHandle;

use crate::pki::ServerIdentity;
use crate::{EmbeddedError, locked};

/// Response extension: close the connection instead of answering.
#[cfg(feature = "faults")]
#[derive(Clone, Copy)]
pub(crate) struct CutConnection;

/// A bound port that does not answer yet, so that its URL can become part of what it serves.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// A running server. Dropping it closes the port and every connection.
pub(crate) struct Running {
    handle: Handle<SocketAddr>,
    task: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
}

impl Bound {
    pub(crate) fn loopback() -> Result<Self, EmbeddedError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(EmbeddedError::Listen)?;
        listener
            .set_nonblocking(true)
            .map_err(EmbeddedError::Listen)?;
        let address = listener.local_addr().map_err(EmbeddedError::Listen)?;
        Ok(Self { listener, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn serve(
        self,
        identity: &ServerIdentity,
        router: Router,
    ) -> Result<Running, EmbeddedError> {
        let tls = RustlsConfig::from_config(Arc::new(identity.tls_config()?));
        let handle = Handle::new();
        let server = axum_server::from_tcp_rustls(self.listener, tls)
            .map_err(EmbeddedError::Listen)?
            .handle(handle.clone());
        // An error of the service makes hyper drop the connection, which no response can do.
        let service = tower::ServiceExt::<Request>::map_result(router, cut_if_marked);
        let make_service = AxumServiceExt::<Request>::into_make_service(service);
        let task = tokio::spawn(server.serve(make_service));
        Ok(Running {
            handle,
            task: Mutex::new(Some(task)),
        })
    }
}

/// The error of a service: tower needs a type that `Infallible` converts into.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn cut_if_marked(answer: Result<Response, Infallible>) -> Result<Response, Failure> {
    let response = answer?;
    #[cfg(feature = "faults")]
    if response.extensions().get::<CutConnection>().is_some() {
        return Err("connection cut by a fault".into());
    }
    Ok(response)
}

impl Running {
    /// Closes the port and every connection, and returns once the port is closed.
    pub(crate) async fn stop(&self) {
        self.handle.shutdown();
        let task = locked(&self.task).take();
        if let Some(task) = task {
            // The task returns the listener's result; after a shutdown there is none to report.
            let _ = task.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}
