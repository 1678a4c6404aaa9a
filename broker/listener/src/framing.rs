//! Refuses requests whose head two readers could interpret differently, before they are processed.
//!
//! hyper refuses what has no valid reading at all, such as two different lengths. These checks
//! cover what hyper reads in one way and a proxy in front may read in another. The proxy could then
//! take part of one client's body for another client's request.

use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};

use crate::plain_text::plain_text;

/// Returns the refusal if the request is ambiguous. Under HTTP/1, the connection ends with it.
pub(crate) fn refuse_ambiguous<B>(request: &Request<B>) -> Option<Response<Body>> {
    let headers = request.headers();
    let mut response = if !is_framed_plainly(headers) {
        // RFC 9112 section 6.1.
        plain_text(
            StatusCode::NOT_IMPLEMENTED,
            "only the transfer coding chunked is supported\n",
        )
    } else if !names_one_host(request.version(), headers) {
        // RFC 9112 section 3.2.
        plain_text(
            StatusCode::BAD_REQUEST,
            "exactly one Host header that holds only a host is required\n",
        )
    } else {
        return None;
    };
    if request.version() < Version::HTTP_2 {
        close_connection(&mut response);
    }
    Some(response)
}

/// Whether the connection must not be reused after this request (RFC 9112 section 6.1). hyper drops
/// a length that came beside the transfer coding, and a proxy in front may have used that length.
pub(crate) fn ends_connection<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(header::TRANSFER_ENCODING)
}

/// Closes the connection after this response.
pub(crate) fn close_connection(response: &mut Response<Body>) {
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
}

fn is_framed_plainly(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

fn names_one_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        // HTTP/2 names the host in `:authority`; HTTP/1.0 needs none.
        (None, _) => version != Version::HTTP_11,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    }
}

/// Matches `uri-host [ ":" port ]` (RFC 9110 section 7.2).
fn is_host(value: &HeaderValue) -> bool {
    let authority = Authority::try_from(value.as_bytes());
    // A comma is valid in a name, but in practice it comes from a proxy that merged two headers.
    authority.is_ok_and(|authority| {
        !authority.as_str().contains(['@', ',']) && !authority.host().is_empty()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::{Request, StatusCode, Version};

    use super::refuse_ambiguous;

    fn status(version: Version, headers: &[(&str, &str)]) -> Option<StatusCode> {
        let request = headers.iter().fold(
            Request::get("/").version(version),
            |request, (name, value)| request.header(*name, *value),
        );
        refuse_ambiguous(&request.body(()).unwrap()).map(|response| response.status())
    }

    #[test]
    fn one_host_and_no_more() {
        let bad = Some(StatusCode::BAD_REQUEST);
        for host in [
            "keyferry.example.com",
            "keyferry.example.com:8443",
            "127.0.0.1:1",
            "[::1]:8443",
            "a",
        ] {
            assert_eq!(status(Version::HTTP_11, &[("host", host)]), None, "{host}");
        }
        for host in [
            "", "a b", "user@a", "a/b", "a,b", "a:b:c", "a?b", "a#b", "http://a", ":8443",
        ] {
            assert_eq!(status(Version::HTTP_11, &[("host", host)]), bad, "{host:?}");
        }
        assert_eq!(status(Version::HTTP_11, &[]), bad);
        assert_eq!(status(Version::HTTP_10, &[]), None);
        assert_eq!(status(Version::HTTP_2, &[]), None);
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(
                status(version, &[("host", "a"), ("host", "a")]),
                bad,
                "{version:?}"
            );
        }
    }

    #[test]
    fn chunked_and_nothing_else() {
        let unknown = Some(StatusCode::NOT_IMPLEMENTED);
        let coded = |codings: &[&str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            status(Version::HTTP_11, &headers)
        };
        assert_eq!(
            (coded(&[]), coded(&["chunked"]), coded(&["Chunked"])),
            (None, None, None)
        );
        for codings in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &["identity", "chunked"],
            &["chunked;q=1"],
            &[""],
        ] {
            assert_eq!(coded(codings), unknown, "{codings:?}");
        }
    }
}
