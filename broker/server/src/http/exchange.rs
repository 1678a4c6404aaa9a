//! `POST /v1/token`: token exchange (RFC 8693), and client credentials of a caller with a client
//! certificate (RFC 8705).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use keyferry_api::config::DeliveryType;
use keyferry_api::reason::Reason;
use keyferry_core::caller::PresentedToken;
use keyferry_core::exchange::{
    self, ClientCertificate, ExchangeError, ExchangeRequest, MAX_FORM_BYTES,
};
use keyferry_core::public_cluster::PublicCluster;
use keyferry_core::request_id::RequestId;
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_listener::{Bodies, Full, Share, Source};
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::Serialize;
use tokio::time::timeout;

use super::refusal::{self, Surface};
use crate::broker::{self, Broker, Credential, Issuance};

/// The route's name in audit records.
const ROUTE_NAME: &str = "exchange";

/// How long a request's body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// Memory that an HTTP/2 request takes beside its body, in KiB. Under HTTP/1.1 the connection's own
/// memory covers it.
pub(super) const STREAM_KIB: u32 = 4;

const BYTES_PER_KIB: usize = 1024;

/// Answers a token exchange. The memory of the request body counts until the response exists.
pub(super) async fn answer_exchange(
    bodies: Arc<Bodies>,
    State(broker): State<Arc<Broker>>,
    request: Request<Body>,
) -> Response<Body> {
    if request.method() != Method::POST {
        return refusal::not_allowed("POST");
    }
    let (id, source) = (broker.request_id(), source_of(&request));
    let certificate = certificate_of(&request);
    let mut share = bodies.new_share(source);
    let body = match read_request(request, &mut share).await {
        Ok(body) => body,
        Err(unreadable) => {
            drop(share);
            return refuse_unreadable(&broker, unreadable, id, source).await;
        }
    };
    match parse_form(&body, certificate.as_ref()) {
        Ok(form) => exchange_token(&broker, form, certificate, id, source).await,
        Err(unreadable) => refuse_unreadable(&broker, unreadable, id, source).await,
    }
}

/// Returns the source of a request, which its connection recorded.
pub(super) fn source_of<B>(request: &Request<B>) -> Source {
    request.extensions().get().copied().unwrap_or_default()
}

/// Returns the client certificate of a request's connection.
pub(super) fn certificate_of<B>(request: &Request<B>) -> Option<Arc<PresentedChain>> {
    request.extensions().get().cloned()
}

/// Chooses the caller's proof of identity. A token beside a certificate is refused without a check
/// of either: if one were ignored, a caller could act as another than its other proof says.
pub(super) fn choose_credential(
    token: Option<PresentedToken<'_>>,
    certificate: Option<Arc<PresentedChain>>,
) -> Result<Credential<'_>, Reason> {
    match (token, certificate) {
        (Some(_), Some(_)) => Err(Reason::CallerAmbiguous),
        (Some(token), None) => Ok(Credential::Token(token)),
        (None, Some(chain)) => Ok(Credential::Certificate(chain)),
        (None, None) => Err(Reason::CallerMissing),
    }
}

async fn refuse_unreadable(
    broker: &Broker,
    unreadable: Unreadable,
    id: RequestId,
    source: Source,
) -> Response<Body> {
    let (status, error, description) = match unreadable {
        Unreadable::Malformed {
            status,
            error,
            description,
        } => (status, error, description),
        Unreadable::NoRoom => {
            // Recorded and counted like any rate-limited request. The response is the same if that
            // rate limit is exhausted too.
            let _ = broker
                .audit_refusal(ROUTE_NAME, Reason::RateLimited, id, source)
                .await;
            return refusal::busy_response(Some(id));
        }
    };
    match broker
        .audit_refusal(ROUTE_NAME, Reason::RequestInvalid, id, source)
        .await
    {
        Ok(()) => refusal::malformed_response(status, error, &description, Some(id)),
        Err(limited) => refusal::refusal_response(&limited, Surface::Exchange, Some(id)),
    }
}

async fn exchange_token(
    broker: &Broker,
    form: ExchangeRequest<'_>,
    certificate: Option<Arc<PresentedChain>>,
    id: RequestId,
    source: Source,
) -> Response<Body> {
    let credential = match choose_credential(form.subject_token, certificate) {
        Ok(credential) => credential,
        Err(reason) => {
            let refused = match broker.audit_refusal(ROUTE_NAME, reason, id, source).await {
                Ok(()) => reason.into(),
                Err(limited) => limited,
            };
            return refusal::refusal_response(&refused, Surface::Exchange, Some(id));
        }
    };
    let request = broker::Request {
        route: ROUTE_NAME,
        credential,
        access: form.access,
        scope: form.scope,
        min_ttl: form.min_ttl,
        needs_cluster: false,
        // An exec plugin uses this route too and formats the token itself.
        deliveries: &[DeliveryType::HTTP, DeliveryType::Exec],
        request_id: id,
        source,
    };
    match broker.issue_credential(&request).await {
        Ok(Issuance {
            token,
            remaining_lifetime: usable,
            target,
            policy,
            ca_pem,
        }) => {
            let target = form
                .tell_cluster
                .then(|| policy.targets.get(&target))
                .flatten()
                .filter(|target| target.is_cluster());
            let response = TokenResponse {
                access_token: token.secret().expose_secret(),
                issued_token_type: form.issued_token_type,
                token_type: "Bearer",
                expires_in: usable.as_secs(),
                keyferry_cluster: target
                    .map(|target| PublicCluster::of_target(target, ca_pem.as_deref())),
            };
            // With room for all of it, the buffer does not grow while it is written. A growing
            // buffer would leave copies of the token behind.
            let cluster = response.keyferry_cluster.as_ref();
            let room = cluster.map_or(1024, |_| 8192 + 2 * ca_pem.as_deref().map_or(0, str::len));
            let mut body = Vec::with_capacity(response.access_token.len() + room);
            match serde_json::to_writer(&mut body, &response) {
                Ok(()) => {
                    refusal::secret_answer(StatusCode::OK, "application/json", body, Some(id))
                }
                Err(_) => refusal::refusal_response(
                    &Reason::MintFailed.into(),
                    Surface::Exchange,
                    Some(id),
                ),
            }
        }
        Err(refused) => refusal::refusal_response(&refused, Surface::Exchange, Some(id)),
    }
}

/// The response of RFC 8693 section 2.2.1.
#[derive(Serialize, JsonSchema)]
pub(super) struct TokenResponse<'a> {
    /// The token for the target.
    access_token: &'a str,
    /// The requested_token_type, or else the type of a JWT.
    issued_token_type: &'static str,
    /// Always Bearer.
    token_type: &'static str,
    /// The seconds for which the token can be used.
    expires_in: u64,
    /// Where the target is, if the request asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    keyferry_cluster: Option<PublicCluster>,
}

/// Why a request is not a valid exchange.
enum Unreadable {
    Malformed {
        status: StatusCode,
        error: &'static str,
        description: String,
    },
    /// The memory for requests is exhausted, in all or for this source.
    NoRoom,
}

impl From<Full> for Unreadable {
    fn from(_: Full) -> Self {
        Self::NoRoom
    }
}

fn malformed_request(status: StatusCode, description: impl Into<String>) -> Unreadable {
    Unreadable::Malformed {
        status,
        error: "invalid_request",
        description: description.into(),
    }
}

fn invalid_request(description: impl Into<String>) -> Unreadable {
    malformed_request(StatusCode::BAD_REQUEST, description)
}

/// Reads the body of a request whose head is that of an exchange.
async fn read_request<B: HttpBody<Data = Bytes>>(
    request: Request<B>,
    share: &mut Share,
) -> Result<Vec<u8>, Unreadable> {
    if request.version() == Version::HTTP_2 {
        share.grow_by(STREAM_KIB)?;
    }
    let (head, body) = request.into_parts();
    // Checked before the body arrives, so that the head is not kept in memory meanwhile.
    let fit = check_head(&head);
    drop(head);
    // The body is read before any refusal: under HTTP/2, a response beside an unread body breaks
    // the stream.
    let body = timeout(BODY_DEADLINE, collect_body(body, share)).await;
    let body = body.map_err(|_| {
        malformed_request(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive within 30 s",
        )
    })??;
    fit.map(|()| body)
}

/// Collects a body into one buffer. Frames are copied and never kept, because one byte of a frame
/// can keep a buffer of many KiB alive.
async fn collect_body<B: HttpBody<Data = Bytes>>(
    body: B,
    share: &mut Share,
) -> Result<Vec<u8>, Unreadable> {
    let mut body = pin!(body);
    let too_large = || {
        malformed_request(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 64 KiB or broke off",
        )
    };
    let (mut form, mut length, mut room) = (Vec::new(), 0, Ok(()));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| too_large())?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > MAX_FORM_BYTES {
            return Err(too_large());
        }
        if room.is_ok() {
            room = append_to_form(&mut form, &data, share);
        }
        if room.is_err() {
            // The rest is read and dropped, so that the client can receive the response.
            form = Vec::new();
        }
    }
    room?;
    Ok(form)
}

/// Appends to the form, doubling its capacity as needed. Accounts for the memory before it
/// allocates.
fn append_to_form(form: &mut Vec<u8>, data: &[u8], share: &mut Share) -> Result<(), Full> {
    let needed = form.len() + data.len();
    if needed > form.capacity() {
        let capacity = needed
            .max(form.capacity() * 2)
            .min(MAX_FORM_BYTES)
            .next_multiple_of(BYTES_PER_KIB);
        share.grow_by(
            u32::try_from((capacity - form.capacity()) / BYTES_PER_KIB).map_err(|_| Full)?,
        )?;
        form.reserve_exact(capacity - form.len());
    }
    form.extend_from_slice(data);
    Ok(())
}

/// Checks that the request head is that of an exchange.
fn check_head(request: &Parts) -> Result<(), Unreadable> {
    if request.uri.query().is_some() {
        return Err(invalid_request(
            "parameters belong in the body, not in the query string",
        ));
    }
    if request.headers.contains_key(header::AUTHORIZATION) {
        return Err(invalid_request(
            "the caller authenticates with subject_token alone; send no Authorization header",
        ));
    }
    if !is_form(&request.headers) {
        let description = "the body must be application/x-www-form-urlencoded in UTF-8";
        return Err(malformed_request(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            description,
        ));
    }
    Ok(())
}

fn parse_form<'a>(
    body: &'a [u8],
    certificate: Option<&Arc<PresentedChain>>,
) -> Result<ExchangeRequest<'a>, Unreadable> {
    let certificate = match certificate {
        Some(_) => ClientCertificate::Presented,
        None => ClientCertificate::Absent,
    };
    exchange::parse_exchange(body, certificate).map_err(|error| match error {
        ExchangeError::InvalidRequest { .. } => invalid_request(error.to_string()),
        ExchangeError::InvalidTarget { .. } => Unreadable::Malformed {
            status: StatusCode::BAD_REQUEST,
            error: "invalid_target",
            description: error.to_string(),
        },
    })
}

fn is_form(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let mut parts = content_type.split(';').map(str::trim);
    parts.next().is_some_and(|media_type| {
        media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    }) && parts
        .all(|parameter| parameter.is_empty() || parameter.eq_ignore_ascii_case("charset=utf-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::{Body, Bytes};
    use axum::http::{Request, StatusCode, Version};
    use futures::{FutureExt, StreamExt, stream};
    use keyferry_api::name::ObjectName;
    use keyferry_core::exchange::TOKEN_TYPE_JWT;
    use keyferry_listener::Source;

    use super::{
        BODY_DEADLINE, Bodies, MAX_FORM_BYTES, PublicCluster, STREAM_KIB, TokenResponse,
        Unreadable, read_request,
    };

    #[test]
    fn a_token_response_has_the_members_of_rfc_8693() {
        let response = |keyferry_cluster| {
            serde_json::to_string(&TokenResponse {
                access_token: "a.b.c",
                issued_token_type: TOKEN_TYPE_JWT,
                token_type: "Bearer",
                expires_in: 2,
                keyferry_cluster,
            })
            .unwrap()
        };
        let plain = r#"{"access_token":"a.b.c","issued_token_type":"urn:ietf:params:oauth:token-type:jwt","token_type":"Bearer","expires_in":2}"#;
        assert_eq!(response(None), plain);
        let cluster = PublicCluster {
            name: ObjectName::new("prod").unwrap(),
            server: "https://prod.example.com".to_owned(),
            certificate_authority_data: None,
            tls_server_name: None,
            proxy_url: None,
        };
        let with_cluster = plain.replace(
            '}',
            r#","keyferry_cluster":{"name":"prod","server":"https://prod.example.com"}}"#,
        );
        assert_eq!(response(Some(cluster)), with_cluster);
    }

    fn status(outcome: Result<Vec<u8>, Unreadable>) -> Result<usize, Option<StatusCode>> {
        outcome
            .map(|body| body.len())
            .map_err(|unreadable| match unreadable {
                Unreadable::Malformed { status, .. } => Some(status),
                Unreadable::NoRoom => None,
            })
    }

    fn exchange(body: Body, version: Version) -> Request<Body> {
        let form = "application/x-www-form-urlencoded";
        Request::post("/v1/token")
            .version(version)
            .header("content-type", form)
            .body(body)
            .unwrap()
    }

    /// A body of one-byte frames, each a slice of a larger buffer, as HTTP/2 delivers them.
    fn in_bytes(count: usize) -> Body {
        let buffer = Bytes::from(vec![b'x'; 16 * 1024]);
        let frames = (0..count).map(move |_| Ok::<_, std::io::Error>(buffer.slice(..1)));
        Body::from_stream(stream::iter(frames))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let begun = tokio::time::Instant::now();
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let mut share = Bodies::new(true).new_share(Source::default());
        let refused = read_request(exchange(body, Version::HTTP_11), &mut share).await;
        assert_eq!(
            (status(refused), begun.elapsed()),
            (Err(Some(StatusCode::REQUEST_TIMEOUT)), BODY_DEADLINE)
        );
    }

    #[tokio::test]
    async fn frames_of_one_byte_cost_no_more_than_their_bytes() {
        let bodies = Bodies::new(true);
        for (bytes, kib) in [
            (0, 0),
            (1, 1),
            (1024, 1),
            (1025, 2),
            (1536, 2),
            (20_000, 32),
            (MAX_FORM_BYTES, 64),
        ] {
            let mut share = bodies.new_share(Source::default());
            let body = read_request(exchange(in_bytes(bytes), Version::HTTP_11), &mut share)
                .await
                .ok()
                .unwrap();
            assert_eq!((body.len(), share.kib()), (bytes, kib));
            assert!(
                body.capacity() <= kib as usize * 1024,
                "{} bytes",
                body.capacity()
            );
        }
        let mut share = bodies.new_share(Source::default());
        let refused = read_request(
            exchange(in_bytes(MAX_FORM_BYTES + 1), Version::HTTP_11),
            &mut share,
        )
        .await;
        assert_eq!(status(refused), Err(Some(StatusCode::PAYLOAD_TOO_LARGE)));
        let mut share = bodies.new_share(Source::default());
        read_request(exchange(in_bytes(1024), Version::HTTP_2), &mut share)
            .await
            .ok()
            .unwrap();
        assert_eq!(
            share.kib(),
            1 + STREAM_KIB,
            "a stream counts beside its body"
        );
    }

    /// As many bodies as one address can have under way. A declared body length reserves no memory.
    #[tokio::test]
    async fn bodies_that_do_not_end_leave_room_to_others() {
        let bodies = Bodies::new(true);
        let source = |last: u8| Source::of_address([192, 0, 2, last].into());
        let endless = |last: u8| {
            let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 60 * 1024]))])
                .chain(stream::pending());
            let mut share = bodies.new_share(source(last));
            async move {
                read_request(
                    exchange(Body::from_stream(begun), Version::HTTP_2),
                    &mut share,
                )
                .await
            }
        };
        let mut open_requests: Vec<_> = (0..8)
            .flat_map(|last| (0..1000).map(move |_| last))
            .map(|last| Box::pin(endless(last)))
            .collect();
        let begun: Vec<bool> = open_requests
            .iter_mut()
            .map(|read| read.now_or_never().is_none())
            .collect();
        assert!(
            begun.iter().filter(|begun| !**begun).count() > 1000,
            "some are refused at once"
        );
        let ask = async |last| {
            let mut share = bodies.new_share(source(last));
            status(read_request(exchange(in_bytes(2000), Version::HTTP_2), &mut share).await)
        };
        assert_eq!((ask(1).await, ask(200).await), (Err(None), Ok(2000)));
        drop(open_requests);
        assert_eq!(ask(1).await, Ok(2000));
    }

    /// A client whose request gets no memory can still receive the response, because its body is
    /// read anyway.
    #[tokio::test]
    async fn what_has_no_room_is_read_to_its_end() {
        let bodies = Bodies::new(false);
        let [mut others, mut rest] = [(); 2].map(|()| bodies.new_share(Source::default()));
        rest.grow_by(2).unwrap();
        while others.grow_by(1).is_ok() {}
        drop(rest);
        let mut share = bodies.new_share(Source::default());
        let left = Arc::new(AtomicUsize::new(5000));
        let counted = Arc::clone(&left);
        let frames = stream::iter(0..5000).map(move |_| {
            counted.fetch_sub(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from_static(b"x"))
        });
        let refused = read_request(
            exchange(Body::from_stream(frames), Version::HTTP_11),
            &mut share,
        )
        .await;
        assert_eq!(
            (status(refused), left.load(Ordering::Relaxed)),
            (Err(None), 0)
        );
    }
}
