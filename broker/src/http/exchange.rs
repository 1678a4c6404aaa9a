//! `POST /v1/token`: token exchange (RFC 8693).

use std::fmt::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use keyferry_core::bound_token::BoundToken;
use keyferry_core::config::DeliveryType;
use keyferry_core::exchange::{self, ExchangeError, ExchangeRequest, MAX_FORM_BYTES, TOKEN_TYPE_JWT};
use keyferry_core::public_cluster::PublicCluster;
use keyferry_core::reason::Reason;
use keyferry_core::request_id::RequestId;
use secrecy::ExposeSecret;

use super::refusal::{self, Surface};
use crate::broker::{self, Broker, HandOut};
use crate::in_time::in_time;
use crate::source::Source;

/// Its name in audit records.
const ROUTE: &str = "exchange";

/// How long a request's body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// Bytes of an answer beside its token.
const ROUND_THE_TOKEN: usize = 160;

/// Answers an exchange.
pub(super) async fn answer(broker: Arc<Broker>, request: Request<Incoming>) -> Response<Body> {
    let (id, source) = (broker.request_id(), source_of(&request));
    let body = match read(request).await {
        Ok(body) => body,
        Err(unreadable) => return refuse(&broker, unreadable, id, source).await,
    };
    match form(&body) {
        Ok(form) => exchange(&broker, form, id, source).await,
        Err(unreadable) => refuse(&broker, unreadable, id, source).await,
    }
}

/// Where a request comes from, as its connection says.
pub(super) fn source_of<B>(request: &Request<B>) -> Source {
    request.extensions().get().copied().unwrap_or_default()
}

async fn refuse(broker: &Broker, unreadable: Unreadable, id: RequestId, source: Source) -> Response<Body> {
    let Unreadable { status, error, description } = unreadable;
    match broker.refuse(ROUTE, Reason::RequestInvalid, id, source).await {
        Ok(()) => refusal::malformed(status, error, &description, id.as_str()),
        Err(limited) => refusal::answer(&limited, Surface::Exchange, id.as_str()),
    }
}

async fn exchange(broker: &Broker, form: ExchangeRequest<'_>, id: RequestId, source: Source) -> Response<Body> {
    let request = broker::Request {
        route: ROUTE,
        caller_token: form.subject_token,
        access: form.access,
        min_ttl: form.min_ttl,
        // An exec plugin fetches by this route too; the shape it makes of the token is its own.
        deliveries: &[DeliveryType::HTTP, DeliveryType::Exec],
        request_id: id,
        source,
    };
    match broker.hand_out(&request).await {
        Ok(HandOut { token, usable, target, policy, ca_pem }) => {
            let target = form.tell_cluster.then(|| policy.targets.get(&target)).flatten();
            let cluster = target.map(|target| PublicCluster::of(target, ca_pem.as_deref()));
            let body = rendered(&token, usable, cluster.as_ref());
            refusal::secret_answer(StatusCode::OK, "application/json", body, id.as_str())
        }
        Err(refused) => refusal::answer(&refused, Surface::Exchange, id.as_str()),
    }
}

/// The answer of RFC 8693 section 2.2.1. The token goes in as it stands: a JWT that was read holds nothing that JSON would escape.
fn rendered(token: &BoundToken, usable: Duration, cluster: Option<&PublicCluster>) -> String {
    let token = token.secret().expose_secret();
    let mut body = String::with_capacity(token.len() + ROUND_THE_TOKEN);
    body.push_str(r#"{"access_token":""#);
    body.push_str(token);
    // Writing to a string does not fail.
    let _ = write!(body, r#"","issued_token_type":"{TOKEN_TYPE_JWT}","token_type":"Bearer","expires_in":{}"#, usable.as_secs());
    if let Some(cluster) = cluster.and_then(|cluster| serde_json::to_string(cluster).ok()) {
        let _ = write!(body, r#","keyferry_cluster":{cluster}"#);
    }
    body.push('}');
    body
}

struct Unreadable {
    status: StatusCode,
    error: &'static str,
    description: String,
}

fn invalid(description: impl Into<String>) -> Unreadable {
    Unreadable { status: StatusCode::BAD_REQUEST, error: "invalid_request", description: description.into() }
}

/// The body of a request that has the look of an exchange.
async fn read<B: HttpBody>(request: Request<B>) -> Result<Bytes, Unreadable>
where
    B::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    // Looked at before the body comes, so that nothing of it is kept meanwhile.
    let fit = check(&head);
    drop(head);
    // Read before anything is refused: an answer beside an unread body breaks the stream under HTTP/2.
    let body = in_time(BODY_DEADLINE, pin!(Limited::new(body, MAX_FORM_BYTES).collect())).await.ok_or_else(|| Unreadable {
        status: StatusCode::REQUEST_TIMEOUT,
        error: "invalid_request",
        description: "the body did not arrive within 30 s".to_owned(),
    })?;
    let body = body.map_err(|_| Unreadable {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        error: "invalid_request",
        description: "the body is larger than 64 KiB or broke off".to_owned(),
    })?;
    fit.map(|()| body.to_bytes())
}

/// Whether what comes before the body is that of an exchange.
fn check(request: &Parts) -> Result<(), Unreadable> {
    if request.uri.query().is_some() {
        return Err(invalid("parameters belong in the body, not in the query string"));
    }
    if request.headers.contains_key(header::AUTHORIZATION) {
        return Err(invalid("the caller proves itself by subject_token alone; send no Authorization header"));
    }
    if !is_form(&request.headers) {
        let description = "the body must be application/x-www-form-urlencoded in UTF-8".to_owned();
        return Err(Unreadable { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, error: "invalid_request", description });
    }
    Ok(())
}

fn form(body: &[u8]) -> Result<ExchangeRequest<'_>, Unreadable> {
    exchange::parse(body).map_err(|error| match error {
        ExchangeError::InvalidRequest { .. } => invalid(error.to_string()),
        ExchangeError::InvalidTarget { .. } => {
            Unreadable { status: StatusCode::BAD_REQUEST, error: "invalid_target", description: error.to_string() }
        }
    })
}

fn is_form(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let mut parts = content_type.split(';').map(str::trim);
    parts.next().is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded"))
        && parts.all(|parameter| parameter.is_empty() || parameter.eq_ignore_ascii_case("charset=utf-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::http::{Request, StatusCode};
    use futures::stream;

    use super::{BODY_DEADLINE, read};

    #[cfg(feature = "embedded")]
    #[tokio::test]
    async fn an_answer_is_the_json_that_a_library_reads() {
        use std::time::Duration;

        use keyferry_core::public_cluster::PublicCluster;
        use secrecy::ExposeSecret;
        use serde_json::json;

        let world = crate::testing::SmallWorld::start().await;
        let token = world.mint.token(&world.grant("tenant-a/prod"), Duration::ZERO).await.unwrap().token;
        let target = world.policy.targets.values().next().unwrap();
        let cluster = PublicCluster::of(target, Some("a \"quoted\" line\n"));
        for cluster in [None, Some(cluster)] {
            let body = super::rendered(&token, Duration::from_millis(2999), cluster.as_ref());
            let mut wanted = json!({
                "access_token": token.secret().expose_secret(),
                "issued_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_type": "Bearer",
                "expires_in": 2,
            });
            if let Some(cluster) = cluster {
                wanted["keyferry_cluster"] = json!(cluster);
            }
            assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap(), wanted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let begun = tokio::time::Instant::now();
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let refused = read(Request::new(body)).await.err().map(|refused| refused.status);
        assert_eq!((refused, begun.elapsed()), (Some(StatusCode::REQUEST_TIMEOUT), BODY_DEADLINE));
    }
}
