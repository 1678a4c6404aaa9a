//! Misbehaviour on demand, per route. Only tests have it: the feature `faults` is never on in a
//! released program.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::stream;

use serde_json::Value;

use super::claims::{self, TokenSpec};
use super::policy::HubPolicy;
use super::routes::Route;
use crate::apiserver::listener::CutConnection;
use crate::locked;
use crate::status::ApiError;

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

/// The active faults.
#[derive(Default)]
pub(super) struct Faults {
    set: Mutex<BTreeMap<Route, (Fault, Option<u32>)>>,
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

    fn arrived(&self, route: Route) -> Fault {
        match locked(&self.set).get_mut(&route) {
            None | Some((_, Some(0))) => Fault::None,
            Some((fault, left)) => {
                *left = left.map(|left| left - 1);
                fault.clone()
            }
        }
    }
}

/// Middleware: applies the fault of the request's route.
pub(super) async fn apply(
    State(hub): State<Arc<HubPolicy>>,
    request: Request,
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
        Fault::WrongServiceAccount => {
            let other = |spec: &mut Minted| spec.name.push_str("-other");
            wrong_token(&hub, next.run(request).await, other).await
        }
        Fault::WrongAudience => {
            let other = |spec: &mut Minted| {
                spec.audiences = vec!["https://wrong-audience.example".to_owned()]
            };
            wrong_token(&hub, next.run(request).await, other).await
        }
        Fault::ShortLife => {
            wrong_token(&hub, next.run(request).await, |spec| spec.seconds = 60).await
        }
    }
}

/// What the answer of a TokenRequest says about its token.
struct Minted {
    namespace: String,
    name: String,
    uid: String,
    audiences: Vec<String>,
    seconds: i64,
}

impl Minted {
    fn read(answer: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let metadata = &answer["metadata"];
        Some(Self {
            namespace: text(&metadata["namespace"])?,
            name: text(&metadata["name"])?,
            uid: text(&metadata["uid"])?,
            audiences: answer["spec"]["audiences"]
                .as_array()?
                .iter()
                .filter_map(text)
                .collect(),
            seconds: answer["spec"]["expirationSeconds"].as_i64()?,
        })
    }
}

/// Replaces the token in the answer of a TokenRequest by another one that the hub signs. The rest
/// of the answer stays, as if nothing were wrong.
async fn wrong_token(
    hub: &HubPolicy,
    response: Response,
    change: impl FnOnce(&mut Minted),
) -> Response {
    if !response.status().is_success() {
        return response;
    }
    replace_body(response, |bytes| {
        let exchanged = serde_json::from_slice(&bytes)
            .ok()
            .and_then(|mut answer: Value| {
                let mut minted = Minted::read(&answer)?;
                change(&mut minted);
                let spec = TokenSpec {
                    namespace: &minted.namespace,
                    name: &minted.name,
                    uid: &minted.uid,
                    audiences: &minted.audiences,
                    seconds: minted.seconds,
                    pod: None,
                };
                answer["status"]["token"] = claims::sign(hub, &spec).ok()?.into();
                serde_json::to_vec(&answer).ok()
            });
        exchanged.map_or_else(Body::empty, Body::from)
    })
    .await
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
