//! `GET /.well-known/oauth-authorization-server`: how the token endpoint can be used (RFC 8414).

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use keyferry_api::issuer::PublicUrl;
use keyferry_core::exchange::{GRANT_TYPE, GRANT_TYPE_CREDENTIALS};
use schemars::JsonSchema;
use serde::Serialize;

use super::api_route::ApiRoute;

/// The metadata of RFC 8414 section 2.
#[derive(Serialize, JsonSchema)]
pub(super) struct MetadataDocument<'a> {
    /// The origin of the token API.
    issuer: &'a str,
    /// The URL of the token exchange.
    token_endpoint: String,
    /// The grant types of a token exchange, and of a client_assertion.
    grant_types_supported: [&'static str; 2],
    /// none: the subject_token authenticates the caller, and no client is registered.
    /// private_key_jwt: the same token as a client_assertion.
    token_endpoint_auth_methods_supported: [&'static str; 2],
    /// The algorithms of a client_assertion, which RFC 8414 requires beside private_key_jwt. An
    /// issuer's keys decide which of them count.
    token_endpoint_auth_signing_alg_values_supported: [&'static str; 8],
    /// Always none: there is no authorization endpoint. RFC 8414 requires the member.
    response_types_supported: [&'static str; 1],
}

/// The document as bytes. It depends only on the configured origin, and on no header of a request.
#[derive(Clone)]
pub struct Metadata(Arc<[u8]>);

impl Metadata {
    /// Makes the document of the token API at `origin`.
    pub fn of(origin: &PublicUrl) -> Self {
        let document = MetadataDocument {
            issuer: origin.as_str(),
            token_endpoint: format!("{}{}", origin.as_str(), ApiRoute::Exchange.path()),
            grant_types_supported: [GRANT_TYPE, GRANT_TYPE_CREDENTIALS],
            token_endpoint_auth_methods_supported: ["none", "private_key_jwt"],
            token_endpoint_auth_signing_alg_values_supported: [
                "ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
            ],
            response_types_supported: ["none"],
        };
        // Members of text always become JSON.
        Self(serde_json::to_vec(&document).unwrap_or_default().into())
    }

    pub(super) fn metadata_response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::copy_from_slice(&self.0)));
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "public, max-age=300"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::StatusCode;
    use keyferry_api::issuer::PublicUrl;
    use serde_json::{Value, json};

    use super::Metadata;

    #[tokio::test]
    async fn the_document_names_only_the_configured_origin() {
        let metadata = Metadata::of(&PublicUrl::new("https://keys.example.com:9443/").unwrap());
        let response = metadata.metadata_response();
        let status = response.status();
        let body = to_bytes(response.into_body(), 4096).await.unwrap();
        let document: Value = serde_json::from_slice(&body).unwrap();
        let expected = json!({
            "issuer": "https://keys.example.com:9443",
            "token_endpoint": "https://keys.example.com:9443/v1/token",
            "grant_types_supported": [
                "urn:ietf:params:oauth:grant-type:token-exchange", "client_credentials",
            ],
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": [
                "ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
            ],
            "response_types_supported": ["none"],
        });
        assert_eq!((status, document), (StatusCode::OK, expected));
    }
}
