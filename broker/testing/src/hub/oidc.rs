//! The issuer discovery documents of the hub.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::KeyAlgorithm;
use super::policy::HubPolicy;
use crate::locked;
use crate::status::ApiError;

pub(super) const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
pub(super) const JWKS_PATH: &str = "/openid/v1/jwks";
pub(super) const PATHS: [&str; 2] = [DISCOVERY_PATH, JWKS_PATH];

pub(super) async fn discovery(State(hub): State<Arc<HubPolicy>>, headers: HeaderMap) -> Response {
    let algorithm = match hub.algorithm {
        KeyAlgorithm::Es256 => "ES256",
        KeyAlgorithm::Rs256 => "RS256",
    };
    let document = json!({
        "issuer": hub.issuer,
        "jwks_uri": format!("{}{JWKS_PATH}", hub.url),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [algorithm],
    });
    discovery_response(&hub, &headers, "application/json", document.to_string())
}

pub(super) async fn jwks(State(hub): State<Arc<HubPolicy>>, headers: HeaderMap) -> Response {
    let keys = json!({"keys": locked(&hub.keys).published()});
    discovery_response(&hub, &headers, "application/jwk-set+json", keys.to_string())
}

fn discovery_response(
    hub: &HubPolicy,
    headers: &HeaderMap,
    content_type: &'static str,
    body: String,
) -> Response {
    // kube-apiserver does not install these routes for an issuer that no target could trust.
    if !hub.issuer.starts_with("https://") {
        return ApiError::no_such_path().into_response();
    }
    if !accepts(headers, content_type) {
        let text = format!("406: Not Acceptable\n\nAvailable representations: {content_type}");
        return (StatusCode::NOT_ACCEPTABLE, text).into_response();
    }
    let fields = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (fields, body).into_response()
}

fn accepts(headers: &HeaderMap, content_type: &str) -> bool {
    let Some(accept) = headers.get(header::ACCEPT) else {
        return true;
    };
    accept.to_str().unwrap_or_default().split(',').any(|entry| {
        let media_type = entry.split(';').next().unwrap_or_default().trim();
        ["*/*", "application/*", content_type].contains(&media_type)
    })
}
