//! Forwards one request, with its fault.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::ProxyState;
use super::rules::{Fault, KillMoment};
use crate::https::Connection;

const REQUEST_BODY_LIMIT: usize = 16 * 1024 * 1024;

pub(super) async fn forward_request(
    State(state): State<ProxyState>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    *state
        .counts()
        .entry((parts.method.to_string(), parts.uri.path().to_owned()))
        .or_default() += 1;
    state.remember(&connection);
    // The state owns the sender, so this wait ends only when the proxy is not paused.
    let _ = state.paused.subscribe().wait_for(|paused| !*paused).await;
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let fault = state.rules().fault_for(&parts.method, &path);
    let Ok(body) = to_bytes(body, REQUEST_BODY_LIMIT).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let passed_on = PassedOn {
        state,
        connection,
        method: parts.method,
        headers: parts.headers,
        path,
        body,
    };
    passed_on.with_fault(fault).await
}

struct PassedOn {
    state: ProxyState,
    connection: Connection,
    method: Method,
    headers: HeaderMap,
    path: String,
    body: Bytes,
}

impl PassedOn {
    async fn with_fault(mut self, fault: Option<Fault>) -> Response {
        match fault {
            None => self.send().await,
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                self.send().await
            }
            Some(Fault::Hold(mut let_go)) => {
                let _ = let_go.wait_for(|let_go| *let_go).await;
                self.send().await
            }
            Some(Fault::Status {
                status,
                headers,
                body,
            }) => {
                let mut response = (status, body).into_response();
                response.headers_mut().extend(headers);
                response
            }
            Some(Fault::ByteASecond) => slowly(self.send().await),
            Some(Fault::HalfBody) => half(self.send().await).await,
            Some(Fault::RewritePath { from, to }) => {
                self.path = self.path.replace(&from, &to);
                self.send().await
            }
            Some(Fault::Drop) => self.cut(),
            Some(Fault::ReplaceBody { body, content_type }) => {
                replace_body(self.send().await, body, content_type)
            }
            Some(Fault::Kill(switch)) => {
                switch.note_request(&self.method, &self.path);
                let connection = self.connection.clone();
                if switch.moment() == KillMoment::BeforeAnswer {
                    // Its head arrives when the server has carried out the request.
                    let _ = self.send().await;
                }
                switch.kill();
                cut(&connection)
            }
        }
    }

    /// Breaks the connection if the server cannot be reached, as the client would see it without
    /// the proxy.
    async fn send(self) -> Response {
        let url = format!("{}{}", self.state.upstream, self.path);
        let answer = self
            .state
            .client
            .request(self.method.clone(), url)
            .headers(remove_request_headers(self.headers.clone()))
            .body(self.body.clone())
            .send()
            .await;
        match answer {
            Ok(answer) => {
                let (mut parts, body) = http::Response::from(answer).into_parts();
                parts.headers = remove_hop_by_hop_headers(parts.headers);
                parts.version = http::Version::default();
                Response::from_parts(parts, Body::new(body))
            }
            Err(_) => self.cut(),
        }
    }

    fn cut(&self) -> Response {
        cut(&self.connection)
    }
}

fn cut(connection: &Connection) -> Response {
    connection.cut();
    // No client receives this response, because the connection is cut.
    StatusCode::BAD_GATEWAY.into_response()
}

fn slowly(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let bytes = stream::unfold(
        (body.into_data_stream(), Bytes::new()),
        |(mut body, mut rest)| async move {
            use futures::StreamExt as _;
            while rest.is_empty() {
                rest = body.next().await?.ok()?;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let one = rest.split_to(1);
            Some((Ok::<_, Infallible>(one), (body, rest)))
        },
    );
    Response::from_parts(parts, Body::from_stream(bytes))
}

/// Keeps the full body length in the header, so that the client can detect the broken body.
async fn half(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let Ok(whole) = to_bytes(body, REQUEST_BODY_LIMIT).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    parts
        .headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let first = whole.slice(..whole.len() / 2);
    let broken = stream::iter([
        Ok(first),
        Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe)),
    ]);
    Response::from_parts(parts, Body::from_stream(broken))
}

fn replace_body(response: Response, body: Vec<u8>, content_type: HeaderValue) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.insert(header::CONTENT_TYPE, content_type);
    Response::from_parts(parts, Body::from(body))
}

/// Removes the hop-by-hop headers (RFC 9110, 7.6.1) and those that the client sets itself.
fn remove_request_headers(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    remove_hop_by_hop_headers(headers)
}

fn remove_hop_by_hop_headers(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ] {
        headers.remove(name);
    }
    headers
}
