//! Builds every HTTPS client for servers other than the hub: targets, issuers' documents and
//! Keyferry's own token API.
//!
//! Such a client speaks https only, follows no redirect and takes no proxy from the environment,
//! so a token goes only to the address that it was meant for.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretSlice};

use crate::gzip::{self, GzipError};

/// Why no client was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpsClientError {
    /// The text has no CA certificate, or one that cannot be parsed.
    #[error("it holds no CA certificates in PEM")]
    Authority,
    /// The text has no certificate, no key, or an encrypted one.
    #[error("it holds no certificate and key in PEM")]
    ClientCertificate,
    /// The proxy is not a URL that can be used.
    #[error("it is not the URL of a proxy")]
    Proxy,
    /// The TLS library refused, for example because the system has no root certificates.
    #[error("no HTTPS client can be made; is there a CA to trust?")]
    Tls,
}

/// Builds one HTTPS client.
pub struct HttpsClientBuilder(reqwest::ClientBuilder);

impl HttpsClientBuilder {
    /// Starts a client whose calls take at most `deadline` each, with the system's roots.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self(
            reqwest::Client::builder()
                .https_only(true)
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .timeout(deadline),
        )
    }

    /// Trusts only these CA certificates in PEM, or the system's roots if none are given.
    ///
    /// # Errors
    /// [`HttpsClientError::Authority`].
    pub fn trust_authority(self, ca_pem: Option<&[u8]>) -> Result<Self, HttpsClientError> {
        match ca_pem {
            Some(pem) => self.trusting_only(pem),
            None => Ok(self),
        }
    }

    /// Trusts only the CA certificates in `pem`.
    ///
    /// # Errors
    /// [`HttpsClientError::Authority`].
    pub fn trusting_only(self, pem: &[u8]) -> Result<Self, HttpsClientError> {
        let certificates = reqwest::Certificate::from_pem_bundle(pem)
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or(HttpsClientError::Authority)?;
        Ok(Self(self.0.tls_certs_only(certificates)))
    }

    /// Presents a client certificate to every server: PEM with its chain and its private key.
    ///
    /// # Errors
    /// [`HttpsClientError::ClientCertificate`].
    pub fn present_certificate(self, pem: &SecretSlice<u8>) -> Result<Self, HttpsClientError> {
        let identity = reqwest::Identity::from_pem(pem.expose_secret())
            .map_err(|_| HttpsClientError::ClientCertificate)?;
        Ok(Self(self.0.identity(identity)))
    }

    /// Connects through this proxy, an http or https URL, and never to `host` directly. The HTTP
    /// client would ignore a proxy of any other kind, and connect to addresses that nobody checked.
    ///
    /// # Errors
    /// [`HttpsClientError::Proxy`].
    pub fn connect_through_proxy(
        self,
        proxy_url: &str,
        host: &str,
    ) -> Result<Self, HttpsClientError> {
        let uri: http::Uri = proxy_url.parse().map_err(|_| HttpsClientError::Proxy)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(HttpsClientError::Proxy);
        }
        let proxy = reqwest::Proxy::all(proxy_url).map_err(|_| HttpsClientError::Proxy)?;
        Ok(Self(self.0.proxy(proxy).resolve_to_addrs(host, &[])))
    }

    /// Connects to `addresses` if a URL has the host `name`, so that a certificate's name can
    /// differ from the name that is resolved.
    #[must_use]
    pub fn resolve_host_to(self, name: &str, addresses: &[SocketAddr]) -> Self {
        Self(self.0.resolve_to_addrs(name, addresses))
    }

    /// Uses a connection for one call only.
    #[must_use]
    pub fn without_reuse(self) -> Self {
        Self(self.0.pool_max_idle_per_host(0))
    }

    /// Limits the time to connect.
    #[must_use]
    pub fn connecting_within(self, limit: Duration) -> Self {
        Self(self.0.connect_timeout(limit))
    }

    /// Builds the client.
    ///
    /// # Errors
    /// [`HttpsClientError::Tls`].
    pub fn build(self) -> Result<reqwest::Client, HttpsClientError> {
        self.0.build().map_err(|_| HttpsClientError::Tls)
    }
}

/// Checks that a client can be built with these CA certificates in PEM, or the system's roots, so that
/// a mistake is found before the first request.
///
/// # Errors
/// [`HttpsClientError`].
pub fn check_authority(ca_pem: Option<&[u8]>) -> Result<(), HttpsClientError> {
    let builder = HttpsClientBuilder::new(Duration::ZERO).trust_authority(ca_pem)?;
    builder.build().map(|_| ())
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is longer than the limit.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// It says that it is gzip, and is not.
    #[error("{}", GzipError::Malformed)]
    Malformed,
    /// The connection failed before its end.
    #[error(transparent)]
    Connection(#[from] reqwest::Error),
}

/// Reads the body of a response, up to `limit` bytes. A body in gzip is unpacked, and the limit
/// holds for it as it was sent and as it is unpacked.
///
/// # Errors
/// [`BodyError`].
pub async fn read_body(
    response: &mut reqwest::Response,
    limit: usize,
) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Err(BodyError::TooLong(limit));
        }
        body.extend_from_slice(&chunk);
    }
    if !gzip::is_packed(response.headers()) {
        return Ok(body);
    }
    gzip::unpack_gzip(&body, limit).map_err(|error| match error {
        GzipError::TooLong => BodyError::TooLong(limit),
        GzipError::Malformed => BodyError::Malformed,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::response::Redirect;
    use axum::routing::get;
    use keyferry_testing::Authority;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    /// A server with a long answer and a redirect to it. Counts the requests for the long answer.
    async fn server(authority: &Authority) -> (u16, Arc<AtomicUsize>) {
        let tls = authority
            .server_identity(&["localhost", "other.test"])
            .unwrap()
            .tls_config()
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&served);
        let router = Router::new()
            .route(
                "/long",
                get(move || {
                    counter.fetch_add(1, Ordering::SeqCst);
                    async { "x".repeat(100_000) }
                }),
            )
            .route("/elsewhere", get(|| async { Redirect::to("/long") }));
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
        let bound = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(bound.serve(router.into_make_service()));
        (port, served)
    }

    fn trusting(authority: &Authority) -> HttpsClientBuilder {
        HttpsClientBuilder::new(DEADLINE)
            .trusting_only(authority.ca_pem().as_bytes())
            .unwrap()
    }

    #[tokio::test]
    async fn no_redirect_is_followed() {
        let authority = Authority::new("test CA").unwrap();
        let (port, served) = server(&authority).await;
        let url = format!("https://localhost:{port}/elsewhere");
        let plain = trusting(&authority).build().unwrap();
        assert_eq!(plain.get(&url).send().await.unwrap().status(), 303);
        assert_eq!(served.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn plain_http_and_texts_without_a_certificate_are_refused() {
        let authority = Authority::new("test CA").unwrap();
        let client = trusting(&authority).build().unwrap();
        let refused = client.get("http://localhost:1/").send().await.unwrap_err();
        assert!(refused.is_builder(), "{refused:?}");
        let refused = check_authority(Some(b"no PEM"));
        assert_eq!(refused, Err(HttpsClientError::Authority));
        assert_eq!(check_authority(Some(authority.ca_pem().as_bytes())), Ok(()));
        let proxy = HttpsClientBuilder::new(DEADLINE).connect_through_proxy("::", "a.test");
        assert_eq!(proxy.err(), Some(HttpsClientError::Proxy));
    }

    #[tokio::test]
    async fn a_body_ends_at_its_limit_and_a_name_at_its_addresses() {
        let authority = Authority::new("test CA").unwrap();
        let (port, _) = server(&authority).await;
        let client = trusting(&authority)
            .resolve_host_to("other.test", &[SocketAddr::from(([127, 0, 0, 1], port))])
            .build()
            .unwrap();
        let url = format!("https://other.test:{port}/long");
        let mut response = client.get(&url).send().await.unwrap();
        let cut = read_body(&mut response, 99_999).await;
        assert!(matches!(cut, Err(BodyError::TooLong(99_999))), "{cut:?}");
        let mut response = client.get(&url).send().await.unwrap();
        assert_eq!(
            read_body(&mut response, 100_000).await.unwrap().len(),
            100_000
        );
    }
}
