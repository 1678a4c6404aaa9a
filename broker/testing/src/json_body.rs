//! Request bodies: JSON and nothing else.

use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;

use super::status::ApiError;

/// Reads a JSON body as `T`, called `kind` in the refusal. A body without `Content-Type` counts as
/// JSON; any other type (client-go prefers protobuf here and there) is 415.
pub(super) fn read<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &[u8],
    kind: &str,
) -> Result<T, ApiError> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .map_or("application/json", |value| value.to_str().unwrap_or("?"));
    let media_type = content_type.split(';').next().unwrap_or_default();
    if media_type.trim() != "application/json" {
        return Err(ApiError::unsupported_media_type());
    }
    serde_json::from_slice(body)
        .map_err(|_| ApiError::bad_request(format!("the body is no {kind}")))
}
