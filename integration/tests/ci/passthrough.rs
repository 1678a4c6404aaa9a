//! The token API behind a real proxy that passes TLS through, with the shipped configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyferry_integration::haproxy::start_haproxy;
use keyferry_integration::http_client::trusting;
use keyferry_integration::ports::free_port;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{claims, exchange_at, shipped};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::stage::Stage;

/// How long the places of closed connections may be taken.
const FREE_WITHIN: Duration = Duration::from_secs(20);
/// The shipped limit of connections at once.
const MAX_CONNECTIONS: usize = 64;
const MORE_CONNECTIONS: usize = 32;

pub(crate) async fn a_hosted_runner_comes_through_a_tls_passthrough(
    stage: Arc<Stage>,
) -> TestResult {
    let port = free_port()?;
    let api = stage.broker.api_url().replace("https://", "");
    let configuration = configuration(port, &api)?;
    let folder = tempfile::tempdir()?;
    let proxy = start_haproxy(stage.ground.parts(), folder.path(), &configuration, port).await?;
    let http = trusting(stage.ground.ca().cert_pem())?;
    let url = format!("https://localhost:{port}");

    // The proxy has no certificate, so the one that this client checks is Keyferry's own.
    let [_, _, gitlab] = stage.shapes()?;
    let token = stage.job(&gitlab, "through-the-proxy")?;
    stage
        .broker
        .exchange_in_time(&token, "tenant-a/prod")
        .await?;
    let exchanged = exchange_at(&http, &url, &token, "tenant-a/prod").await?;
    let issued = claims(&exchanged.token()?)?;
    assert_eq!(issued["sub"], "system:serviceaccount:tenant-a:reconciler");
    let record = stage.broker.audit_of(&exchanged.request_id)?;
    assert_eq!(record["callerTokenId"], "through-the-proxy");

    token_api_alone_is_served(&http, &url).await?;

    // Another name, no name, and what is not TLS reach nothing.
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let other = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .resolve("keyferry.example.com", address)
        .build()?;
    for url in [
        format!("https://keyferry.example.com:{port}/healthz"),
        format!("https://127.0.0.1:{port}/healthz"),
        format!("http://localhost:{port}/healthz"),
    ] {
        let reached = other.get(&url).send().await;
        assert!(reached.is_err(), "{url}: {reached:?}");
    }

    // One address cannot take all connections, and when it goes its place is free again.
    let (mut opened, mut reset) = (Vec::new(), 0);
    for _ in 0..MAX_CONNECTIONS + MORE_CONNECTIONS {
        // The proxy may reset a connection before this end knows that it is open.
        match TcpStream::connect(address).await {
            Ok(connection) => opened.push(connection),
            Err(_) => reset += 1,
        }
    }
    let closed = futures::future::join_all(opened.iter_mut().map(is_closed)).await;
    let closed = reset + closed.into_iter().filter(|closed| *closed).count();
    // The client above may still have a connection.
    assert!(
        (MORE_CONNECTIONS..MORE_CONNECTIONS + 8).contains(&closed),
        "{closed}"
    );
    drop(opened);
    let limit = Instant::now() + FREE_WITHIN;
    // A client without a connection of before.
    let next = trusting(stage.ground.ca().cert_pem())?;
    while let Err(error) = exchange_at(&next, &url, &token, "tenant-a/prod").await {
        assert!(Instant::now() < limit, "{error}: {}", proxy.logs_tail(20));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// The routes of the token API alone, and of its health nothing but ok.
pub(crate) async fn token_api_alone_is_served(http: &reqwest::Client, url: &str) -> TestResult {
    for (path, status, body) in [
        ("/healthz", 200, Some("ok\n")),
        ("/readyz", 200, Some("ok\n")),
        ("/openapi.json", 200, None),
        ("/.well-known/oauth-authorization-server", 200, None),
        (
            "/v1/namespaces/tenant-a/accesses/prod/kubeconfig",
            401,
            None,
        ),
        ("/metrics", 404, None),
        ("/statusz", 404, None),
        ("/debug/pprof/", 404, None),
        ("/openid/v1/jwks", 404, None),
        ("/.well-known/openid-configuration", 404, None),
        ("/api/v2/flux/namespaces/tenant-a/targets", 404, None),
        ("/", 404, None),
    ] {
        let response = http.get(format!("{url}{path}")).send().await?;
        assert_eq!(response.status(), status, "{path}");
        let text = response.text().await?;
        assert!(body.is_none_or(|body| body == text), "{path}: {text}");
    }
    Ok(())
}

/// The shipped configuration with the addresses and the name of this test, and nothing else changed.
fn configuration(port: u16, api: &str) -> Result<String, TestError> {
    let mut text = std::fs::read_to_string(shipped("examples/ci/haproxy.cfg"))?;
    for (from, to) in [
        ("bind :443\n", format!("bind 127.0.0.1:{port}\n")),
        ("keyferry-api.example.com", "localhost".to_owned()),
        ("keyferry.keyferry-system.svc:443", api.to_owned()),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, &to);
    }
    Ok(text)
}

/// Whether the proxy closes the connection at once, and does not wait for the rest of a record of
/// TLS.
async fn is_closed(connection: &mut TcpStream) -> bool {
    let _ = connection.write_all(&[0x16, 3, 1]).await;
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_secs(3), connection.read(&mut byte)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}
