//! Health, and metrics without a listener of their own, on a plain listener that must not be
//! reachable from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use keyferry_hub::live::LiveObjects;
use keyferry_issuer::publication::PublicationReader;
use keyferry_platform::metrics::Metrics;

use super::metrics::exposition_response;

/// The state that the health routes report.
#[derive(Clone)]
pub struct HealthParts {
    /// Set once the token API is ready to serve.
    pub serving: Arc<AtomicBool>,
    /// Set at shutdown.
    pub stopping: Arc<AtomicBool>,
    /// The published documents.
    pub published: PublicationReader,
    /// The watched hub objects.
    pub live: Arc<LiveObjects>,
    /// The metrics to expose. None: they have a listener of their own.
    pub metrics: Option<Metrics>,
}

/// Builds the routes `/livez`, `/readyz` and, if there are metrics to expose, `/metrics`.
pub fn health_routes(parts: HealthParts) -> Router {
    let mut routes = Router::new()
        .route("/livez", get(answer_live))
        .route("/readyz", get(answer_ready));
    if let Some(metrics) = parts.metrics.clone() {
        routes = routes.route("/metrics", get(async move || exposition_response(&metrics)));
    }
    routes.with_state(parts)
}

/// Reports that the process runs. It does not depend on the hub: a restart would only lose cached
/// state.
async fn answer_live() -> &'static str {
    "ok\n"
}

async fn answer_ready(State(parts): State<HealthParts>) -> (StatusCode, &'static str) {
    readiness_response(&parts)
}

impl HealthParts {
    /// Whether clients should send requests here.
    pub(super) fn is_ready(&self) -> bool {
        readiness_response(self).0 == StatusCode::OK
    }
}

fn readiness_response(parts: &HealthParts) -> (StatusCode, &'static str) {
    if parts.stopping.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving: stopping\n")
    } else if parts.published.is_cut_off() && parts.published.current().is_some() {
        // Targets need the documents most while the hub does not answer, even if other parts are
        // not ready.
        (
            StatusCode::OK,
            "ok: the hub does not answer, the documents are served\n",
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
