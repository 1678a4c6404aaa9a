//! The published documents: anonymous, prebuilt, cacheable. No request causes anything but an answer.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::any;

use super::own_issuers;
use crate::own_issuer::OwnIssuers;
use crate::publication::{Document, PublicationReader, Published};

/// Where the provider metadata is served.
pub const METADATA_PATH: &str = "/.well-known/openid-configuration";
/// Its media type.
pub const METADATA_TYPE: &str = "application/json";
/// Where the key set is served.
pub const KEYS_PATH: &str = "/openid/v1/jwks";
/// Its media type (RFC 7517 section 8.5.2).
pub const KEYS_TYPE: &str = "application/jwk-set+json";

/// The `Cache-Control` of both documents. It is explicit, so that no verifier guesses, and the same in every answer.
pub fn cache_control(max_age: Duration) -> String {
    format!("public, max-age={}", max_age.as_secs())
}

#[derive(Clone)]
struct Shared {
    published: PublicationReader,
    cache_control: HeaderValue,
}

/// The routes of the discovery listener: the hub's documents and those of own issuers. `max_age` is the same in every answer.
pub fn routes(published: PublicationReader, own: OwnIssuers, max_age: Duration) -> Router {
    let cache_control = HeaderValue::from_str(&cache_control(max_age)).unwrap_or(HeaderValue::from_static("public, max-age=60"));
    let shared = Shared { published, cache_control: cache_control.clone() };
    Router::new()
        .route(METADATA_PATH, any(metadata))
        .route(KEYS_PATH, any(jwks))
        .with_state(shared)
        .merge(own_issuers::routes(own, cache_control))
        .fallback(async || not_found())
}

async fn metadata(State(shared): State<Shared>, method: Method, headers: HeaderMap) -> Response<Body> {
    answer(&shared, &method, &headers, METADATA_TYPE, |published| &published.metadata)
}

async fn jwks(State(shared): State<Shared>, method: Method, headers: HeaderMap) -> Response<Body> {
    answer(&shared, &method, &headers, KEYS_TYPE, |published| &published.jwks)
}

/// What is not there, for whatever reason.
pub(super) fn not_found() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, "not found\n")
}

fn answer(
    shared: &Shared,
    method: &Method,
    headers: &HeaderMap,
    content_type: &'static str,
    document: impl Fn(&Published) -> &Document,
) -> Response<Body> {
    if let Some(refused) = refused_method(method) {
        return refused;
    }
    match shared.published.current() {
        Some(published) => respond(document(&published), content_type, &shared.cache_control, method, headers),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "no key set has been read from the hub yet\n"),
    }
}

fn refused_method(method: &Method) -> Option<Response<Body>> {
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(refused)
}

/// Whatever the client accepts, it gets the one form there is: verifiers ask for all kinds of things here.
pub(super) fn respond(
    document: &Document,
    content_type: &'static str,
    cache_control: &HeaderValue,
    method: &Method,
    headers: &HeaderMap,
) -> Response<Body> {
    if let Some(refused) = refused_method(method) {
        return refused;
    }
    let unchanged = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| names(value, &document.etag));
    // hyper leaves the body away for HEAD and keeps its length.
    let (status, body) = if unchanged { (StatusCode::NOT_MODIFIED, Bytes::new()) } else { (StatusCode::OK, document.bytes.clone()) };
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
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Weak comparison (RFC 9110 section 13.1.2).
fn names(if_none_match: &HeaderValue, etag: &str) -> bool {
    let Ok(list) = if_none_match.to_str() else { return false };
    list.split(',').map(str::trim).any(|item| item == "*" || item.strip_prefix("W/").unwrap_or(item) == etag)
}

/// A short text that no cache keeps.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
