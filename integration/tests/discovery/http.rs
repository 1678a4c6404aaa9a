//! How the documents are asked for and answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::{Method, StatusCode, Version};
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::world::{Broker, World};
use reqwest::tls;

use super::setup::{Behind, Document, KEYS, METADATA, published};

/// Headers without the ones of the moment.
fn headers(answer: &reqwest::Response) -> BTreeMap<String, String> {
    let named =
        |(name, value): (&http::HeaderName, &http::HeaderValue)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned());
    answer.headers().iter().map(named).filter(|(name, _)| name != "date").collect()
}

fn client(broker: &Broker, of: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Result<reqwest::Client, TestError> {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(broker.ca_path())?)?;
    Ok(of(reqwest::Client::builder().no_proxy().tls_certs_only([ca])).build()?)
}

/// HTTP/1.1 and HTTP/2, TLS 1.2 and 1.3: GET, HEAD and conditional GET, with the same headers and bytes.
pub(super) async fn every_protocol_gets_the_same(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    let published = published(broker).await?;
    for (version, protocol) in [(Version::HTTP_11, false), (Version::HTTP_2, true)] {
        for tls in [tls::Version::TLS_1_2, tls::Version::TLS_1_3] {
            let http = client(broker, |builder| {
                let builder = builder.tls_version_min(tls).tls_version_max(tls);
                if protocol { builder.http2_prior_knowledge() } else { builder.http1_only() }
            })?;
            for (path, document) in [METADATA, KEYS].into_iter().zip(&published) {
                let url = format!("{}{path}", broker.discovery_url());
                let got = http.get(&url).send().await?;
                assert_eq!(got.version(), version);
                let of_get = headers(&got);
                assert_eq!(Document::of(got).await?, *document, "{version:?} {tls:?}");
                what_caches_need(&of_get, document);

                let head = http.head(&url).send().await?;
                assert_eq!((head.status(), headers(&head)), (StatusCode::OK, of_get.clone()), "HEAD is GET without a body");
                assert!(head.bytes().await?.is_empty());
                conditional(&http, &url, document, &of_get).await?;
            }
        }
    }
    Ok(())
}

fn what_caches_need(headers: &BTreeMap<String, String>, document: &Document) {
    let header = |name: &str| headers.get(name).map(String::as_str);
    assert_eq!(header("content-length"), Some(document.bytes.len().to_string().as_str()));
    assert_eq!(header("cache-control"), Some("public, max-age=60"), "explicit, and no s-maxage");
    assert_eq!((header("last-modified"), header("expires"), header("age"), header("pragma")), (None, None, None, None));
    assert_eq!((header("access-control-allow-origin"), header("access-control-allow-credentials")), (Some("*"), None));
    assert_eq!((header("vary"), header("content-encoding"), header("set-cookie"), header("server")), (None, None, None, None));
    let etag = header("etag").unwrap_or_default();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 20, "a strong ETag: {etag}");
}

/// RFC 9110, 13.1.2 and 15.4.5.
async fn conditional(http: &reqwest::Client, url: &str, document: &Document, of_get: &BTreeMap<String, String>) -> TestResult {
    let etag = &document.etag;
    for (condition, status) in [
        (etag.clone(), 304),
        (format!("\"other\", W/{etag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (etag.trim_matches('"').to_owned(), 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let answer = http.request(method, url).header("if-none-match", &condition).send().await?;
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
            let answer = http.get(format!("{}{path}", broker.discovery_url())).header(name, value).send().await?;
            assert!(!answer.headers().contains_key("content-encoding") && !answer.headers().contains_key("vary"));
            assert_eq!(Document::of(answer).await?, *document, "{name}: {value}");
        }
    }
    Ok(())
}

pub(super) async fn refusals_and_methods(world: Arc<World>) -> TestResult {
    let broker = world.broker();
    for path in [METADATA, KEYS] {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS, Method::TRACE] {
            let answer = broker.http().request(method.clone(), format!("{}{path}", broker.discovery_url())).send().await?;
            let seen = headers(&answer);
            assert_eq!(answer.status(), 405, "{method}");
            assert_eq!(seen.get("allow").map(String::as_str), Some("GET, HEAD"), "{method}");
            an_error(answer, &seen).await?;
        }
    }
    for path in
        ["/", "/openid/v1/jwks/", "/openid/v1/JWKS", "/.well-known/jwks.json", "/issuers/prod/jwks", "/metrics", "/v1/token", "/readyz"]
    {
        let answer = broker.http().get(format!("{}{path}", broker.discovery_url())).send().await?;
        let seen = headers(&answer);
        assert_eq!(answer.status(), 404, "{path}");
        an_error(answer, &seen).await?;
    }
    // Anybody may ask, so that a head that says more than a verifier has to say is not listened to.
    let http = client(broker, reqwest::ClientBuilder::http1_only)?;
    for (bytes, expected) in [(6 * 1024, 200), (9 * 1024, 431)] {
        let request = http.get(format!("{}{KEYS}", broker.discovery_url()));
        let answer = request.header("x-long", "x".repeat(bytes)).send().await?;
        assert_eq!(answer.status().as_u16(), expected, "{bytes} bytes");
    }
    Ok(())
}

async fn an_error(answer: reqwest::Response, seen: &BTreeMap<String, String>) -> TestResult {
    assert_eq!(seen.get("cache-control").map(String::as_str), Some("no-store"));
    assert!(!seen.contains_key("etag"));
    let body = answer.text().await?;
    assert!(!body.contains("evil") && !body.contains("127.0.0.1") && body.len() < 200, "{body}");
    Ok(())
}

/// Whatever clients send, and however many at once.
pub(super) async fn no_request_reaches_the_hub(world: Arc<World>) -> TestResult {
    let behind = Behind::start(&world, "no-upstream").await?;
    // From here the next reading of its own is 15 s away.
    behind.read_again("success", "Ready").await?;
    let (quiet, before) = (Instant::now(), behind.upstream_reads());
    let expected = published(&behind.broker).await?;
    let (http, origin) = (behind.broker.http(), behind.broker.discovery_url());
    let origin = &origin;
    for fifty in 0..20 {
        let requests = (0..50).map(|one| async move {
            let (path, number) = ([METADATA, KEYS][one % 2], fifty * 50 + one);
            let url = format!("{origin}{path}?fresh={number}");
            let request = http.get(url).header("cache-control", "no-cache").header("pragma", "no-cache");
            Document::of(request.header("if-none-match", format!("\"{number}\"")).send().await?).await
        });
        for (one, document) in try_join_all(requests).await?.into_iter().enumerate() {
            assert_eq!(document, expected[one % 2]);
        }
    }
    // Both documents, every 15 s, whatever clients do; a request that reached the hub would be one of a thousand that do.
    let (took, reads) = (quiet.elapsed(), behind.upstream_reads() - before);
    let own = if took < Duration::from_secs(14) { 0 } else { 2 * (took.as_secs() / 15 + 1) };
    assert!(reads <= own, "requests reached the hub: {reads} readings in {took:?}");
    Ok(())
}
