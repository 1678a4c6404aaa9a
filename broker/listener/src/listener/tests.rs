//! What clients can do to a listener, tested with raw sockets and short time limits. The listeners
//! that the tests start, and their TLS.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod connection_limits;
mod framing;
mod time_limits;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::any;
use futures::future::BoxFuture;
use futures::stream;
use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::config::{Listener, TlsSource, TlsVersion};
use keyferry_testing::{Authority, ServerIdentity};
use parking_lot::Mutex;
use rustls::SupportedProtocolVersion;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Bounds, PlainListener, TlsListener};
use crate::certificate_source::{
    CertificateContent, CertificateRead, CertificateSource, ReadSecret,
};
use crate::connection::Times;
use crate::gate::MAX_PAUSE;
use crate::metrics::ListenerMetrics;
use crate::source::Source;

/// Longer than any wait in these tests takes on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// Limits that no test reaches unless it shortens one.
const TIMES: Times = Times {
    handshake: LONG_TIMEOUT,
    first_byte: LONG_TIMEOUT,
    head: LONG_TIMEOUT,
    progress: LONG_TIMEOUT,
    idle: LONG_TIMEOUT,
};
const SHORT: Duration = Duration::from_millis(500);

fn routes() -> Router {
    let big = vec![b'x'; 64 * 1024];
    Router::new()
        .route("/small", any(async || "document"))
        .route("/big", any(async move || big.clone()))
        .route("/echo", any(async |body: Bytes| body))
}

/// Counts by listener and event, as in `api open` or `api refused: address_limit`.
#[derive(Debug, Default)]
pub(crate) struct CountedMetrics(Mutex<BTreeMap<String, i64>>);

impl CountedMetrics {
    pub(crate) fn count(&self, name: &str) -> i64 {
        self.0.lock().get(name).copied().unwrap_or_default()
    }

    fn add(&self, name: String, amount: i64) {
        *self.0.lock().entry(name).or_default() += amount;
    }
}

impl ListenerMetrics for CountedMetrics {
    fn connection_refused(&self, listener: &'static str, cause: &'static str) {
        self.add(format!("{listener} refused: {cause}"), 1);
    }

    fn connection_opened(&self, listener: &'static str) {
        self.add(format!("{listener} open"), 1);
    }

    fn connection_ended(&self, listener: &'static str, cause: &'static str) {
        self.add(format!("{listener} ended: {cause}"), 1);
    }

    fn connection_paused(&self, listener: &'static str) {
        self.add(format!("{listener} paused"), 1);
    }

    fn connection_closed(&self, listener: &'static str) {
        self.add(format!("{listener} open"), -1);
    }

    fn serving_certificate(&self, _: &'static str, _: i64) {}

    fn serving_certificate_reloaded(&self, listener: &'static str, good: bool) {
        self.add(format!("{listener} reloaded: {good}"), 1);
    }
}

/// A certificate that never changes.
struct FixedCertificate(ServerIdentity);

impl CertificateSource for FixedCertificate {
    fn read_certificate(&self) -> BoxFuture<'_, CertificateRead> {
        let content = CertificateContent {
            certificate_at: "tls.crt".to_owned(),
            key_at: "tls.key".to_owned(),
            certificate: self.0.certificate_pem.clone().into_bytes(),
            key: SecretSlice::from(self.0.key_pem.expose_secret().as_bytes().to_vec()),
            authority: None,
        };
        let read = CertificateRead {
            content: Ok(content),
            secret: None,
            read_at: now(),
        };
        Box::pin(std::future::ready(read))
    }

    fn wait_for_change<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn report_finding<'a>(
        &'a self,
        _: Option<&'a ReadSecret>,
        _: &'a Finding,
    ) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The present time: certificates of tests are valid from now on.
#[allow(
    clippy::disallowed_methods,
    reason = "the library that makes the certificates reads the clock"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

struct Stage {
    address: SocketAddr,
    metrics: Arc<CountedMetrics>,
    ca_pem: String,
}

fn plain(times: Times) -> Stage {
    plain_of(Bounds {
        times,
        ..Bounds::HEALTH
    })
}

fn plain_of(bounds: Bounds) -> Stage {
    let metrics = Arc::<CountedMetrics>::default();
    let address = ([127, 0, 0, 1], 0).into();
    let listener = PlainListener::bind(address, bounds, Arc::clone(&metrics) as _).unwrap();
    serve_stage(listener, metrics)
}

/// A listener whose next request from here pauses its connection for as long as one may.
fn plain_above_the_rate() -> Stage {
    let metrics = Arc::<CountedMetrics>::default();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = PlainListener::bind(address, Bounds::HEALTH, Arc::clone(&metrics) as _).unwrap();
    let here = Source::of_address(address.ip());
    while listener.gate.count_request(here) < MAX_PAUSE {}
    serve_stage(listener, metrics)
}

fn serve_stage(listener: PlainListener, metrics: Arc<CountedMetrics>) -> Stage {
    let address = listener.socket.local_addr().unwrap();
    tokio::spawn(listener.serve(routes()));
    Stage {
        address,
        metrics,
        ca_pem: String::new(),
    }
}

async fn tls(bounds: Bounds, per_address: u32) -> Stage {
    tls_from(bounds, per_address, TlsVersion::V1_3).await
}

async fn tls_from(bounds: Bounds, per_address: u32, min_version: TlsVersion) -> Stage {
    let authority = Authority::new("test CA").unwrap();
    let metrics = Arc::<CountedMetrics>::default();
    let identity = authority.server_identity(&["127.0.0.1"]).unwrap();
    let address = ([0, 0, 0, 0], 0).into();
    let listener = Listener {
        address,
        tls: TlsSource::Unset,
        min_version,
        connections_per_address: NonZeroU32::new(per_address),
    };
    let listener = TlsListener::bind(
        &listener,
        bounds,
        Some("127.0.0.1"),
        Arc::new(FixedCertificate(identity)),
        Arc::clone(&metrics) as _,
    )
    .await
    .unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], listener.address().unwrap().port()));
    tokio::spawn(listener.serve(routes(), stream::pending()));
    Stage {
        address,
        metrics,
        ca_pem: authority.ca_pem().to_owned(),
    }
}

impl Stage {
    /// Waits until the metrics have this count.
    async fn until(&self, name: &str, count: i64) {
        let deadline = tokio::time::Instant::now() + LONG_TIMEOUT / 2;
        while self.metrics.count(name) != count {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{name} {count} did not come: {:?}",
                self.metrics
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn ended(&self, cause: &str) {
        let listener = if self.ca_pem.is_empty() {
            "health"
        } else {
            "discovery"
        };
        self.until(&format!("{listener} ended: {cause}"), 1).await;
        self.until(&format!("{listener} open"), 0).await;
    }

    /// Sends a request over TLS from an address of this machine.
    async fn get_from(&self, from: [u8; 4]) -> reqwest::Result<u16> {
        let ca = reqwest::Certificate::from_pem(self.ca_pem.as_bytes()).unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([ca])
            .local_address(IpAddr::from(from))
            .timeout(LONG_TIMEOUT / 2);
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
        let closed = tokio::time::timeout(LONG_TIMEOUT / 2, stream.read_to_end(&mut said)).await;
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
