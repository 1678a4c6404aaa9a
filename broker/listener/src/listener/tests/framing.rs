//! Requests whose end two servers could determine differently.

use super::{TIMES, plain};

#[tokio::test]
async fn requests_that_two_readers_could_understand_differently_are_refused() {
    let stage = plain(TIMES);
    let chunked = "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n";
    let cases = [
        ("no host", "GET /small HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (
            "two hosts",
            "GET /small HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "two hosts, one in another case",
            "GET /small HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "two hosts in HTTP/1.0",
            "GET /small HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "an empty host",
            "GET /small HTTP/1.1\r\nHost:\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "a host with credentials",
            "GET /small HTTP/1.1\r\nHost: a@b\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "a host in the target alone",
            "GET http://a/small HTTP/1.1\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "gzip, chunked",
            "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, \
            chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "501",
        ),
        (
            "chunked twice",
            format!("{chunked}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "501",
        ),
        (
            "identity and chunked",
            "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: \
             chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "501",
        ),
        // RFC 9112 section 6.3: for these, the end of the body cannot be determined.
        (
            "gzip",
            "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "chunked, gzip",
            "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, \
            gzip\r\n\r\n"
                .to_owned(),
            "400",
        ),
        (
            "chunked in HTTP/1.0",
            "POST /small HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: \
            chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "400",
        ),
        (
            "a space before the colon",
            "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : \
            chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "400",
        ),
        (
            "two lengths",
            "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: \
            1\r\n\r\nx"
                .to_owned(),
            "400",
        ),
        (
            "a signed length",
            "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx".to_owned(),
            "400",
        ),
        (
            "a folded line",
            "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n \
            chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "400",
        ),
        (
            "a NUL",
            "GET /small HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n".to_owned(),
            "400",
        ),
    ];
    for (what, text, status) in cases {
        let said = stage
            .said_to(&format!(
                "{text}GET /small HTTP/1.1\r\nHost: a\r\nX-Smuggled: \
            yes\r\nConnection: close\r\n\r\n"
            ))
            .await;
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} "))
                || said.starts_with(&format!("HTTP/1.0 {status} ")),
            "{what}: {said}"
        );
        assert_eq!(
            said.matches("HTTP/1.").count(),
            1,
            "{what}: nothing after it is read as a request: {said}"
        );
    }
}

#[tokio::test]
async fn a_length_beside_a_transfer_coding_leaves_nothing_to_the_next_request() {
    let stage = plain(TIMES);
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
    ] {
        let text = format!(
            "POST /small HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n0\r\n\r\nGET /small \
             HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        let said = stage.said_to(&text).await;
        assert!(
            said.starts_with("HTTP/1.1 200 ") && said.contains("connection: close\r\n"),
            "{said}"
        );
        assert_eq!(said.matches("HTTP/1.").count(), 1, "{said}");
    }
    let plain = "GET /small HTTP/1.1\r\nHost: a\r\n\r\nGET /small HTTP/1.1\r\nHost: \
        a\r\nConnection: close\r\n\r\n";
    assert_eq!(
        stage.said_to(plain).await.matches("HTTP/1.1 200 ").count(),
        2,
        "who frames plainly keeps its connection"
    );
}
