//! Tests requests for the documents and their responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::{Method, StatusCode, Version};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::{Broker, BrokerSpec, World};
use reqwest::tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::setup::{Behind, Document, KEYS, METADATA, published};

/// The headers except those that change with time.
fn headers(answer: &reqwest::Response) -> BTreeMap<String, String> {
    let named = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    };
    answer
        .headers()
        .iter()
        .map(named)
        .filter(|(name, _)| name != "date")
        .collect()
}

fn client(
    broker: &Broker,
    of: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, TestError> {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(broker.ca_path())?)?;
    Ok(of(reqwest::Client::builder().no_proxy().tls_certs_only([ca])).build()?)
}

/// HTTP/1.1 and HTTP/2, TLS 1.2 and 1.3: GET, HEAD and conditional GET, with the same headers and
/// bytes.
pub(super) async fn every_protocol_gets_the_same(world: Arc<World>) -> TestResult {
    let broker = &for_old_verifiers(&world, "every-protocol").await?;
    let published = published(broker).await?;
    for (version, protocol) in [(Version::HTTP_11, false), (Version::HTTP_2, true)] {
        for tls in [tls::Version::TLS_1_2, tls::Version::TLS_1_3] {
            let http = client(broker, |builder| {
                let builder = builder.tls_version_min(tls).tls_version_max(tls);
                if protocol {
                    builder.http2_prior_knowledge()
                } else {
                    builder.http1_only()
                }
            })?;
            for (path, document) in [METADATA, KEYS].into_iter().zip(&published) {
                let url = format!("{}{path}", broker.discovery_url());
                let got = http.get(&url).send().await?;
                assert_eq!(got.version(), version);
                let of_get = headers(&got);
                assert_eq!(Document::of(got).await?, *document, "{version:?} {tls:?}");
                what_caches_need(&of_get, document);

                let head = http.head(&url).send().await?;
                assert_eq!(
                    (head.status(), headers(&head)),
                    (StatusCode::OK, of_get.clone()),
                    "HEAD is GET without a body"
                );
                assert!(head.bytes().await?.is_empty());
                conditional(&http, &url, document, &of_get).await?;
            }
        }
    }
    Ok(())
}

fn what_caches_need(headers: &BTreeMap<String, String>, document: &Document) {
    let header = |name: &str| headers.get(name).map(String::as_str);
    assert_eq!(
        header("content-length"),
        Some(document.bytes.len().to_string().as_str())
    );
    assert_eq!(
        header("cache-control"),
        Some("public, max-age=60"),
        "explicit, and no s-maxage"
    );
    assert_eq!(
        (
            header("last-modified"),
            header("expires"),
            header("age"),
            header("pragma")
        ),
        (None, None, None, None)
    );
    assert_eq!(
        (
            header("access-control-allow-origin"),
            header("access-control-allow-credentials")
        ),
        (Some("*"), None)
    );
    assert_eq!(
        (
            header("vary"),
            header("content-encoding"),
            header("set-cookie"),
            header("server")
        ),
        (None, None, None, None)
    );
    let etag = header("etag").unwrap_or_default();
    assert!(
        etag.starts_with('"') && etag.ends_with('"') && etag.len() > 20,
        "a strong ETag: {etag}"
    );
}

/// Tests conditional requests, RFC 9110, 13.1.2 and 15.4.5.
async fn conditional(
    http: &reqwest::Client,
    url: &str,
    document: &Document,
    of_get: &BTreeMap<String, String>,
) -> TestResult {
    let etag = &document.etag;
    for (condition, status) in [
        (etag.clone(), 304),
        (format!("\"other\", W/{etag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (etag.trim_matches('"').to_owned(), 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let answer = http
                .request(method, url)
                .header("if-none-match", &condition)
                .send()
                .await?;
            assert_eq!(answer.status(), status, "{condition}");
            if status == 304 {
                let seen = headers(&answer);
                for name in ["etag", "cache-control", "access-control-allow-origin"] {
                    assert_eq!(seen.get(name), of_get.get(name), "{name}");
                }
                assert!(answer.bytes().await?.is_empty());
            }
        }
    }
    Ok(())
}

pub(super) async fn no_header_changes_a_byte(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let published = published(broker).await?;
    let http = client(broker, reqwest::ClientBuilder::http1_only)?;
    let cases = [
        ("host", "evil.example.com"),
        ("host", "hub.example.com:1"),
        ("x-forwarded-host", "evil.example.com"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "host=evil.example.com;proto=http"),
        ("x-original-url", "/evil"),
        ("accept", "application/json"),
        ("accept", "application/jwk-set+json"),
        ("accept", "*/*"),
        ("accept", ""),
        ("accept", "text/html"),
        ("accept", "application/jwt;q=0"),
        ("accept-encoding", "gzip, br, zstd"),
        ("accept-encoding", "identity;q=0"),
        ("cache-control", "no-cache"),
        ("pragma", "no-cache"),
        ("range", "bytes=0-9"),
        ("origin", "https://evil.example.com"),
        ("authorization", "Bearer eyJ"),
    ];
    for (path, document) in [METADATA, KEYS].into_iter().zip(&published) {
        for (name, value) in cases {
            let answer = http
                .get(format!("{}{path}", broker.discovery_url()))
                .header(name, value)
                .send()
                .await?;
            assert!(
                !answer.headers().contains_key("content-encoding")
                    && !answer.headers().contains_key("vary")
            );
            assert_eq!(Document::of(answer).await?, *document, "{name}: {value}");
        }
    }
    Ok(())
}

pub(super) async fn refusals_and_methods(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    for path in [METADATA, KEYS] {
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
            Method::TRACE,
        ] {
            let answer = broker
                .http()
                .request(method.clone(), format!("{}{path}", broker.discovery_url()))
                .send()
                .await?;
            let seen = headers(&answer);
            assert_eq!(answer.status(), 405, "{method}");
            assert_eq!(
                seen.get("allow").map(String::as_str),
                Some("GET, HEAD"),
                "{method}"
            );
            an_error(answer, &seen).await?;
        }
    }
    for path in [
        "/",
        "/openid/v1/jwks/",
        "/openid/v1/JWKS",
        "/.well-known/jwks.json",
        "/issuers/prod/jwks",
        "/metrics",
        "/v1/token",
        "/readyz",
    ] {
        let answer = broker
            .http()
            .get(format!("{}{path}", broker.discovery_url()))
            .send()
            .await?;
        let seen = headers(&answer);
        assert_eq!(answer.status(), 404, "{path}");
        an_error(answer, &seen).await?;
    }
    // Any client may ask, so the server refuses a request head that is larger than a verifier
    // needs.
    let http = client(broker, reqwest::ClientBuilder::http1_only)?;
    for (bytes, expected) in [(6 * 1024, 200), (9 * 1024, 431)] {
        let request = http.get(format!("{}{KEYS}", broker.discovery_url()));
        let answer = request.header("x-long", "x".repeat(bytes)).send().await?;
        assert_eq!(answer.status().as_u16(), expected, "{bytes} bytes");
    }
    Ok(())
}

async fn an_error(answer: reqwest::Response, seen: &BTreeMap<String, String>) -> TestResult {
    assert_eq!(
        seen.get("cache-control").map(String::as_str),
        Some("no-store")
    );
    assert!(!seen.contains_key("etag"));
    let body = answer.text().await?;
    assert!(
        !body.contains("evil") && !body.contains("127.0.0.1") && body.len() < 200,
        "{body}"
    );
    Ok(())
}

/// No request of a client reaches the hub, whatever clients send and however many.
pub(super) async fn no_request_reaches_the_hub(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, "no-upstream").await?;
    // From here, Keyferry's next own reading is 15 s away.
    behind.reload_signal("success", "Ready").await?;
    let (quiet, before) = (Instant::now(), behind.upstream_reads());
    let expected = published(&behind.broker).await?;
    let (http, origin) = (behind.broker.http(), behind.broker.discovery_url());
    let origin = &origin;
    for fifty in 0..20 {
        let requests = (0..50).map(|one| async move {
            let (path, number) = ([METADATA, KEYS][one % 2], fifty * 50 + one);
            let url = format!("{origin}{path}?fresh={number}");
            let request = http
                .get(url)
                .header("cache-control", "no-cache")
                .header("pragma", "no-cache");
            Document::of(
                request
                    .header("if-none-match", format!("\"{number}\""))
                    .send()
                    .await?,
            )
            .await
        });
        for (one, document) in try_join_all(requests).await?.into_iter().enumerate() {
            assert_eq!(document, expected[one % 2]);
        }
    }
    // Keyferry reads both documents every 15 s, whatever clients do. If requests reached the hub,
    // there would be a thousand reads.
    let (took, reads) = (quiet.elapsed(), behind.upstream_reads() - before);
    let own = if took < Duration::from_secs(14) {
        0
    } else {
        2 * (took.as_secs() / 15 + 1)
    };
    assert!(
        reads <= own,
        "requests reached the hub: {reads} readings in {took:?}"
    );
    Ok(())
}

/// The shipped limits protect others from one address that takes all the connections it can get,
/// and from a client that reads no responses.
pub(super) async fn clients_that_hold_on_keep_nobody_out(world: Arc<World>) -> TestResult {
    let broker = world
        .start_broker(
            world.hub(),
            BrokerSpec::of_hub("held-on", world.hub()).with_usual_limits(),
        )
        .await?;
    let from = |last: u8| {
        client(&broker, |builder| {
            builder.local_address(std::net::IpAddr::from([127, 0, 0, last]))
        })
    };
    let keys = format!("{}{KEYS}", broker.discovery_url());
    let address = broker.discovery_url().replace("https://", "");

    // HTTP/2 with almost no window for its streams; the client still answers pings.
    let unread = client(&broker, |builder| {
        builder
            .http2_prior_knowledge()
            .http2_initial_stream_window_size(1)
            .local_address(std::net::IpAddr::from([127, 0, 0, 3]))
    })?;
    let begun = Instant::now();
    let unread_response = unread.get(&keys).send().await?;
    assert_eq!(unread_response.status(), 200);

    let mut half_open = Vec::new();
    for _ in 0..300 {
        half_open.push(tokio::net::TcpStream::connect(&address).await?);
    }
    let refused =
        "keyferry_connections_refused_total{listener=\"discovery\",cause=\"address_limit\"}";
    until_at_least(&broker, refused, 1.0).await?;
    assert_eq!(
        from(2)?.get(&keys).send().await?.status(),
        200,
        "another address is served"
    );
    // A handshake has 3 s, regardless of other clients.
    until_at_least(
        &broker,
        "keyferry_connections_refused_total{listener=\"discovery\",cause=\"handshake_failed\"}",
        256.0,
    )
    .await?;
    assert_eq!(
        from(1)?.get(&keys).send().await?.status(),
        200,
        "and the same one, when it has let go"
    );
    drop(half_open);

    until_at_least(
        &broker,
        "keyferry_connections_ended_total{listener=\"discovery\",cause=\"unread\"}",
        1.0,
    )
    .await?;
    assert!(
        begun.elapsed() >= Duration::from_secs(30),
        "a slow client has its time"
    );
    drop(unread_response);
    Ok(())
}

async fn until_at_least(broker: &Broker, metric: &str, least: f64) -> TestResult {
    until(
        &format!("{metric} is at least {least}"),
        Duration::from_secs(90),
        || async { Ok(broker.metric(metric).await? >= least) },
    )
    .await
}

/// RFC 9112, 3.2 and 6.1.
pub(super) async fn framing_that_could_be_read_in_two_ways_is_refused(
    world: Arc<World>,
) -> TestResult {
    let broker = world.broker();
    let http = client(broker, reqwest::ClientBuilder::http1_only)?;
    for url in [
        format!("{}{KEYS}", broker.discovery_url()),
        format!("{}/v1/token", broker.api_url()),
    ] {
        let mut request = http.get(&url).build()?;
        for host in ["hub.example.com", "evil.example.com"] {
            request.headers_mut().append("host", host.parse()?);
        }
        assert_eq!(
            http.execute(request).await?.status(),
            400,
            "{url}: two hosts"
        );
        let one = http
            .get(&url)
            .header("host", "user@hub.example.com")
            .send()
            .await?;
        assert_eq!(one.status(), 400, "{url}: no host");
    }
    let address = broker.health_url().replace("http://", "");
    for (head, status) in [
        ("Host: a", 200),
        ("X: y", 400),
        ("Host: a\r\nHost: b", 400),
        ("Host: a\r\nTransfer-Encoding: gzip, chunked", 501),
        (
            "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            501,
        ),
        ("Host: a\r\nTransfer-Encoding: gzip", 400),
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address).await?;
        let text = format!("GET /livez HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n0\r\n\r\n");
        stream.write_all(text.as_bytes()).await?;
        let mut said = Vec::new();
        // Unread bytes of the request reset the connection after the response.
        let _ =
            tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut said)).await?;
        let said = String::from_utf8_lossy(&said);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head:?}: {said}"
        );
    }
    Ok(())
}

/// A Keyferry whose discovery listener accepts TLS 1.2.
async fn for_old_verifiers(world: &World, name: &str) -> Result<Broker, TestError> {
    let spec = BrokerSpec::of_hub(name, world.hub())
        .alone()
        .with_discovery_tls("minVersion: \"1.2\"");
    world.start_broker(world.hub(), spec).await
}

/// Verifiers may be old, but callers are not. No connection reuses anything of an earlier one.
pub(super) async fn only_discovery_speaks_tls_1_2_where_told(world: Arc<World>) -> TestResult {
    let old = &for_old_verifiers(&world, "old-verifiers").await?;
    let usual = world.broker();
    let keys = |broker: &Broker| format!("{}{KEYS}", broker.discovery_url());
    for (version, is_1_3) in [
        (reqwest::tls::Version::TLS_1_2, false),
        (reqwest::tls::Version::TLS_1_3, true),
    ] {
        for (broker, url, taken) in [
            (old, keys(old), true),
            (old, old.api_url(), is_1_3),
            (usual, keys(usual), is_1_3),
            (usual, usual.api_url(), is_1_3),
        ] {
            let http = client(broker, |builder| {
                builder.tls_version_min(version).tls_version_max(version)
            })?;
            let answered = http.get(&url).send().await.is_ok();
            assert_eq!(answered, taken, "{version:?} at {url}");
        }
    }
    Ok(())
}
