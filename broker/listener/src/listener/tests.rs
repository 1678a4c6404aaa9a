//! What clients can do to a listener, tested with raw sockets and short time limits. The listeners
//! that the tests start, and their TLS.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod connection_limits;
mod framing;
mod time_limits;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use keyferry_api::config::{Listener, TlsFiles, TlsSource, TlsVersion};
use keyferry_hub::metrics::Metrics;
use keyferry_hub::reload_signal::ReloadSignal;
use keyferry_testing::Authority;
use rustls::SupportedProtocolVersion;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Bounds, CertificateAccess, PlainListener, TlsListener};
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

async fn tls(bounds: Bounds, per_address: u32) -> Stage {
    tls_from(bounds, per_address, TlsVersion::V1_3).await
}

async fn tls_from(bounds: Bounds, per_address: u32, min_version: TlsVersion) -> Stage {
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
        tls: TlsSource::Files(files),
        min_version,
        connections_per_address: NonZeroU32::new(per_address),
    };
    let access = CertificateAccess::default();
    let listener = TlsListener::bind(
        &listener,
        bounds,
        Some("127.0.0.1"),
        &access,
        metrics.clone(),
    )
    .await
    .unwrap();
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
    let api = tls(Bounds::TOKENS, 0).await;
    assert!(!resumed(handshakes(&api, &TLS13).await.unwrap()));
    let refused = handshakes(&api, &TLS12).await.unwrap_err();
    assert!(
        matches!(
            refused,
            rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion)
        ),
        "{refused}"
    );
    let documents = tls(Bounds::DOCUMENTS, 0).await;
    assert!(!resumed(handshakes(&documents, &TLS13).await.unwrap()));
    assert!(handshakes(&documents, &TLS12).await.is_err());
    let for_old = tls_from(Bounds::DOCUMENTS, 0, TlsVersion::V1_2).await;
    assert_eq!(
        handshakes(&for_old, &TLS12).await.unwrap(),
        [Full, Full],
        "old verifiers still read the keys"
    );
    assert!(!resumed(handshakes(&for_old, &TLS13).await.unwrap()));
}
