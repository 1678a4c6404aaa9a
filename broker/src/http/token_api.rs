//! The token API's listener: which paths there are, and what every request must fit into.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::any;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use super::{exchange, kubeconfig, refusal};
use crate::broker::Broker;
use keyferry_core::reason::Reason;

/// How long one request may take, its body included.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// The routes of the API listener.
pub fn routes(broker: Arc<Broker>) -> Router {
    Router::new()
        .route("/v1/token", any(exchange::answer))
        .route("/v1/namespaces/{namespace}/accesses/{name}/kubeconfig", any(kubeconfig::answer))
        .fallback(not_found)
        .with_state(broker)
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_DEADLINE))
        .layer(CatchPanicLayer::custom(panicked))
}

/// What the API listener answers before it is known who calls: a caller that waited for it would wait for the hub.
pub fn closed() -> Router {
    Router::new().fallback(async || refusal::answer(&Reason::HubUnreachable.into(), refusal::Surface::Exchange, ""))
}

async fn not_found(_: Request) -> Response<Body> {
    refusal::malformed(StatusCode::NOT_FOUND, "not_found", "there is no such path", "")
}

/// A panic's message may hold anything, so it goes nowhere.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response<Body> {
    tracing::error!("a request handler panicked");
    refusal::malformed(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the request could not be handled", "")
}
