//! The token API's listener: which paths there are, and what no request can do to another.

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

/// What answers on the API listener. Where all clients come from one address, `counts_sources` is
/// off.
///
/// An exchange goes past the router, which would box its body and its future.
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

/// What the API listener answers before it is known who calls: a caller that waited for it would
/// wait for the hub.
pub fn closed() -> Router {
    Router::new().fallback(async || {
        refusal::answer(
            &Reason::HubUnreachable.into(),
            refusal::Surface::Exchange,
            "",
        )
    })
}

/// Lets a panic end one request and nothing else. A layer around the router would do the same, with
/// an allocation for each request; an async function would keep the answer's state twice.
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
        "",
    )
}

/// A panic's message may hold anything, so it goes nowhere.
fn panicked() -> Response<Body> {
    tracing::error!("a request handler panicked");
    refusal::malformed(
        StatusCode::INTERNAL_SERVER_ERROR,
        "server_error",
        "the request could not be handled",
        "",
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

    /// hyper keeps room for it on each connection, also between requests.
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
