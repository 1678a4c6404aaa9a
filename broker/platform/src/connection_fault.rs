//! Explains why a connection failed, in words that a person can act on.
//!
//! The cause is found by the types of the nested errors, never by their texts, which may quote
//! secrets.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use keyferry_keys::certificate_names::{self, CertificateNames};
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time limit for finding out more about a failure.
const DIAGNOSIS_DEADLINE: Duration = Duration::from_secs(2);
/// The limit for a server's handshake; its first messages are always smaller.
const MAX_HANDSHAKE_BYTES: usize = 256 * 1024;
/// How many nested errors are examined. A chain has no cycle, but may be long.
const MAX_DEPTH: usize = 16;

/// The kind of a connection failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionFaultKind {
    /// No process listens on the port.
    Refused,
    /// The name does not resolve.
    HostNotFound,
    /// There is no route to the host.
    NoRoute,
    /// The certificate's CA is not trusted: no CA was configured, or another one.
    UnknownAuthority,
    /// The certificate is for other names.
    OtherNames,
    /// Something else is wrong with the certificate.
    Certificate(String),
    /// The server does not speak TLS.
    NotTls,
    /// The cause is unknown.
    Other,
}

/// A connection failure with an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionFault {
    /// The kind of the failure.
    pub kind: ConnectionFaultKind,
    /// The explanation, without the address, which the caller prints anyway.
    pub text: String,
}

/// The endpoint of a failed connection, for further checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    server_name: String,
    /// The addresses that may be connected to; `None` where the name may be resolved again.
    addresses: Option<Vec<SocketAddr>>,
    /// Whether host and port are those of a proxy, through which the server is reached.
    is_proxy: bool,
}

impl Endpoint {
    /// Takes the host and port from a URL.
    #[must_use]
    pub fn of_url(url: &url::Url) -> Option<Self> {
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self {
            server_name: host.clone(),
            host,
            port: url.port_or_known_default()?,
            addresses: None,
            is_proxy: false,
        })
    }

    /// Returns the same endpoint at these addresses. The name is not resolved again, because another
    /// answer could name an address that was not checked.
    #[must_use]
    pub fn with_addresses(self, addresses: &[SocketAddr]) -> Self {
        Self {
            addresses: Some(addresses.to_vec()),
            ..self
        }
    }

    /// The server's host and port; `None` behind a proxy.
    pub fn direct_address(&self) -> Option<(&str, u16)> {
        (!self.is_proxy).then_some((self.host.as_str(), self.port))
    }

    /// Returns the proxy through which this server is reached.
    #[must_use]
    pub fn behind_proxy(self, host: &str, port: u16) -> Self {
        Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            addresses: None,
            is_proxy: true,
            ..self
        }
    }

    /// Returns the same endpoint with another expected certificate name.
    #[must_use]
    pub fn with_server_name(self, name: &str) -> Self {
        Self {
            server_name: name.to_owned(),
            ..self
        }
    }
}

impl ConnectionFaultKind {
    /// Derives the kind from the error's types.
    fn of_error(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        for _ in 0..MAX_DEPTH {
            let Some(current) = next else { break };
            if let Some(fault) = current.downcast_ref::<rustls::Error>() {
                return Self::of_tls(fault);
            }
            let io = current.downcast_ref::<std::io::Error>();
            match io.map(std::io::Error::kind) {
                Some(std::io::ErrorKind::ConnectionRefused) => return Self::Refused,
                Some(
                    std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable,
                ) => return Self::NoRoute,
                _ => {}
            }
            // `source()` of an I/O error skips the inner error itself; only `get_ref` returns it.
            next = match io.and_then(std::io::Error::get_ref) {
                Some(within) => Some(within),
                None => current.source(),
            };
        }
        Self::Other
    }

    fn of_tls(fault: &rustls::Error) -> Self {
        match fault {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                Self::UnknownAuthority
            }
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Self::OtherNames,
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => Self::Certificate("its certificate has expired".to_owned()),
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => Self::Certificate("its certificate is not valid yet".to_owned()),
            rustls::Error::InvalidCertificate(other) => Self::Certificate(
                format!("its certificate is not accepted: {other:?}")
                    .chars()
                    .take(300)
                    .collect(),
            ),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            _ => Self::Other,
        }
    }
}

impl ConnectionFault {
    /// Finds the cause of an error. If the error leaves it open, resolves the name again, or reads
    /// the certificate in a separate handshake that sends no data. Through a proxy, it reads no
    /// certificate, and without an endpoint it does neither.
    pub async fn diagnose(
        error: &(dyn Error + Send + Sync + 'static),
        place: Option<&Endpoint>,
    ) -> Self {
        let kind = ConnectionFaultKind::of_error(error);
        let (kind, names) = match (kind, place) {
            (ConnectionFaultKind::Other, Some(place)) if !place.resolves_now().await => {
                (ConnectionFaultKind::HostNotFound, None)
            }
            (
                kind @ (ConnectionFaultKind::UnknownAuthority | ConnectionFaultKind::OtherNames),
                Some(place),
            ) if !place.is_proxy => (kind, place.presented_names().await),
            (kind, _) => (kind, None),
        };
        Self {
            text: fault_text(&kind, place, names.as_ref()),
            kind,
        }
    }
}

fn fault_text(
    kind: &ConnectionFaultKind,
    place: Option<&Endpoint>,
    names: Option<&CertificateNames>,
) -> String {
    let at = |what: &str| {
        place.map_or_else(
            || what.to_owned(),
            |place| format!("{what} at {}", place.shown()),
        )
    };
    let proxy = place.filter(|place| place.is_proxy).map(Endpoint::shown);
    match kind {
        ConnectionFaultKind::Refused => at("connection refused"),
        ConnectionFaultKind::HostNotFound => place.map_or_else(
            || "host not found".to_owned(),
            |place| match &proxy {
                Some(proxy) => format!("host not found: {proxy}"),
                None => format!("host not found: {}", place.host),
            },
        ),
        ConnectionFaultKind::NoRoute => at("there is no route"),
        ConnectionFaultKind::UnknownAuthority => match names {
            Some(names) => format!(
                "its certificate is signed by an unknown CA (issuer {})",
                names.issuer
            ),
            None => {
                let cause = proxy.map(|proxy| format!(", which {proxy} may have put in place"));
                format!(
                    "its certificate is signed by an unknown CA{}",
                    cause.unwrap_or_default()
                )
            }
        },
        ConnectionFaultKind::OtherNames => {
            let asked = place.map_or("this name", |place| place.server_name.as_str());
            match names.map(|names| names.subjects.as_slice()) {
                Some([]) => format!("its certificate is for no name at all, and not for {asked}"),
                Some(names) => format!(
                    "its certificate is for {}; not for {asked}",
                    names.join(", ")
                ),
                None => format!("its certificate is for other names, and not for {asked}"),
            }
        }
        ConnectionFaultKind::Certificate(text) => text.clone(),
        ConnectionFaultKind::NotTls => "the server there does not speak TLS".to_owned(),
        ConnectionFaultKind::Other => match proxy {
            Some(proxy) => format!(
                "{proxy} led to no answer: it refuses the connection, does not reach the server, or \
                 wants other credentials"
            ),
            None => "the connection failed".to_owned(),
        },
    }
}

impl Endpoint {
    fn shown(&self) -> String {
        let what = if self.is_proxy { "the proxy " } else { "" };
        match self.host.contains(':') {
            true => format!("{what}[{}]:{}", self.host, self.port),
            false => format!("{what}{}:{}", self.host, self.port),
        }
    }

    async fn resolves_now(&self) -> bool {
        if self.host.parse::<IpAddr>().is_ok() {
            return true;
        }
        if let Some(addresses) = &self.addresses {
            return !addresses.is_empty();
        }
        let found = tokio::time::timeout(
            DIAGNOSIS_DEADLINE,
            tokio::net::lookup_host((self.host.as_str(), self.port)),
        )
        .await;
        // A resolver that does not answer in time proves nothing.
        !matches!(found, Ok(Err(_)))
    }

    /// Returns the names in the certificate that the server presents.
    async fn presented_names(&self) -> Option<CertificateNames> {
        tokio::time::timeout(DIAGNOSIS_DEADLINE, self.presented_leaf())
            .await
            .ok()
            .flatten()
            .and_then(|leaf| certificate_names::read_names(&leaf))
    }

    async fn presented_leaf(&self) -> Option<Vec<u8>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let witness = Arc::new(Witness {
            leaf: Mutex::default(),
            schemes: provider
                .signature_verification_algorithms
                .supported_schemes(),
        });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?;
        let config = config
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>);
        let name = ServerName::try_from(self.server_name.clone()).ok()?;
        let mut connection =
            ClientConnection::new(Arc::new(config.with_no_client_auth()), name).ok()?;
        let connected = match &self.addresses {
            Some(addresses) => TcpStream::connect(addresses.as_slice()).await,
            None => TcpStream::connect((self.host.as_str(), self.port)).await,
        };
        let mut stream = connected.ok()?;
        let mut buffer = [0; 4096];
        let mut total = 0;
        loop {
            let mut out = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut out).ok()?;
            }
            stream.write_all(&out).await.ok()?;
            let read = stream.read(&mut buffer).await.ok()?;
            total += read;
            if read == 0 || total > MAX_HANDSHAKE_BYTES {
                return None;
            }
            let mut piece = buffer.get(..read)?;
            while !piece.is_empty() {
                connection.read_tls(&mut piece).ok()?;
                if connection.process_new_packets().is_err() {
                    return witness.leaf.lock().take();
                }
            }
        }
    }
}

/// Records the server's certificate and rejects every one, so that no connection is established.
#[derive(Debug)]
struct Witness {
    leaf: Mutex<Option<Vec<u8>>>,
    schemes: Vec<SignatureScheme>,
}

impl Witness {
    fn refusal_error() -> rustls::Error {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.leaf.lock() = Some(end_entity.to_vec());
        Err(Self::refusal_error())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Self::refusal_error())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Self::refusal_error())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use keyferry_testing::Authority;

    use super::{ConnectionFault, ConnectionFaultKind, Endpoint};

    /// Connects with a client that trusts only `authority`, and explains its error.
    async fn fault(url: &str, authority: &Authority) -> ConnectionFault {
        let roots = reqwest::Certificate::from_pem_bundle(authority.ca_pem().as_bytes()).unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(roots)
            .build()
            .unwrap();
        let error = client.get(url).send().await.unwrap_err();
        ConnectionFault::diagnose(&error, Endpoint::of_url(&url.parse().unwrap()).as_ref()).await
    }

    async fn server(authority: &Authority, names: &[&str]) -> u16 {
        let tls = authority
            .server_identity(names)
            .unwrap()
            .tls_config()
            .unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(server.serve(axum::Router::new().into_make_service()));
        port
    }

    #[tokio::test]
    async fn four_causes_have_four_texts() {
        let (authority, stranger) = (
            Authority::new("test CA").unwrap(),
            Authority::new("another CA").unwrap(),
        );
        let port = server(&authority, &["127.0.0.1", "k.example"]).await;
        let url = format!("https://127.0.0.1:{port}/");
        let untrusted = fault(&url, &stranger).await;
        assert_eq!(untrusted.kind, ConnectionFaultKind::UnknownAuthority);
        assert_eq!(
            untrusted.text,
            "its certificate is signed by an unknown CA (issuer CN=test CA)"
        );
        let other = fault(&format!("https://localhost:{port}/"), &authority).await;
        assert_eq!(
            other.text,
            "its certificate is for 127.0.0.1, k.example; not for localhost"
        );
        let free = std::net::TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(
            fault(&format!("https://{free}/"), &authority).await.text,
            format!("connection refused at {free}")
        );
        let unknown = fault("https://keyferry.invalid/", &authority).await;
        assert_eq!(
            (unknown.kind, unknown.text.as_str()),
            (
                ConnectionFaultKind::HostNotFound,
                "host not found: keyferry.invalid"
            )
        );
    }

    #[tokio::test]
    async fn a_fault_behind_a_proxy_names_the_proxy() {
        use std::io::{Error, ErrorKind};
        let untrusted = || {
            let cause = rustls::CertificateError::UnknownIssuer;
            Error::other(rustls::Error::InvalidCertificate(cause))
        };
        let server = Endpoint::of_url(&"https://hub.example:6443".parse().unwrap()).unwrap();
        for (error, proxy, text) in [
            (
                Error::from(ErrorKind::ConnectionRefused),
                "127.0.0.1",
                "connection refused at the proxy 127.0.0.1:3128",
            ),
            (
                Error::other("407"),
                "keyferry.invalid",
                "host not found: the proxy keyferry.invalid:3128",
            ),
            (
                Error::other("407"),
                "[::1]",
                "the proxy [::1]:3128 led to no answer: it refuses the connection, does not reach \
                 the server, or wants other credentials",
            ),
            (
                untrusted(),
                "127.0.0.1",
                "its certificate is signed by an unknown CA, which the proxy 127.0.0.1:3128 may \
                 have put in place",
            ),
        ] {
            let endpoint = server.clone().behind_proxy(proxy, 3128);
            assert_eq!(endpoint.direct_address(), None);
            let fault = ConnectionFault::diagnose(&error, Some(&endpoint)).await;
            assert_eq!(fault.text, text);
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_told_from_one_with_a_wrong_certificate() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, axum::Router::new()).into_future());
        assert_eq!(
            fault(
                &format!("https://{address}/"),
                &Authority::new("test CA").unwrap()
            )
            .await
            .kind,
            ConnectionFaultKind::NotTls
        );
    }
}
