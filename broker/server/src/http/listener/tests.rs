//! What clients can do to a listener, tested with raw sockets and short time limits.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use keyferry_api::config::{Listener, TlsFiles};
use keyferry_hub::metrics::Metrics;
use keyferry_hub::reload_signal::ReloadSignal;
use keyferry_testing::Authority;
use rustls::SupportedProtocolVersion;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{Bounds, PlainListener, TlsListener};
use crate::http::connection::Times;

/// Longer than any wait in these tests takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// Limits that no test reaches unless it shortens one.
const TIMES: Times = Times {
    handshake: LONG,
    first_byte: LONG,
    head: LONG,
    progress: LONG,
    idle: LONG,
};
const SHORT: Duration = Duration::from_millis(500);

fn routes() -> Router {
    let big = vec![b'x'; 64 * 1024];
    Router::new()
        .route("/small", any(async || "document"))
        .route("/big", any(async move || big.clone()))
}

struct Stage {
    address: SocketAddr,
    metrics: Metrics,
    ca_pem: String,
    _folder: TempDir,
}

fn plain(times: Times) -> Stage {
    plain_of(Bounds {
        times,
        ..Bounds::HEALTH
    })
}

fn plain_of(bounds: Bounds) -> Stage {
    let metrics = Metrics::default();
    let listener =
        PlainListener::bind(([127, 0, 0, 1], 0).into(), bounds, metrics.clone()).unwrap();
    let address = listener.socket.local_addr().unwrap();
    tokio::spawn(listener.serve(routes()));
    Stage {
        address,
        metrics,
        ca_pem: String::new(),
        _folder: tempfile::tempdir().unwrap(),
    }
}

fn tls(bounds: Bounds, per_address: u32) -> Stage {
    let (folder, authority, metrics) = (
        tempfile::tempdir().unwrap(),
        Authority::new("test CA").unwrap(),
        Metrics::default(),
    );
    let identity = authority.server_identity(&["127.0.0.1"]).unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
    };
    std::fs::write(&files.certificate, &identity.certificate_pem).unwrap();
    std::fs::write(&files.key, identity.key_pem.expose_secret()).unwrap();
    let address = ([0, 0, 0, 0], 0).into();
    let listener = Listener {
        address,
        tls: files,
        connections_per_address: NonZeroU32::new(per_address),
    };
    let listener =
        TlsListener::bind(&listener, bounds, Some("127.0.0.1"), metrics.clone()).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], listener.address().unwrap().port()));
    tokio::spawn(listener.serve(routes(), ReloadSignal::never()));
    Stage {
        address,
        metrics,
        ca_pem: authority.ca_pem().to_owned(),
        _folder: folder,
    }
}

impl Stage {
    /// Waits until the metrics contain a sample.
    async fn until(&self, sample: &str) {
        let deadline = tokio::time::Instant::now() + LONG / 2;
        while !self.metrics.exposition().lines().any(|line| line == sample) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{sample} did not come:\n{}",
                self.metrics.exposition()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn ended(&self, reason: &str) {
        let listener = if self.ca_pem.is_empty() {
            "health"
        } else {
            "discovery"
        };
        self.until(&format!(
            "keyferry_connections_ended_total{{listener=\"{listener}\",cause=\"{reason}\"}} 1"
        ))
        .await;
        self.until(&format!(
            "keyferry_connections_open{{listener=\"{listener}\"}} 0"
        ))
        .await;
    }

    /// Sends a request over TLS from an address of this machine.
    async fn get_from(&self, from: [u8; 4]) -> reqwest::Result<u16> {
        let ca = reqwest::Certificate::from_pem(self.ca_pem.as_bytes()).unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([ca])
            .local_address(IpAddr::from(from))
            .timeout(LONG / 2);
        let url = format!("https://{}/small", self.address);
        Ok(client
            .build()
            .unwrap()
            .get(url)
            .send()
            .await?
            .status()
            .as_u16())
    }

    /// Sends a text and returns what the listener sends until it closes or stays silent.
    async fn said_to(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let closed = tokio::time::timeout(LONG / 2, stream.read_to_end(&mut said)).await;
        // Unread bytes make the kernel reset the connection; the response arrived before that.
        let _ = closed.expect("the connection ends");
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Simulates a client that keeps sending requests and never reads: the responses fill the buffers
/// of both ends.
#[tokio::test]
async fn answers_that_nobody_reads_end_the_connection() {
    let stage = plain(Times {
        progress: SHORT,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let requests = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000);
    stream.write_all(requests.as_bytes()).await.unwrap();
    stage.ended("unread").await;
    drop(stream);
}

#[tokio::test]
async fn nor_does_it_help_to_read_a_byte_now_and_then() {
    let stage = plain(Times {
        progress: SHORT,
        ..TIMES
    });
    let (mut reading, mut writing) = TcpStream::connect(stage.address)
        .await
        .unwrap()
        .into_split();
    writing
        .write_all(
            "GET /big HTTP/1.1\r\nHost: a\r\n\r\n"
                .repeat(3000)
                .as_bytes(),
        )
        .await
        .unwrap();
    let trickle = tokio::spawn(async move {
        let mut byte = [0];
        while reading.read_exact(&mut byte).await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    stage.ended("unread").await;
    trickle.abort();
}

/// Speaks HTTP/2 by hand: the client's streams have no window, or one byte of it, and its
/// connection is busy all the time.
#[tokio::test]
async fn a_stream_without_window_ends_the_connection() {
    for window in [0, 1] {
        let stage = plain(Times {
            progress: SHORT,
            ..TIMES
        });
        let (mut reading, mut writing) = TcpStream::connect(stage.address)
            .await
            .unwrap()
            .into_split();
        let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        begin.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, window]));
        begin.extend(frame(4, 1, 0, &[]));
        // GET http://a/small, from the static table.
        begin.extend(frame(1, 5, 1, b"\x82\x86\x04\x06/small\x01\x01a"));
        writing.write_all(&begin).await.unwrap();
        let pings = tokio::spawn(async move {
            while writing
                .write_all(&frame(6, 0, 0, b"pingping"))
                .await
                .is_ok()
            {
                tokio::time::sleep(SHORT / 10).await;
            }
        });
        let answers = tokio::spawn(async move {
            let mut all = Vec::new();
            let _ = reading.read_to_end(&mut all).await;
            all
        });
        stage.ended("unread").await;
        let all = answers.await.unwrap();
        assert!(
            all.windows(5).any(|kind| kind == [1, 4, 0, 0, 0]),
            "the head of an answer came: {all:?}"
        );
        pings.await.unwrap();
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test]
async fn a_client_without_a_request_is_left() {
    let stage = plain(Times {
        first_byte: SHORT,
        ..TIMES
    });
    let stream = TcpStream::connect(stage.address).await.unwrap();
    stage.ended("silent").await;
    drop(stream);

    // A head that never ends, sent one byte at a time by a client that could still switch to
    // HTTP/2.
    let stage = plain(Times {
        idle: SHORT,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(b"PRI * HT").await.unwrap();
    stage.ended("idle").await;
}

/// Sends the HTTP/2 preface and then nothing: the library itself sets no limit on waiting for a
/// request.
#[tokio::test]
async fn a_preface_is_no_request() {
    let stage = plain(Times {
        head: SHORT,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stage.ended("silent").await;
}

/// PRIORITY frames have no effect and are read as fast as they arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_keeps_the_socket_full_is_left() {
    let stage = plain(Times {
        idle: SHORT * 2,
        ..TIMES
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    let flood = frame(2, 0, 1, &[0, 0, 0, 0, 1]).repeat(64 * 1024);
    let flood = tokio::spawn(async move { while stream.write_all(&flood).await.is_ok() {} });
    stage.ended("idle").await;
    tokio::time::timeout(LONG / 2, flood)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_health_listener_keeps_room_for_others_than_one_address() {
    let stage = plain(TIMES);
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(TcpStream::connect(stage.address).await.unwrap());
    }
    stage
        .until("keyferry_connections_refused_total{listener=\"health\",cause=\"address_limit\"} 8")
        .await;
    stage
        .until("keyferry_connections_open{listener=\"health\"} 32")
        .await;
}

/// Checks the token API's stream limit in its SETTINGS, and which sources have limits of their own.
#[tokio::test]
async fn the_token_api_takes_few_streams_and_each_address_is_a_source() {
    let stage = plain_of(Bounds {
        times: TIMES,
        ..Bounds::TOKENS
    });
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!((head[..2].to_vec(), head[3]), (vec![0, 0], 4));
    let mut settings = vec![0; head[2].into()];
    stream.read_exact(&mut settings).await.unwrap();
    assert!(
        settings
            .chunks(6)
            .any(|setting| setting == [0, 3, 0, 0, 0, 32]),
        "{settings:?}"
    );
    let each =
        [Bounds::TOKENS, Bounds::DOCUMENTS, Bounds::HEALTH].map(|bounds| bounds.each_address);
    assert_eq!(each, [true, false, true]);
}

#[tokio::test]
async fn half_open_connections_of_one_address_keep_nobody_else_out() {
    let stage = tls(
        Bounds {
            connections: 4,
            handshakes: 8,
            times: TIMES,
            ..Bounds::DOCUMENTS
        },
        4,
    );
    let mut half_open = Vec::new();
    for _ in 0..20 {
        half_open.push(TcpStream::connect(stage.address).await.unwrap());
    }
    stage
        .until(
            "keyferry_connections_refused_total{listener=\"discovery\",cause=\"address_limit\"} 16",
        )
        .await;
    assert_eq!(stage.get_from([127, 0, 0, 2]).await.unwrap(), 200);
    assert!(
        stage.get_from([127, 0, 0, 1]).await.is_err(),
        "it has as many as it may have"
    );
    drop(half_open);
    stage.until("keyferry_connections_refused_total{listener=\"discovery\",cause=\"handshake_failed\"} 4").await;
    assert_eq!(stage.get_from([127, 0, 0, 1]).await.unwrap(), 200);
}

#[tokio::test]
async fn handshakes_take_no_place_of_a_connection_and_have_a_deadline() {
    let stage = tls(
        Bounds {
            connections: 1,
            handshakes: 3,
            times: Times {
                handshake: SHORT * 4,
                ..TIMES
            },
            ..Bounds::DOCUMENTS
        },
        0,
    );
    let mut half_open = Vec::new();
    for _ in 0..2 {
        half_open.push(TcpStream::connect(stage.address).await.unwrap());
    }
    assert_eq!(
        stage.get_from([127, 0, 0, 1]).await.unwrap(),
        200,
        "two of three are half open, and none is a connection"
    );
    stage.until("keyferry_connections_refused_total{listener=\"discovery\",cause=\"handshake_failed\"} 2").await;
    for mut stream in half_open {
        let mut byte = [0];
        assert!(
            matches!(stream.read(&mut byte).await, Ok(0) | Err(_)),
            "it was closed"
        );
    }
}

#[tokio::test]
async fn a_source_that_holds_all_it_may_is_not_counted_for_another() {
    let stage = tls(
        Bounds {
            connections: 8,
            handshakes: 8,
            times: TIMES,
            ..Bounds::DOCUMENTS
        },
        2,
    );
    let mut held = Vec::new();
    for last in 2..5 {
        for _ in 0..2 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, last], 0).into()).unwrap();
            held.push(socket.connect(stage.address).await.unwrap());
        }
    }
    assert_eq!(stage.get_from([127, 0, 0, 9]).await.unwrap(), 200);
}

/// Uses the shipped limits, with times that end nothing meanwhile. One address opens 2,048
/// connections, keeps sending requests on each that it gets, and reads nothing.
#[tokio::test]
async fn two_thousand_stalled_connections_of_one_address_shut_no_discovery() {
    let stage = tls(
        Bounds {
            times: TIMES,
            ..Bounds::DOCUMENTS
        },
        256,
    );
    let (address, config) = (
        stage.address,
        client_config(&stage.ca_pem, &rustls::version::TLS13).unwrap(),
    );
    let stalled = tokio::task::spawn_blocking(move || {
        let requests = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50);
        let stall = |socket: std::net::TcpStream| {
            let mut client = rustls::ClientConnection::new(
                Arc::clone(&config),
                ServerName::try_from("127.0.0.1").unwrap(),
            )
            .unwrap();
            let mut socket = socket;
            while client.is_handshaking() {
                client.complete_io(&mut socket).ok()?;
            }
            std::io::Write::write_all(&mut client.writer(), requests.as_bytes()).unwrap();
            while client.wants_write() {
                client.write_tls(&mut socket).ok()?;
            }
            Some(socket)
        };
        let sockets: Vec<_> = (0..2048)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        sockets.into_iter().filter_map(stall).collect::<Vec<_>>()
    });
    let stalled = stalled.await.unwrap();
    assert_eq!(
        stalled.len(),
        256,
        "each connection that is admitted stalls"
    );
    stage.until("keyferry_connections_refused_total{listener=\"discovery\",cause=\"address_limit\"} 1792").await;
    assert_eq!(stage.get_from([127, 0, 0, 2]).await.unwrap(), 200);
    drop(stalled);
}

/// A TLS client configuration that trusts only this CA.
fn client_config(
    ca_pem: &str,
    version: &'static SupportedProtocolVersion,
) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version])?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}

/// Returns the kind of a handshake, and of a second one that may resume from what the client kept.
async fn handshakes(
    stage: &Stage,
    version: &'static SupportedProtocolVersion,
) -> Result<[rustls::HandshakeKind; 2], rustls::Error> {
    let (address, ca_pem) = (stage.address, stage.ca_pem.clone());
    let both = tokio::task::spawn_blocking(move || {
        let config = client_config(&ca_pem, version)?;
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let mut client = rustls::ClientConnection::new(Arc::clone(&config), name)?;
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            while client.is_handshaking() {
                client.complete_io(&mut socket).map_err(|error| {
                    match error.downcast::<rustls::Error>() {
                        Ok(error) => error,
                        Err(error) => rustls::Error::General(error.to_string()),
                    }
                })?;
            }
            // The server's session tickets arrive with its first response.
            let mut stream = rustls::Stream::new(&mut client, &mut socket);
            std::io::Write::write_all(
                &mut stream,
                b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            )
            .unwrap();
            let mut answer = Vec::new();
            let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
            assert!(
                answer.ends_with(b"document"),
                "{}",
                String::from_utf8_lossy(&answer)
            );
            kinds.push(client.handshake_kind().unwrap());
        }
        Ok([kinds[0], kinds[1]])
    });
    both.await.unwrap()
}

#[tokio::test]
async fn the_token_api_speaks_tls_1_3_and_no_session_is_resumed() {
    use rustls::HandshakeKind::Full;
    use rustls::version::{TLS12, TLS13};

    let resumed =
        |kinds: [rustls::HandshakeKind; 2]| kinds.contains(&rustls::HandshakeKind::Resumed);
    let api = tls(Bounds::TOKENS, 0);
    assert!(!resumed(handshakes(&api, &TLS13).await.unwrap()));
    let refused = handshakes(&api, &TLS12).await.unwrap_err();
    assert!(
        matches!(
            refused,
            rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion)
        ),
        "{refused}"
    );
    let documents = tls(Bounds::DOCUMENTS, 0);
    assert!(!resumed(handshakes(&documents, &TLS13).await.unwrap()));
    assert_eq!(
        handshakes(&documents, &TLS12).await.unwrap(),
        [Full, Full],
        "old verifiers still read the keys"
    );
}

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
