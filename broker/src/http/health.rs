//! Health and metrics, on a plain listener that is not meant to be reached from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::live::LiveObjects;
use crate::metrics::Metrics;
use crate::publication::PublicationReader;

/// What readiness looks at.
#[derive(Clone)]
pub struct HealthParts {
    /// Set once the token API may answer.
    pub serving: Arc<AtomicBool>,
    /// Set at shutdown.
    pub stopping: Arc<AtomicBool>,
    /// The published documents.
    pub published: PublicationReader,
    /// The watches.
    pub live: Arc<LiveObjects>,
    /// Metrics.
    pub metrics: Metrics,
}

/// `/livez`, `/readyz` and `/metrics`.
pub fn routes(parts: HealthParts) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(parts)
}

/// The process runs. It has nothing to do with the hub: a restart would only lose what is held.
async fn live() -> &'static str {
    "ok\n"
}

async fn ready(State(parts): State<HealthParts>) -> (StatusCode, &'static str) {
    if parts.stopping.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving: stopping\n")
    } else if parts.published.is_cut_off() && parts.published.current().is_some() {
        // Targets need the documents most while the hub is away, whatever else has to wait for it.
        (
            StatusCode::OK,
            "ok: the hub is away, the documents are served\n",
        )
    } else if !parts.serving.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving yet\n")
    } else if parts.published.current().is_none() {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "no key set has been read from the hub yet\n",
        )
    } else if !parts.live.is_complete() {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the hub's ServiceAccounts and Namespaces have not been listed yet\n",
        )
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn metrics(State(parts): State<HealthParts>) -> impl IntoResponse {
    (
        [(
            header::CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        parts.metrics.exposition(),
    )
}
