//! Listeners that clients cannot exhaust: limits on connections, handshakes, time and memory, strict
//! framing, TLS, and serving certificates that are reloaded when they change.
//!
//! A listener serves the routes that it is given, and knows no more of them. What it needs of its
//! surroundings is passed in: [`CertificateSource`] reads a certificate, and [`ListenerMetrics`]
//! counts.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use keyferry_listener::{Bounds, ListenError, ListenerMetrics, PlainListener};
//! # async fn serve(metrics: Arc<dyn ListenerMetrics>) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = PlainListener::bind(([127, 0, 0, 1], 8080).into(), Bounds::HEALTH, metrics)?;
//! let routes = axum::Router::new().route("/livez", axum::routing::get(async || "ok\n"));
//! listener.serve(routes).await?;
//! # Ok(())
//! # }
//! ```

mod acceptor;
mod bodies;
mod certificate_reload;
mod certificate_source;
mod client_certificate;
mod connection;
mod connection_requests;
mod descriptors;
mod discovery_authority;
mod framing;
mod gate;
mod listener;
mod local_service;
mod metrics;
mod plain_text;
mod rate;
mod serving_certificate;
mod shares;
mod source;

pub use self::bodies::{Bodies, Full, Share};
pub use self::certificate_source::{
    CertificateContent, CertificateRead, CertificateSource, ReadSecret, ServingCertificateError,
};
pub use self::client_certificate::ClientCertificates;
pub use self::descriptors::raise_limit as raise_descriptor_limit;
pub use self::discovery_authority::DiscoveryAuthorityMismatch;
pub use self::listener::{
    Bounds, DRAIN_TIMEOUT, ListenError, PlainListener, TlsListener, check_certificate,
};
pub use self::local_service::LocalService;
pub use self::metrics::ListenerMetrics;
pub use self::plain_text::plain_text;
pub use self::rate::Rates;
pub use self::source::Source;
