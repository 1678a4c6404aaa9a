//! The token API's listener: which paths there are, and what no request can do to another.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::any;
use futures::FutureExt;

use super::{exchange, kubeconfig, refusal};
use crate::broker::Broker;
use keyferry_core::reason::Reason;

/// The routes of the API listener.
pub fn routes(broker: Arc<Broker>) -> Router {
    Router::new()
        .route("/v1/token", any(|broker, request| contained(exchange::answer(broker, request))))
        .route(
            "/v1/namespaces/{namespace}/accesses/{name}/kubeconfig",
            any(|broker, path, request| contained(kubeconfig::answer(broker, path, request))),
        )
        .fallback(not_found)
        .with_state(broker)
}

/// What the API listener answers before it is known who calls: a caller that waited for it would wait for the hub.
pub fn closed() -> Router {
    Router::new().fallback(async || refusal::answer(&Reason::HubUnreachable.into(), refusal::Surface::Exchange, ""))
}

/// Lets a panic end one request and nothing else. A layer around the router would do the same, with an allocation for each request; an
/// async function would keep the answer's state twice.
fn contained(answer: impl Future<Output = Response<Body>>) -> impl Future<Output = Response<Body>> {
    AssertUnwindSafe(answer).catch_unwind().map(|outcome| outcome.unwrap_or_else(|_| panicked()))
}

async fn not_found(_: Request) -> Response<Body> {
    refusal::malformed(StatusCode::NOT_FOUND, "not_found", "there is no such path", "")
}

/// A panic's message may hold anything, so it goes nowhere.
fn panicked() -> Response<Body> {
    tracing::error!("a request handler panicked");
    refusal::malformed(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the request could not be handled", "")
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::contained;

    #[tokio::test]
    async fn a_panic_ends_one_request() {
        assert_eq!(contained(async { panic!("on purpose") }).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
