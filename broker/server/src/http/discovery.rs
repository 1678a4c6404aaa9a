//! The published documents: anonymous, prebuilt and cacheable. No request has side effects.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use axum::routing::any;
use keyferry_api::issuer::DISCOVERY_PATH;
use keyferry_issuer::managed_issuer::ManagedIssuers;
use keyferry_issuer::publication::{Document, PublicationReader, Published};
use keyferry_keys::discovery::{KEYS_PATH, KEYS_TYPE, METADATA_TYPE, cache_control};
use keyferry_listener::plain_text;

use super::managed_issuers;

struct Shared {
    published: PublicationReader,
    cache_control: HeaderValue,
}

/// The routes of the discovery listener: the hub's documents and those of managed issuers.
/// `max_age` is the same in every response.
pub fn discovery_routes(
    published: PublicationReader,
    own: ManagedIssuers,
    max_age: Duration,
) -> Router {
    let cache_control = HeaderValue::from_str(&cache_control(max_age))
        .unwrap_or(HeaderValue::from_static("public, max-age=60"));
    let hub = Arc::new(Shared {
        published,
        cache_control: cache_control.clone(),
    });
    Router::new()
        .route(DISCOVERY_PATH, any(answer_metadata))
        .route(KEYS_PATH, any(answer_jwks))
        .with_state(hub)
        .merge(managed_issuers::managed_issuer_routes(own, cache_control))
        .fallback(async || not_found())
}

async fn answer_metadata(State(hub): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    answer_document(&hub, &request, METADATA_TYPE, |published| {
        &published.metadata
    })
}

async fn answer_jwks(State(hub): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    answer_document(&hub, &request, KEYS_TYPE, |published| &published.jwks)
}

/// The response for everything that does not exist, for whatever reason.
pub(super) fn not_found() -> Response<Body> {
    plain_text(StatusCode::NOT_FOUND, "not found\n")
}

fn answer_document(
    shared: &Shared,
    request: &Request<Body>,
    content_type: &'static str,
    document: impl Fn(&Published) -> &Document,
) -> Response<Body> {
    if let Some(refused) = refused_method(request.method()) {
        return refused;
    }
    match &*shared.published.borrow_current() {
        Some(published) => document_response(
            document(published),
            content_type,
            &shared.cache_control,
            request,
        ),
        None => plain_text(
            StatusCode::SERVICE_UNAVAILABLE,
            "no key set has been read from the hub yet\n",
        ),
    }
}

fn refused_method(method: &Method) -> Option<Response<Body>> {
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    let mut refused = plain_text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    refused
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(refused)
}

/// Responds with a document in its only form. `Accept` is ignored, because verifiers send all kinds
/// of values here.
pub(super) fn document_response(
    document: &Document,
    content_type: &'static str,
    cache_control: &HeaderValue,
    request: &Request<Body>,
) -> Response<Body> {
    if let Some(refused) = refused_method(request.method()) {
        return refused;
    }
    let unchanged = request
        .headers()
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .any(|value| contains_etag(value, &document.etag));
    // The router drops the body for HEAD and keeps its length.
    let (status, body) = if unchanged {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, document.bytes.clone())
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, cache_control.clone());
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        headers.insert(header::ETAG, etag);
    }
    if !unchanged {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Whether `If-None-Match` contains this ETag, by weak comparison (RFC 9110 section 13.1.2).
pub(super) fn contains_etag(if_none_match: &HeaderValue, etag: &str) -> bool {
    let Ok(list) = if_none_match.to_str() else {
        return false;
    };
    list.split(',')
        .map(str::trim)
        .any(|item| item == "*" || item.strip_prefix("W/").unwrap_or(item) == etag)
}
