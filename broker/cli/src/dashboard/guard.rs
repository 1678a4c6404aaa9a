//! Refuses requests that do not come from a reader's own browser tab.

use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};

use super::answers::plain_answer;

/// The header in which browsers say what a response is for.
const SEC_FETCH_DEST: &str = "sec-fetch-dest";

/// Returns the refusal of a request that is for another host, not a GET, or not for a document.
///
/// The host comes first: a page of another site whose name resolves to 127.0.0.1 (DNS rebinding)
/// may learn nothing, and a GET of it carries no `Origin`.
pub(super) fn refuse_request(request: &Request<()>, authority: &str) -> Option<Response<String>> {
    let names_this_host = is_only_value(request.headers(), header::HOST.as_str(), authority)
        && request
            .uri()
            .authority()
            .map(Authority::as_str)
            .is_none_or(|named| named == authority);
    if !names_this_host {
        return Some(plain_answer(
            StatusCode::FORBIDDEN,
            "this viewer answers only to its own address\n",
        ));
    }
    // HEAD is not answered either: a preview of the link would use it up.
    if request.method() != Method::GET {
        let mut refusal = plain_answer(
            StatusCode::METHOD_NOT_ALLOWED,
            "this viewer answers GET, and changes nothing\n",
        );
        let allowed = http::HeaderValue::from_static("GET");
        refusal.headers_mut().insert(header::ALLOW, allowed);
        return Some(refusal);
    }
    // Frames, images, scripts and fetches of other sites. The pages have no parts of their own.
    let states_destination = request.headers().contains_key(SEC_FETCH_DEST);
    if states_destination && !is_only_value(request.headers(), SEC_FETCH_DEST, "document") {
        return Some(plain_answer(
            StatusCode::FORBIDDEN,
            "this viewer answers only with whole pages\n",
        ));
    }
    None
}

/// Whether a header is there once, with this value.
fn is_only_value(headers: &HeaderMap, name: &str, value: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    first.is_some_and(|first| first.as_bytes() == value.as_bytes()) && values.next().is_none()
}
