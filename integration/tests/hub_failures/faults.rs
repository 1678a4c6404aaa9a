//! The faults of one call to the hub.

use http::{HeaderValue, StatusCode, header};
use keyferry_integration::chaos_proxy::Fault;

/// Five faults with their names: 429, 504, a byte a second, no JSON, too much JSON.
pub(super) fn faults() -> [(&'static str, Fault); 5] {
    let json = HeaderValue::from_static("application/json");
    // Valid except for its size: 4 MiB of a member that no client reads.
    let oversized = format!("{{\"padding\":\"{}\"}}", "x".repeat(4 << 20));
    let status = |kind: &str, code: u16| {
        format!("{{\"kind\":\"Status\",\"message\":\"{kind}\",\"code\":{code}}}").into_bytes()
    };
    [
        (
            "429 and a day's Retry-After",
            Fault::Status {
                status: StatusCode::TOO_MANY_REQUESTS,
                headers: vec![(header::RETRY_AFTER, HeaderValue::from_static("86400"))],
                body: status("too many requests", 429),
            },
        ),
        (
            "504",
            Fault::Status {
                status: StatusCode::GATEWAY_TIMEOUT,
                headers: Vec::new(),
                body: status("timed out", 504),
            },
        ),
        ("a byte a second", Fault::ByteASecond),
        (
            "no JSON",
            Fault::ReplaceBody {
                body: b"<html>{\"status\":".to_vec(),
                content_type: json.clone(),
            },
        ),
        (
            "4 MiB",
            Fault::ReplaceBody {
                body: oversized.into_bytes(),
                content_type: json,
            },
        ),
    ]
}
