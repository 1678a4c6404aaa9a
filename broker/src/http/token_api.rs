//! The token API's listener: which paths there are, and what every request must fit into.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::any;
use futures::FutureExt;

use super::{exchange, kubeconfig, refusal};
use crate::broker::Broker;
use keyferry_core::reason::Reason;

/// How long one request may take, its body included.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// The routes of the API listener.
pub fn routes(broker: Arc<Broker>) -> Router {
    Router::new()
        .route("/v1/token", any(|broker, request| bounded(exchange::answer(broker, request))))
        .route(
            "/v1/namespaces/{namespace}/accesses/{name}/kubeconfig",
            any(|broker, path, request| bounded(kubeconfig::answer(broker, path, request))),
        )
        .fallback(not_found)
        .with_state(broker)
}

/// What the API listener answers before it is known who calls: a caller that waited for it would wait for the hub.
pub fn closed() -> Router {
    Router::new().fallback(async || refusal::answer(&Reason::HubUnreachable.into(), refusal::Surface::Exchange, ""))
}

/// Lets an answer take its time and no longer, and a panic end one request and nothing else. Layers around the router would do the same,
/// with an allocation for each of them and each request; an async function would keep the answer's state twice.
fn bounded(answer: impl Future<Output = Response<Body>>) -> impl Future<Output = Response<Body>> {
    tokio::time::timeout(REQUEST_DEADLINE, AssertUnwindSafe(answer).catch_unwind()).map(|outcome| match outcome {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => panicked(),
        Err(_) => too_late(),
    })
}

fn too_late() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
    response
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
    use axum::body::Body;
    use axum::http::{Response, StatusCode};

    use super::{REQUEST_DEADLINE, bounded};

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_its_time_and_no_more() {
        let after = async |wait| {
            tokio::time::sleep(wait).await;
            Response::new(Body::empty())
        };
        assert_eq!(bounded(after(REQUEST_DEADLINE / 2)).await.status(), StatusCode::OK);
        assert_eq!(bounded(after(REQUEST_DEADLINE * 2)).await.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn a_panic_ends_one_request() {
        assert_eq!(bounded(async { panic!("on purpose") }).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
