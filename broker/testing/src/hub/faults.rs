//! Misbehaviour on demand, per route.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::stream;

use super::oidc::{DISCOVERY_PATH, JWKS_PATH};
use super::state::HubState;
use crate::locked;
use crate::server::CutConnection;
use crate::status::ApiError;

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// POST `…/serviceaccounts/{name}/token`.
    TokenRequest,
    /// POST `…/tokenreviews`.
    TokenReview,
    /// POST `…/subjectaccessreviews` and `…/selfsubjectaccessreviews`.
    AccessReview,
    /// GET `/.well-known/openid-configuration`.
    Discovery,
    /// GET `/openid/v1/jwks`.
    Jwks,
    /// Everything else: lists, watches, single objects, `/version`.
    Objects,
}

/// The fault of a route's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault: the request is served.
    #[default]
    None,
    /// The request is served after a delay (of real time).
    Delay(Duration),
    /// The answer is a `Status` of this code; `retry_after` in whole seconds.
    Status {
        /// HTTP status code.
        code: u16,
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The request is served, and the body is sent at one byte a second.
    ByteASecond,
    /// The answer is `200 OK` with these bytes.
    Garbage {
        /// The body.
        body: Vec<u8>,
        /// Its `Content-Type`.
        content_type: String,
    },
    /// TokenRequest only: the token is for another ServiceAccount.
    WrongServiceAccount,
    /// TokenRequest only: the token has another audience.
    WrongAudience,
    /// TokenRequest only: the token expires after 60 s, while the answer states the requested time.
    ShortLife,
    /// The request is served, and the body is padded with spaces (which JSON ignores) to this many
    /// bytes.
    Oversize(usize),
    /// The connection is closed without an answer.
    CloseConnection,
}

impl Route {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TokenRequest,
        Self::TokenReview,
        Self::AccessReview,
        Self::Discovery,
        Self::Jwks,
        Self::Objects,
    ];

    fn of(method: &Method, path: &str) -> Self {
        let posted = method == Method::POST;
        match path {
            DISCOVERY_PATH => Self::Discovery,
            JWKS_PATH => Self::Jwks,
            _ if posted && path.ends_with("/token") => Self::TokenRequest,
            _ if posted && path.ends_with("/tokenreviews") => Self::TokenReview,
            _ if posted && path.ends_with("subjectaccessreviews") => Self::AccessReview,
            _ => Self::Objects,
        }
    }
}

/// The active faults and the request counts.
#[derive(Default)]
pub(super) struct Faults {
    set: Mutex<BTreeMap<Route, (Fault, Option<u32>)>>,
    counts: Mutex<BTreeMap<Route, u64>>,
}

impl Faults {
    pub(super) fn set(&self, route: Route, fault: Fault) {
        locked(&self.set).insert(route, (fault, None));
    }

    pub(super) fn set_for(&self, route: Route, fault: Fault, times: u32) {
        locked(&self.set).insert(route, (fault, Some(times)));
    }

    pub(super) fn clear(&self) {
        locked(&self.set).clear();
    }

    pub(super) fn count(&self, route: Route) -> u64 {
        locked(&self.counts).get(&route).copied().unwrap_or(0)
    }

    fn arrived(&self, route: Route) -> Fault {
        *locked(&self.counts).entry(route).or_default() += 1;
        match locked(&self.set).get_mut(&route) {
            None | Some((_, Some(0))) => Fault::None,
            Some((fault, left)) => {
                *left = left.map(|left| left - 1);
                fault.clone()
            }
        }
    }
}

/// Middleware: counts the request and applies the fault of its route. A fault for TokenRequest
/// alone is passed to its handler as a request extension.
pub(super) async fn apply(
    State(hub): State<Arc<HubState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = Route::of(request.method(), request.uri().path());
    match hub.faults.arrived(route) {
        Fault::None => next.run(request).await,
        Fault::Delay(wait) => {
            tokio::time::sleep(wait).await;
            next.run(request).await
        }
        Fault::Status { code, retry_after } => {
            ApiError::fault(code, retry_after.map(|wait| wait.as_secs())).into_response()
        }
        Fault::ByteASecond => slowly(next.run(request).await).await,
        Fault::Garbage { body, content_type } => garbage(body, &content_type),
        Fault::Oversize(bytes) => filled_up(next.run(request).await, bytes).await,
        Fault::CloseConnection => {
            let mut response = StatusCode::BAD_GATEWAY.into_response();
            response.extensions_mut().insert(CutConnection);
            response
        }
        fault @ (Fault::WrongServiceAccount | Fault::WrongAudience | Fault::ShortLife) => {
            request.extensions_mut().insert(fault);
            next.run(request).await
        }
    }
}

fn garbage(body: Vec<u8>, content_type: &str) -> Response {
    let mut response = Response::new(Body::from(body));
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
    }
    response
}

async fn slowly(response: Response) -> Response {
    replace_body(response, |bytes| {
        Body::from_stream(stream::unfold(bytes, |mut rest| async move {
            if rest.is_empty() {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let byte = rest.split_to(1);
            Some((Ok::<_, Infallible>(byte), rest))
        }))
    })
    .await
}

async fn filled_up(response: Response, size: usize) -> Response {
    replace_body(response, |bytes| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(size), b' ');
        Body::from(bytes)
    })
    .await
}

/// Changes the body of a complete answer; a watch never ends, so its body stays.
async fn replace_body(response: Response, change: impl FnOnce(Bytes) -> Body) -> Response {
    if response.body().size_hint().exact().is_none() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) => Response::from_parts(parts, change(bytes)),
        Err(_) => ApiError::internal().into_response(),
    }
}
