//! Passes one request to `git http-backend`: the environment of RFC 3875 in, headers and a body
//! out.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(30);

/// Runs `git http-backend`. An error is a text for the client's log.
pub(super) async fn run(folder: &Path, head: &Parts, body: &[u8]) -> Result<Response, String> {
    let header = |name: &str| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", folder)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("git did not start: {error}"))?;
    let mut input = child.stdin.take().ok_or("git has no standard input")?;
    let talking = async {
        // git answers some requests without reading them to the end.
        let _ = input.write_all(body).await;
        drop(input);
        child.wait_with_output().await
    };
    match tokio::time::timeout(LIMIT, talking).await {
        Ok(Ok(output)) => response(&output.stdout).ok_or_else(|| {
            format!(
                "git http-backend wrote no headers and ended with {}",
                output.status
            )
        }),
        Ok(Err(error)) => Err(format!("git http-backend: {error}")),
        Err(_) => Err("git http-backend took too long".to_owned()),
    }
}

/// Parses CGI output into a response: header lines (`Status` gives the status), an empty line, the
/// body.
fn response(output: &[u8]) -> Option<Response> {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = (output.get(..end)?, output.get(end + 4..)?);
    let mut response = Response::builder();
    for (name, value) in std::str::from_utf8(head)
        .ok()?
        .lines()
        .filter_map(|line| line.split_once(": "))
    {
        response = match name.eq_ignore_ascii_case("status") {
            true => response.status(value.split(' ').next()?),
            false => response.header(name, value),
        };
    }
    response.body(Body::from(body.to_vec())).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn headers_become_a_response() {
        let output = b"Expires: never\r\nContent-Type: application/x-git\r\n\r\nbody\r\n\r\nmore";
        let answer = response(output).unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.headers().get("content-type").unwrap(),
            "application/x-git"
        );
        assert_eq!(
            response(b"Status: 404 Not Found\r\n\r\n").unwrap().status(),
            404
        );
        assert!(response(b"fatal: nothing\n").is_none());
    }
}
