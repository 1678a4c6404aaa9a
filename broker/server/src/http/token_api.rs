//! The token API's listener: its routes, and the isolation of each request from the others.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use futures::FutureExt;
use keyferry_api::reason::Reason;
use keyferry_listener::Bodies;

use super::api_route::{OpenParts, open_routes, public_routes};
use super::health::HealthParts;
use super::metadata::Metadata;
use super::refusal;
use crate::broker::Broker;
use crate::inputs::Inputs;

/// The dependencies of the API listener's routes.
pub struct ApiParts {
    /// Decides on token requests, and limits unknown callers.
    pub broker: Arc<Broker>,
    /// Off where all clients come from one address.
    pub counts_sources: bool,
    /// Fleet inputs, if they are enabled.
    pub inputs: Option<Arc<Inputs>>,
    /// What the public routes answer.
    pub public: PublicParts,
}

/// What the public routes answer.
#[derive(Clone)]
pub struct PublicParts {
    /// The state that the health routes report.
    pub health: HealthParts,
    /// The metadata of the token endpoint, if the listener's own origin is configured.
    pub metadata: Option<Metadata>,
    /// Whether fleet inputs are enabled.
    pub has_inputs: bool,
}

/// The routes of the API listener.
pub fn token_api_routes(parts: ApiParts) -> Router {
    let public = public_routes(&parts.public);
    let open = OpenParts {
        broker: parts.broker,
        bodies: Bodies::new(parts.counts_sources),
        inputs: parts.inputs,
    };
    open_routes(&open).merge(public).fallback(not_found)
}

/// Answers on the API listener before callers can be identified. It refuses at once, because a
/// caller that had to wait would wait for the hub. The public routes answer.
pub fn closed_routes(parts: &PublicParts) -> Router {
    public_routes(parts).fallback(async || {
        refusal::refusal_response(
            &Reason::HubUnreachable.into(),
            refusal::Surface::Exchange,
            None,
        )
    })
}

/// Limits a panic to the request that caused it.
pub(super) fn contain_panic(
    answer: impl Future<Output = Response<Body>>,
) -> impl Future<Output = Response<Body>> {
    AssertUnwindSafe(answer)
        .catch_unwind()
        .map(|outcome| outcome.unwrap_or_else(|_| panic_response()))
}

async fn not_found() -> Response<Body> {
    refusal::malformed_response(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is no such path",
        None,
    )
}

/// A panic message may contain secrets, so it is neither logged nor sent.
fn panic_response() -> Response<Body> {
    tracing::error!("a request handler panicked");
    refusal::malformed_response(
        StatusCode::INTERNAL_SERVER_ERROR,
        "server_error",
        "the request could not be handled",
        None,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::extract::{Request, State};
    use axum::http::StatusCode;
    use keyferry_listener::Bodies;

    use super::contain_panic;
    use crate::broker::Broker;
    use crate::http::exchange;

    /// The memory limit of requests counts this future with each HTTP/2 stream.
    #[test]
    fn an_exchange_under_way_is_small() {
        fn size<F>(_: impl FnOnce(Arc<Bodies>, State<Arc<Broker>>, Request) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(|bodies, broker, request| {
            contain_panic(exchange::answer_exchange(bodies, broker, request))
        });
        assert!(
            bytes <= exchange::STREAM_KIB as usize * 1024,
            "{bytes} bytes"
        );
    }

    #[tokio::test]
    async fn a_panic_ends_one_request() {
        assert_eq!(
            contain_panic(async { panic!("on purpose") }).await.status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}
