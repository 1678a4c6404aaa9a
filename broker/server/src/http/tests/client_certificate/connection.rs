//! A token API on a socket, and clients that present any bytes as their certificate.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use keyferry_api::config::{Listener, TlsFiles, TlsSource, TlsVersion};
use keyferry_keys::testing::client_certificates::TestCertificate;
use keyferry_listener::{Bounds, ClientCertificates};
use keyferry_platform::metrics::Metrics;
use keyferry_platform::reload_signal::ReloadSignal;
use keyferry_testing::Authority;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, SignatureScheme, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::ExposeSecret;
use tempfile::TempDir;

use crate::broker::Broker;
use crate::http::health::HealthParts;
use crate::http::listener::{self, CertificateAccess};
use crate::http::token_api::{self, ApiParts, PublicParts};
use crate::inputs::Inputs;

/// A token API that asks for client certificates.
pub(super) struct Server {
    address: SocketAddr,
    ca_pem: String,
    _folder: TempDir,
}

impl Server {
    pub(super) async fn start(
        broker: Broker,
        health: HealthParts,
        inputs: Option<Arc<Inputs>>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test CA").unwrap();
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
            min_version: TlsVersion::V1_3,
            connections_per_address: None,
        };
        let access = CertificateAccess::default();
        let bounds = Bounds::TOKENS.with_client_certificates(ClientCertificates::Requested);
        let listener =
            listener::bind_listener(&listener, bounds, None, &access, &Metrics::default())
                .await
                .unwrap();
        let address = listener.address().unwrap();
        let public = PublicParts {
            health,
            metadata: None,
            has_inputs: inputs.is_some(),
        };
        let routes = token_api::token_api_routes(ApiParts {
            broker: Arc::new(broker),
            counts_sources: false,
            inputs,
            public,
        });
        tokio::spawn(listener.serve(routes, ReloadSignal::never().into_stream()));
        Self {
            address,
            ca_pem: authority.ca_pem().to_owned(),
            _folder: folder,
        }
    }

    /// A client with this certificate, whether or not it can be one.
    pub(super) fn client(&self, certificate: Option<&TestCertificate>) -> Client {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).unwrap())
            .unwrap();
        let presented = certificate.map(|certificate| {
            let key = aws_lc_rs::sign::any_supported_type(&certificate.private_key()).unwrap();
            Arc::new(CertifiedKey::new(certificate.chain.clone(), key))
        });
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(roots)
                .with_client_cert_resolver(Arc::new(Presenter(presented)));
        config.resumption = Resumption::in_memory_sessions(16);
        Client {
            address: self.address,
            config,
        }
    }
}

/// Presents the certificate to every server, unchecked.
#[derive(Debug)]
struct Presenter(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for Presenter {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    config: ClientConfig,
}

/// What does not differ between two answers of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// All headers but the request id and the date, sorted.
    pub(super) headers: Vec<String>,
    pub(super) body: String,
}

impl Client {
    /// The same client, with the same sessions, but without its certificate.
    pub(super) fn without_certificate(&self) -> Self {
        let mut client = self.clone();
        client.config.client_auth_cert_resolver = Arc::new(Presenter(None));
        client
    }

    /// Sends one request over a connection of its own.
    pub(super) async fn once(&self, request: String) -> std::io::Result<Answer> {
        self.connect().await?.ask(request).await
    }

    pub(super) async fn connect(&self) -> std::io::Result<Connection> {
        let (address, config) = (self.address, Arc::new(self.config.clone()));
        tokio::task::spawn_blocking(move || {
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let session = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
            let socket = std::net::TcpStream::connect(address)?;
            Ok(Connection(Some(StreamOwned::new(session, socket))))
        })
        .await
        .unwrap()
    }
}

pub(super) struct Connection(Option<StreamOwned<ClientConnection, std::net::TcpStream>>);

impl Connection {
    /// Sends a request and reads its answer. The connection stays open.
    pub(super) async fn ask(&mut self, request: String) -> std::io::Result<Answer> {
        let mut stream = self.0.take().unwrap();
        let (stream, answer) = tokio::task::spawn_blocking(move || {
            let answer = stream
                .write_all(request.as_bytes())
                .and_then(|()| read(&mut stream));
            (stream, answer)
        })
        .await
        .unwrap();
        self.0 = Some(stream);
        answer
    }

    pub(super) fn handshake_kind(&self) -> HandshakeKind {
        self.0.as_ref().unwrap().conn.handshake_kind().unwrap()
    }
}

fn read(stream: &mut impl Read) -> std::io::Result<Answer> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let varies = |line: &&str| !line.starts_with("x-request-id:") && !line.starts_with("date:");
    let mut headers: Vec<String> = lines.filter(varies).map(str::to_owned).collect();
    headers.sort();
    let length = headers
        .iter()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body)?;
    Ok(Answer {
        status: status.parse().unwrap(),
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}
