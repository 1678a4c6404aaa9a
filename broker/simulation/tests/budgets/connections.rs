//! Connections of one address to the token API: each has sent the largest head that is read, but for
//! its end, and keeps the largest chain of certificates.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use jiff::Timestamp;
use keyferry_api::config::{Listener, TlsFiles, TlsSource, TlsVersion};
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_keys::testing::NOW;
use keyferry_keys::testing::client_certificates::{TestAuthority, TestCertificate};
use keyferry_listener::{Bounds, ClientCertificates};
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_server::http::listener::{CertificateAccess, bind_listener};
use keyferry_testing::Authority;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;

use crate::cost::{Cost, KIB, Memory};

/// As many as one address may have.
const CONNECTIONS: usize = 256;
/// A little less than the largest head.
const HEAD_BYTES: usize = 31 * KIB;

/// Opens them one after the other, and keeps them.
pub(crate) async fn largest_connections() -> Cost {
    let (address, config) = start_server(long_chain()).await;
    // The first one fills what all share.
    drop(connect(address, Arc::clone(&config)).await);
    let memory = Memory::measure();
    let mut sockets = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        sockets.push(connect(address, Arc::clone(&config)).await);
    }
    memory.cost()
}

/// Starts the listener that `keyferry serve` opens, with no routes.
async fn start_server(certificate: TestCertificate) -> (SocketAddr, Arc<ClientConfig>) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("budgets CA").unwrap();
    let identity = authority.server_identity(&["127.0.0.1"]).unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
    };
    std::fs::write(&files.certificate, &identity.certificate_pem).unwrap();
    std::fs::write(&files.key, identity.key_pem.expose_secret()).unwrap();
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: TlsSource::Files(files),
        min_version: TlsVersion::default(),
        connections_per_address: None,
    };
    let bounds = Bounds::TOKENS.with_client_certificates(ClientCertificates::Requested);
    let (access, metrics) = (CertificateAccess::default(), Metrics::default());
    let bound = bind_listener(&listener, bounds, None, &access, &metrics);
    let server = bound.await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.serve(Router::new(), ReloadSignal::never().into_stream()));
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.ca_pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(certificate.chain.clone(), certificate.private_key())
        .unwrap();
    (address, Arc::new(config))
}

/// Connects and sends a head without its end. The client's own memory is free afterwards: only its
/// socket stays.
async fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> TcpStream {
    let connecting = tokio::task::spawn_blocking(move || {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(config, name).unwrap();
        let socket = TcpStream::connect(address).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        let padding = "x".repeat(HEAD_BYTES);
        write!(stream, "GET /v1/token HTTP/1.1\r\nhost: a\r\nx: {padding}").unwrap();
        stream.flush().unwrap();
        stream.sock
    });
    let socket = connecting.await.unwrap();
    // The server reads what was sent.
    tokio::time::sleep(Duration::from_millis(1)).await;
    socket
}

/// A client's certificate and three more, as large as the server reads.
fn long_chain() -> TestCertificate {
    let now = Timestamp::from_second(NOW).unwrap();
    let issue = |authority: &str| {
        TestAuthority::new(authority, now, |_| {}).issue("spiffe://budgets.test/caller", |_| {})
    };
    let mut certificate = issue("clients");
    for _ in 0..3 {
        certificate.chain.extend(issue(&"n".repeat(1900)).chain);
    }
    let (leaf, others) = certificate.chain.split_first().unwrap();
    PresentedChain::check_limits(leaf, others).unwrap();
    certificate
}
