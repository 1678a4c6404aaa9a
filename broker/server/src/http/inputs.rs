//! `GET /api/v2/flux/…`: fleet inputs in the form that Flux Operator's ResourceSetInputProvider of
//! type `ExternalService` reads. Only a 200 has inputs.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use keyferry_api::name::{ClusterDns, Namespace};
use keyferry_api::reason::Reason;
use keyferry_core::inputs::presented::PresentedCredential;
use keyferry_core::request_id::RequestId;
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_listener::Source;

use super::discovery;
use super::exchange::{certificate_of, source_of};
use super::refusal::{self, Surface};
use crate::broker::{Broker, Refusal};
use crate::inputs::{
    InputResource, Inputs, InputsAnswer, InputsRefusal, ROUTE_NAME, ReadPermit, ShownCredential,
};

/// The first segment of every path of this API, as it is in a request.
pub(super) type Segment = Result<Path<String>, PathRejection>;

/// Which collection a route has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Cluster,
    Accesses,
    PlatformComponents,
    Targets,
}

impl View {
    /// The resource that a path names. A name needs no percent-encoding, and one path must not
    /// have two spellings.
    fn resource_of_path(self, segment: Segment, path: &str) -> Option<InputResource> {
        if path.contains('%') {
            return None;
        }
        let Path(name) = segment.ok()?;
        let dns = || ClusterDns::new(&name).ok();
        Some(match self {
            Self::Cluster => InputResource::Cluster(dns()?),
            Self::Accesses => InputResource::Accesses(dns()?),
            Self::PlatformComponents => InputResource::PlatformComponents(dns()?),
            Self::Targets => InputResource::Targets(Namespace::new(&name).ok()?),
        })
    }
}

/// Answers with a collection.
pub(super) async fn answer_inputs(
    view: View,
    inputs: Arc<Inputs>,
    broker: Arc<Broker>,
    segment: Segment,
    request: Request,
) -> Response<Body> {
    if request.method() != Method::GET {
        return refusal::not_allowed("GET");
    }
    let (id, source) = (broker.request_id(), source_of(&request));
    if request.uri().query().is_some() {
        return with_query(&broker, id, source).await;
    }
    let certificate = certificate_of(&request);
    let shown = shown_credential(request.headers(), certificate, &broker, source).await;
    let resource = view.resource_of_path(segment, request.uri().path());
    let answered = inputs.answer_request(shown, resource, id);
    match answered.await {
        Ok(answer) => inputs_response(answer, request.headers(), id),
        Err(InputsRefusal::TooMany) => {
            let limited = broker.rate_limited(source).await;
            refusal::refusal_response(&limited, Surface::Inputs, Some(id))
        }
        Err(InputsRefusal::Credential) => {
            let reason = Reason::InputCredentialRejected;
            unauthorized_response(
                broker.audit_refusal(ROUTE_NAME, reason, id, source).await,
                id,
            )
        }
        Err(InputsRefusal::Ambiguous) => {
            let reason = Reason::CallerAmbiguous;
            unauthorized_response(
                broker.audit_refusal(ROUTE_NAME, reason, id, source).await,
                id,
            )
        }
        Err(InputsRefusal::Certificate(refused)) => {
            let recorded = broker.refuse_input_certificate(ROUTE_NAME, &refused, id, source);
            unauthorized_response(recorded.await, id)
        }
        Err(InputsRefusal::NotFound) => not_found(id),
        Err(InputsRefusal::NotAvailable(error)) => {
            refusal::refusal_response(&error.into(), Surface::Inputs, Some(id))
        }
        Err(InputsRefusal::Unrecorded) => {
            refusal::refusal_response(&Reason::AuditUnavailable.into(), Surface::Inputs, Some(id))
        }
    }
}

/// Reads the credential in the headers, or verifies that of the connection.
async fn shown_credential(
    headers: &HeaderMap,
    certificate: Option<Arc<PresentedChain>>,
    broker: &Broker,
    source: Source,
) -> ShownCredential {
    match certificate {
        Some(_) if headers.contains_key(header::AUTHORIZATION) => ShownCredential::Both,
        Some(chain) => match broker.input_caller(chain, source).await {
            Ok(caller) => ShownCredential::Certificate(caller),
            Err(refused) => ShownCredential::RefusedCertificate(refused),
        },
        None => {
            let values = headers.get_all(header::AUTHORIZATION).iter();
            PresentedCredential::read(values.map(HeaderValue::as_bytes))
                .map_or(ShownCredential::Nothing, ShownCredential::Token)
        }
    }
}

/// The bytes of an answer, which end its turn when the connection has sent or dropped them.
struct Sent {
    bytes: Arc<[u8]>,
    _turn: ReadPermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn inputs_response(answer: InputsAnswer, headers: &HeaderMap, id: RequestId) -> Response<Body> {
    let InputsAnswer {
        collection,
        permit: turn,
    } = answer;
    let unchanged = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .any(|value| discovery::contains_etag(value, collection.etag()));
    let (status, body) = if unchanged {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (
            StatusCode::OK,
            Bytes::from_owner(Sent {
                bytes: Arc::clone(collection.bytes()),
                _turn: turn,
            }),
        )
    };
    let mut response = refusal::secret_answer(status, "application/json", body, Some(id));
    let headers = response.headers_mut();
    if unchanged {
        headers.remove(header::CONTENT_TYPE);
    }
    // A client may keep it for its next If-None-Match, and must ask each time.
    let cache_control = HeaderValue::from_static("private, no-cache");
    headers.insert(header::CACHE_CONTROL, cache_control);
    headers.remove(header::PRAGMA);
    headers.remove(header::EXPIRES);
    if let Ok(etag) = HeaderValue::from_str(collection.etag()) {
        headers.insert(header::ETAG, etag);
    }
    response
}

/// The response to a credential for another path, and to a path that names nothing.
fn not_found(id: RequestId) -> Response<Body> {
    refusal::refusal_response(&Reason::InputsNotGranted.into(), Surface::Inputs, Some(id))
}

/// The same answer to every refused credential, whatever the audit record says.
fn unauthorized_response(recorded: Result<(), Refusal>, id: RequestId) -> Response<Body> {
    let refused = match recorded {
        Ok(()) => Reason::InputCredentialRejected.into(),
        Err(limited) => limited,
    };
    refusal::refusal_response(&refused, Surface::Inputs, Some(id))
}

async fn with_query(broker: &Broker, id: RequestId, source: Source) -> Response<Body> {
    match broker
        .audit_refusal(ROUTE_NAME, Reason::RequestInvalid, id, source)
        .await
    {
        Ok(()) => refusal::malformed_response(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "query parameters are not accepted; send the credential in Authorization",
            Some(id),
        ),
        Err(limited) => refusal::refusal_response(&limited, Surface::Inputs, Some(id)),
    }
}
