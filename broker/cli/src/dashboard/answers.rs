//! The viewer's answers, each with the headers that keep it to its reader.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};

/// The headers of every answer. The session is in the path, so no address may leave by a referrer,
/// and no other site may frame, embed or open a page with a handle to it.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Creates a short text.
pub(super) fn plain_answer(status: StatusCode, text: &str) -> Response<String> {
    with_type(status, "text/plain; charset=utf-8", text.to_owned())
}

/// Creates a page.
pub(super) fn page_answer(status: StatusCode, html: String) -> Response<String> {
    with_type(status, "text/html; charset=utf-8", html)
}

/// Creates a redirection to a path of this viewer, which must be ASCII.
pub(super) fn redirection(path: &str) -> Response<String> {
    let mut answer = plain_answer(StatusCode::SEE_OTHER, "");
    match HeaderValue::from_str(path) {
        Ok(path) => {
            answer.headers_mut().insert(header::LOCATION, path);
            answer
        }
        Err(_) => plain_answer(StatusCode::NOT_FOUND, "there is no such page\n"),
    }
}

/// Adds the headers of every answer. `policy` is the `Content-Security-Policy` of the pages.
pub(super) fn with_headers(mut answer: Response<String>, policy: &HeaderValue) -> Response<String> {
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    answer
}

fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    answer
}
