//! An empty handler behind Keyferry's own TLS listener, as a separate process. It shows the cost
//! that remains without any work on a request.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::routing::any;
use keyferry_api::config::{Listener, TlsFiles, TlsSource, TlsVersion};
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_server::http::listener::{self, Bounds, CertificateAccess};
use serde::{Deserialize, Serialize};

use super::process;
use crate::Outcome;

/// The argument that makes this binary run the empty server.
pub const SERVE: &str = "--serve-empty";

/// The settings of the empty server.
#[derive(Deserialize, Serialize)]
pub struct Order {
    /// The file of its certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    /// The length of the body in bytes.
    pub bytes: usize,
}

/// Reads an [`Order`] from standard input, prints its address, and serves until it is killed.
pub fn main() -> Outcome<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let order: Order = serde_json::from_str(&text)?;
    // The same runtime as `keyferry serve`.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tls = TlsSource::Files(TlsFiles {
            certificate: order.certificate,
            key: order.key,
        });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener {
            address,
            tls,
            min_version: TlsVersion::default(),
            connections_per_address: None,
        };
        let listener = listener::bind_listener(
            &listener,
            Bounds::DOCUMENTS,
            None,
            &CertificateAccess::default(),
            &Metrics::default(),
        )
        .await?;
        process::say(&format!("{}\n", listener.address()?))?;
        let answer = Bytes::from(vec![b'x'; order.bytes]);
        let handler = any(async move || Response::new(Body::from(answer.clone())));
        listener
            .serve(
                Router::new().route("/openid/v1/jwks", handler),
                ReloadSignal::never().into_stream(),
            )
            .await?;
        Ok(())
    })
}
