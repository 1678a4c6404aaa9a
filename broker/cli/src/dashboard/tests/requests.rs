//! Requests as bytes on the real socket, each with the status of its answer.

use super::RunningViewer;

#[tokio::test(flavor = "multi_thread")]
async fn each_request_gets_its_status() {
    let running = RunningViewer::start().await;
    let session = running.open_session().await;
    let host = format!("Host: {}", running.address);
    let link = running.link_path();
    let long = "a".repeat(7000);
    let longer = "a".repeat(20_000);
    let other_port = running.address.port() ^ 1;
    let get = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\n{headers}\r\n\r\n");
    let rows: Vec<(&str, String, u16)> = vec![
        ("a page", get(&format!("{session}/fleet"), &host), 200),
        (
            "a page with a query",
            get(&format!("{session}/fleet?q=prod&state=broken"), &host),
            200,
        ),
        (
            "the expiry page",
            get(&format!("{session}/expiry"), &host),
            200,
        ),
        (
            "a page that is not there",
            get(&format!("{session}/target/none"), &host),
            404,
        ),
        ("the session alone", get(&session, &host), 404),
        (
            "the session with a slash",
            get(&format!("{session}/"), &host),
            404,
        ),
        ("nothing", get("/", &host), 404),
        (
            "the icon that browsers ask for",
            get("/favicon.ico", &host),
            404,
        ),
        (
            "another session",
            get(&format!("/{}/fleet", "0".repeat(64)), &host),
            404,
        ),
        (
            "a part of the session",
            get(&format!("{}/fleet", &session[..40]), &host),
            404,
        ),
        (
            "the session encoded",
            get(
                &format!("/%{:02x}{}/fleet", session.as_bytes()[1], &session[2..]),
                &host,
            ),
            404,
        ),
        ("a second opening", get(&link, &host), 410),
        (
            "another code",
            get(&format!("/open/{}", "0".repeat(64)), &host),
            404,
        ),
        ("no code", get("/open/", &host), 404),
        ("a longer code", get(&format!("{link}/a"), &host), 404),
        (
            "a foreign host",
            get(&format!("{session}/fleet"), "Host: evil.example"),
            403,
        ),
        (
            "a foreign host and no path",
            get("/", "Host: evil.example"),
            403,
        ),
        (
            "a foreign host and another method",
            "POST / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            403,
        ),
        (
            "the name localhost",
            get("/", &format!("Host: localhost:{}", running.address.port())),
            403,
        ),
        ("no port", get("/", "Host: 127.0.0.1"), 403),
        (
            "another port",
            get("/", &format!("Host: 127.0.0.1:{other_port}")),
            403,
        ),
        (
            "another spelling",
            get("/", &format!("Host: 127.1:{}", running.address.port())),
            403,
        ),
        (
            "a user in the host",
            get("/", &format!("Host: a@{}", running.address)),
            400,
        ),
        ("two hosts", get("/", &format!("{host}\r\n{host}")), 400),
        ("no host", get("/", "Accept: */*"), 400),
        (
            "HTTP/1.0 without a host",
            format!("GET {session}/fleet HTTP/1.0\r\n\r\n"),
            403,
        ),
        (
            "HTTP/1.0 with the host",
            format!("GET {session}/fleet HTTP/1.0\r\n{host}\r\n\r\n"),
            200,
        ),
        (
            "a whole URL of this host",
            get(&format!("http://{}{session}/fleet", running.address), &host),
            200,
        ),
        (
            "a whole URL of another host",
            get(&format!("http://evil.example{session}/fleet"), &host),
            403,
        ),
        (
            "POST",
            format!("POST {session}/fleet HTTP/1.1\r\n{host}\r\nContent-Length: 0\r\n\r\n"),
            405,
        ),
        (
            "HEAD",
            format!("HEAD {session}/fleet HTTP/1.1\r\n{host}\r\n\r\n"),
            405,
        ),
        (
            "OPTIONS",
            format!("OPTIONS * HTTP/1.1\r\n{host}\r\n\r\n"),
            405,
        ),
        (
            "CONNECT",
            format!("CONNECT {} HTTP/1.1\r\n{host}\r\n\r\n", running.address),
            405,
        ),
        (
            "a method of its own",
            format!("STEAL {session}/fleet HTTP/1.1\r\n{host}\r\n\r\n"),
            405,
        ),
        (
            "a tab",
            get(
                &format!("{session}/fleet"),
                &format!("{host}\r\nSec-Fetch-Dest: document"),
            ),
            200,
        ),
        (
            "a frame",
            get(
                &format!("{session}/fleet"),
                &format!("{host}\r\nSec-Fetch-Dest: iframe"),
            ),
            403,
        ),
        (
            "an image",
            get(
                &format!("{session}/fleet"),
                &format!("{host}\r\nSec-Fetch-Dest: image"),
            ),
            403,
        ),
        (
            "a fetch",
            get(
                &format!("{session}/fleet"),
                &format!("{host}\r\nSec-Fetch-Dest: empty"),
            ),
            403,
        ),
        (
            "two destinations",
            get(
                &format!("{session}/fleet"),
                &format!("{host}\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Dest: iframe"),
            ),
            403,
        ),
        (
            "a way up",
            get(&format!("{session}/../{session}/fleet"), &host),
            404,
        ),
        (
            "an encoded way up",
            get(&format!("{session}/%2e%2e/fleet"), &host),
            404,
        ),
        (
            "an encoded letter",
            get(&format!("{session}/%66leet"), &host),
            404,
        ),
        (
            "an encoded line end",
            get(&format!("{session}/fleet%0d%0aa: b"), &host),
            400,
        ),
        (
            "an encoded line end without a blank",
            get(&format!("{session}/fleet%0d%0aa:b"), &host),
            404,
        ),
        ("two slashes", get(&format!("/{session}/fleet"), &host), 404),
        (
            "a long path",
            get(&format!("{session}/target/{long}"), &host),
            404,
        ),
        (
            "a path beyond the limit",
            get(&format!("{session}/{longer}"), &host),
            431,
        ),
        (
            "a header beyond the limit",
            get("/", &format!("{host}\r\nA: {longer}")),
            431,
        ),
    ];
    for (case, request, status) in rows {
        let answer = running.send(&request).await;
        assert_eq!(answer.status, status, "{case}: {answer:?}");
        assert!(
            !answer.body.contains(&session[1..]),
            "{case}: the session is in the body"
        );
        if !matches!(status, 400 | 431) {
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{case}");
            assert!(answer.header("content-security-policy").is_some(), "{case}");
        }
        if status == 405 {
            assert_eq!(answer.header("allow"), Some("GET"), "{case}");
        }
    }
}
