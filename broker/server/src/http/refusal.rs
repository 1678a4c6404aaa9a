//! Renders refusals for clients: few bodies, and the same bytes for the absent and the forbidden.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use keyferry_api::reason::Reason;
use keyferry_core::request_id::RequestId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::broker::Refusal;

/// The kind of route that refuses: OAuth's token endpoint has other error codes than a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `POST /v1/token` (RFC 8693 section 2.2.2, RFC 6749 section 5.2).
    Exchange,
    /// A GET with a bearer token (RFC 6750 section 3).
    Resource,
    /// A GET with a credential for fleet inputs.
    Inputs,
}

/// Seconds after which to retry an unavailable service, where nothing better is known.
const RETRY_AFTER: u64 = 5;

/// The body of every refusal (RFC 6749 section 5.2).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error", deny_unknown_fields)]
pub(super) struct ErrorBody<'a> {
    /// The code of the failure.
    error: &'static str,
    /// What failed, for people; the text may change.
    error_description: &'a str,
}

/// What a client may learn about the cause of a refusal.
enum RefusalClass {
    /// The caller's token was not accepted.
    Caller,
    /// Access is denied, for whatever reason.
    Denied,
    /// There is no such path for this credential.
    NotFound,
    /// The hub is needed and does not respond.
    Unavailable,
    /// Too many requests of callers that are not identified yet.
    Limited,
    /// The request itself is invalid.
    Request,
    /// Allowed, but it cannot be carried out. Only an authorised caller sees this.
    NotReady,
}

fn response_class(reason: Reason) -> RefusalClass {
    use Reason as R;
    match reason {
        reason if reason.is_about_caller() => RefusalClass::Caller,
        R::InputCredentialRejected => RefusalClass::Caller,
        R::InputsNotGranted => RefusalClass::NotFound,
        R::DelegationForbidden | R::TargetNotGranted => RefusalClass::Denied,
        R::CallerGone
        | R::DecisionTimedOut
        | R::HubUnreachable
        | R::ReviewFailed
        | R::ReviewForbidden => RefusalClass::Unavailable,
        R::AuditUnavailable | R::GrantSuperseded | R::InputsUnread => RefusalClass::Unavailable,
        R::RateLimited => RefusalClass::Limited,
        R::RequestInvalid => RefusalClass::Request,
        _ => RefusalClass::NotReady,
    }
}

/// The status and the body of a refusal.
struct RefusalText {
    status: StatusCode,
    error: &'static str,
    description: String,
}

impl RefusalText {
    fn new(status: StatusCode, error: &'static str, description: impl Into<String>) -> Self {
        Self {
            status,
            error,
            description: description.into(),
        }
    }

    /// Describes a refusal as far as the client of this route may learn its cause.
    fn of(refusal: &Refusal, surface: Surface) -> Self {
        let detail = refusal.detail.as_deref();
        match (response_class(refusal.reason), surface) {
            (RefusalClass::Caller, Surface::Exchange) => Self::new(
                StatusCode::BAD_REQUEST,
                "invalid_request",
                with_claim(refusal, "the subject_token was not accepted"),
            ),
            (RefusalClass::Caller, Surface::Inputs) => Self::new(
                StatusCode::UNAUTHORIZED,
                "invalid_token",
                "the credential was not accepted",
            ),
            (RefusalClass::Caller, Surface::Resource) => Self::new(
                StatusCode::UNAUTHORIZED,
                "invalid_token",
                with_claim(refusal, "the bearer token was not accepted"),
            ),
            (RefusalClass::Denied, Surface::Exchange) => Self::new(
                StatusCode::BAD_REQUEST,
                "invalid_target",
                "the audience names no access that this caller may use",
            ),
            (RefusalClass::Denied, Surface::Resource | Surface::Inputs) => Self::new(
                StatusCode::FORBIDDEN,
                "access_denied",
                "this caller may use no such access",
            ),
            (RefusalClass::NotFound, _) => Self::new(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such path for this credential",
            ),
            (RefusalClass::Unavailable, _) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "temporarily_unavailable",
                "try again shortly",
            ),
            (RefusalClass::Limited, _) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "temporarily_unavailable",
                "too many requests; try again shortly",
            ),
            (RefusalClass::Request, _) => Self::new(
                StatusCode::BAD_REQUEST,
                "invalid_request",
                detail.unwrap_or("the request is malformed"),
            ),
            (RefusalClass::NotReady, surface) => Self::not_ready(refusal, surface),
        }
    }

    fn not_ready(refusal: &Refusal, surface: Surface) -> Self {
        let error = match surface {
            Surface::Inputs => "inputs_not_available",
            Surface::Exchange | Surface::Resource => "target_not_ready",
        };
        let description = match &refusal.detail {
            Some(detail) => format!("{}: {detail}", refusal.reason),
            None => refusal.reason.to_string(),
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error, description)
    }
}

/// The text, with the claim of a verified token that no rule accepts. Every other fault of a token
/// has the same text.
fn with_claim(refusal: &Refusal, text: &str) -> String {
    match &refusal.detail {
        Some(detail) if refusal.reason == Reason::CallerClaimsMismatch => {
            format!("{text}: {detail}")
        }
        _ => text.to_owned(),
    }
}

/// Renders the response to a refusal.
pub fn refusal_response(
    refusal: &Refusal,
    surface: Surface,
    request_id: Option<RequestId>,
) -> Response<Body> {
    let RefusalText {
        status,
        error,
        description,
    } = RefusalText::of(refusal, surface);
    let mut response = malformed_response(status, error, &description, request_id);
    let headers = response.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static(challenge(refusal.reason, surface)),
        );
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = refusal
            .retry_after
            .map_or(RETRY_AFTER, |wait| wait.as_secs().saturating_add(1));
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns the challenge of a 401.
fn challenge(reason: Reason, surface: Surface) -> &'static str {
    if surface == Surface::Inputs {
        // One text for every cause, so that all these responses are the same.
        "Bearer, Basic realm=\"inputs\""
    } else if reason == Reason::CallerMissing {
        // No error code where no token was sent (RFC 6750 section 3).
        "Bearer"
    } else {
        "Bearer error=\"invalid_token\""
    }
}

/// Renders the response to a malformed request.
pub fn malformed_response(
    status: StatusCode,
    error: &'static str,
    description: &str,
    request_id: Option<RequestId>,
) -> Response<Body> {
    let body = ErrorBody {
        error,
        error_description: description,
    };
    // Members of text always become JSON.
    let body = serde_json::to_vec(&body).unwrap_or_default();
    secret_answer(status, "application/json", body, request_id)
}

/// Renders the response to an exchange when the memory for requests is exhausted. Its bytes equal
/// those of every other 503 that is not about the caller.
pub fn busy_response(request_id: Option<RequestId>) -> Response<Body> {
    // The reason selects the response and is not sent.
    refusal_response(
        &Reason::DecisionTimedOut.into(),
        Surface::Exchange,
        request_id,
    )
}

/// A 405 that lists the allowed method (RFC 9110 section 15.5.6).
pub fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = malformed_response(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request",
        "the method is not allowed here",
        None,
    );
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// The header that links a response to its audit record.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The headers of every response that may contain a secret, beside its type and its id.
const SECRET_HEADERS: [(HeaderName, HeaderValue); 8] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::PRAGMA, HeaderValue::from_static("no-cache")),
    (header::EXPIRES, HeaderValue::from_static("0")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::STRICT_TRANSPORT_SECURITY,
        HeaderValue::from_static("max-age=31536000"),
    ),
];

/// Renders a body that must not be stored, sniffed, framed or passed on.
pub fn secret_answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
    request_id: Option<RequestId>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(id) = request_id
        && let Ok(id) = HeaderValue::try_from(id.to_string())
    {
        headers.insert(REQUEST_ID, id);
    }
    headers.extend(SECRET_HEADERS);
    response
}

#[cfg(test)]
mod tests {
    use axum::http::{StatusCode, header};

    use keyferry_api::reason::Reason;

    use super::{RefusalText, Surface, busy_response};
    use crate::broker::Refusal;

    #[test]
    fn who_finds_no_room_learns_when_to_ask_again() {
        let answer = busy_response(None);
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn only_a_claim_that_no_rule_accepts_is_named() {
        let text = |reason, surface| {
            let detail = Some("no rule accepts its claim ref".to_owned());
            let refusal = Refusal {
                reason,
                detail,
                retry_after: None,
            };
            RefusalText::of(&refusal, surface).description
        };
        assert_eq!(
            text(Reason::CallerClaimsMismatch, Surface::Exchange),
            "the subject_token was not accepted: no rule accepts its claim ref"
        );
        assert_eq!(
            text(Reason::CallerClaimsMismatch, Surface::Resource),
            "the bearer token was not accepted: no rule accepts its claim ref"
        );
        for reason in [
            Reason::CallerMalformed,
            Reason::CallerRejected,
            Reason::CallerAudienceMismatch,
            Reason::CallerExpired,
            Reason::CallerTokenReused,
            Reason::CallerIdentityChanged,
        ] {
            assert_eq!(
                text(reason, Surface::Exchange),
                "the subject_token was not accepted",
                "{reason}"
            );
        }
    }
}
