//! Reads the bearer token of a request.

use axum::http::{HeaderMap, header};
use keyferry_api::reason::Reason;
use keyferry_core::caller::PresentedToken;

/// Returns the request's single bearer token (RFC 6750 section 2.1), if it has an `Authorization`
/// header.
pub(super) fn bearer_token(headers: &HeaderMap) -> Result<Option<PresentedToken<'_>>, Reason> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Reason::CallerMalformed);
    }
    let value = value.to_str().map_err(|_| Reason::CallerMalformed)?;
    let (scheme, token) = value.split_once(' ').ok_or(Reason::CallerMalformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err(Reason::CallerMalformed);
    }
    Ok(Some(PresentedToken::new(token)))
}
