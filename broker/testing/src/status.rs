//! Refusals in the form of Kubernetes: a `Status` object of v1.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// A refusal. Its message is public and never contains a token.
#[derive(Debug)]
pub(super) struct ApiError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Box<Value>>,
    retry_after: Option<u64>,
    plain_text: bool,
}

impl ApiError {
    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "Unauthorized".to_owned(),
        )
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message.into())
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message.into())
    }

    /// 403 with the `details` of its `Status`.
    pub(super) fn forbidden_with(message: String, details: Map<String, Value>) -> Self {
        let mut error = Self::forbidden(message);
        error.details = Some(Box::new(Value::Object(details)));
        error
    }

    /// 500 as plain text, as kube-apiserver reports what it did not expect of a request.
    pub(super) fn unexpected(path_and_query: &str, fault: &str) -> Self {
        let mut error = Self::internal();
        error.message = format!("Internal Server Error: {path_and_query:?}: {fault}\n");
        error.plain_text = true;
        error
    }

    pub(super) fn unsupported_media_type() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "the embedded server reads bodies of application/json only".to_owned(),
        )
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource".to_owned(),
        )
    }

    pub(super) fn not_found(resource: &str, name: &str) -> Self {
        let mut error = Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            format!("{resource} {name:?} not found"),
        );
        error.details = Some(Box::new(json!({"name": name, "kind": resource})));
        error
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message.into())
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message.into())
    }

    /// A watch or list from a resourceVersion that is no longer stored.
    pub(super) fn expired(version: u64) -> Self {
        Self::new(
            StatusCode::GONE,
            "Expired",
            format!("too old resource version: {version}"),
        )
    }

    pub(super) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            "the embedded server failed".to_owned(),
        )
    }

    /// A refusal with any code, for faults. `retry_after` is in seconds.
    #[cfg(feature = "faults")]
    pub(super) fn fault(code: u16, retry_after: Option<u64>) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reason = match code.as_u16() {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        let mut error = Self::new(code, reason, "fault set on the embedded server".to_owned());
        error.retry_after = retry_after;
        error
    }

    /// Returns the `Status` object itself, as in an ERROR event of a watch.
    pub(super) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code.as_u16(),
        });
        if let (Some(details), Some(fields)) = (&self.details, status.as_object_mut()) {
            fields.insert("details".to_owned(), Value::clone(details));
        }
        status
    }

    fn new(code: StatusCode, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            details: None,
            retry_after: None,
            plain_text: false,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.plain_text {
            return (self.code, self.message).into_response();
        }
        let mut response = (self.code, Json(self.to_status())).into_response();
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
