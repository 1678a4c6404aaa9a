//! The token API's listener: its routes, and the isolation of each request from the others.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use axum::routing::any;
use futures::FutureExt;
use futures::future::Either;
use hyper::body::Incoming;
use keyferry_core::reason::Reason;
use tower::{ServiceExt, service_fn};

use super::bodies::Bodies;
use super::listener::HttpService;
use super::{exchange, kubeconfig, refusal};
use crate::broker::Broker;

const EXCHANGE_PATH: &str = "/v1/token";

/// The service of the API listener. `counts_sources` is off where all clients come from one
/// address.
///
/// An exchange bypasses the router, which would box its body and its future.
pub fn service(broker: Arc<Broker>, counts_sources: bool) -> impl HttpService<Incoming> {
    let bodies = Bodies::new(counts_sources);
    let routes = Router::new()
        .route(EXCHANGE_PATH, any(async || refusal::not_allowed("POST")))
        .route(
            "/v1/namespaces/{namespace}/accesses/{name}/kubeconfig",
            any(|broker, path, request| contained(kubeconfig::answer(broker, path, request))),
        )
        .fallback(not_found)
        .with_state(Arc::clone(&broker));
    service_fn(
        move |request: Request<Incoming>| match (request.method(), request.uri().path()) {
            (&Method::POST, EXCHANGE_PATH) => Either::Left(
                contained(exchange::answer(
                    Arc::clone(&bodies),
                    Arc::clone(&broker),
                    request,
                ))
                .map(Ok),
            ),
            _ => Either::Right(routes.clone().oneshot(request)),
        },
    )
}

/// ConnectionRequests on the API listener before callers can be identified. It refuses at once, because a
/// caller that had to wait would wait for the hub.
pub fn closed() -> Router {
    Router::new().fallback(async || {
        refusal::answer(
            &Reason::HubUnreachable.into(),
            refusal::Surface::Exchange,
            None,
        )
    })
}

/// Limits a panic to the request that caused it. A layer around the router would do the same at the
/// cost of one allocation per request. An async function would store the response future's state
/// twice.
fn contained(answer: impl Future<Output = Response<Body>>) -> impl Future<Output = Response<Body>> {
    AssertUnwindSafe(answer)
        .catch_unwind()
        .map(|outcome| outcome.unwrap_or_else(|_| panicked()))
}

async fn not_found() -> Response<Body> {
    refusal::malformed(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is no such path",
        None,
    )
}

/// A panic message may contain secrets, so it is neither logged nor sent.
fn panicked() -> Response<Body> {
    tracing::error!("a request handler panicked");
    refusal::malformed(
        StatusCode::INTERNAL_SERVER_ERROR,
        "server_error",
        "the request could not be handled",
        None,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::{Request, StatusCode};
    use hyper::body::Incoming;

    use super::contained;
    use crate::broker::Broker;
    use crate::http::bodies::Bodies;
    use crate::http::exchange;

    /// hyper reserves space for this future on each connection, also between requests.
    #[test]
    fn an_exchange_under_way_is_small() {
        fn size<F>(_: impl FnOnce(Arc<Bodies>, Arc<Broker>, Request<Incoming>) -> F) -> usize {
            size_of::<F>()
        }
        let bytes =
            size(|bodies, broker, request| contained(exchange::answer(bodies, broker, request)));
        assert!(bytes <= 4096, "{bytes} bytes");
    }

    #[tokio::test]
    async fn a_panic_ends_one_request() {
        assert_eq!(
            contained(async { panic!("on purpose") }).await.status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}
