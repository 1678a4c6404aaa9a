//! Fetches documents as a target does: anonymously, with one set of CA certificates, and following
//! redirects.

use std::time::Duration;

use keyferry_kube_authn::fetched::{Fetched, HttpResponse};
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::connection_fault::{ConnectionFault, ConnectionFaultKind, Endpoint};
use keyferry_platform::https_client::{BodyError, HttpsClientError, read_body};
use keyferry_platform::public_documents::{DocumentError, DocumentResponse, PublicDocuments};
use serde::Deserialize;

use crate::doctor::DoctorError;
use crate::lenient::{Lenient, or_default};

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 1 << 20;

/// An HTTPS client without credentials.
pub(crate) struct Fetcher(PublicDocuments);

impl Fetcher {
    /// Creates a client that trusts only these CA certificates, or the system's if none are given,
    /// and connects only where the guard allows.
    ///
    /// # Errors
    /// [`DoctorError::Authority`], [`DoctorError::Client`].
    pub(crate) fn new(ca_pem: Option<&[u8]>, guard: AddressGuard) -> Result<Self, DoctorError> {
        PublicDocuments::new(ca_pem, DEADLINE, guard)
            .map(Self)
            .map_err(|error| match error {
                HttpsClientError::Authority => DoctorError::Authority("the discovery document"),
                _ => DoctorError::Client,
            })
    }

    /// Fetches a URL with GET.
    pub(crate) async fn get(&self, url: &str) -> Fetched {
        self.get_linked(url, url).await
    }

    /// Fetches a URL that the document at `from` names.
    pub(crate) async fn get_linked(&self, url: &str, from: &str) -> Fetched {
        match self.0.get_linked(url, from).await {
            Ok(DocumentResponse { response, endpoint }) => {
                bounded(response, endpoint.as_ref()).await
            }
            Err(DocumentError::Request { error, endpoint }) => {
                fault(&error, endpoint.as_ref()).await
            }
            Err(DocumentError::Destination(refused)) => {
                Fetched::AddressRefused(refused.to_string())
            }
            Err(other) => Fetched::Unreachable(other.to_string()),
        }
    }
}

/// Sends a request and reads a response of limited size. `place` is where the connection leads;
/// `None` through a proxy.
pub(crate) async fn exchange(
    request: reqwest::RequestBuilder,
    place: Option<&Endpoint>,
) -> Fetched {
    match request.send().await {
        Ok(response) => bounded(response, place).await,
        Err(error) => fault(&error, place).await,
    }
}

/// Reads a response body up to the size limit.
pub(crate) async fn bounded(mut response: reqwest::Response, place: Option<&Endpoint>) -> Fetched {
    let status = response.status().as_u16();
    match read_body(&mut response, MAX_BYTES).await {
        Ok(body) => Fetched::Response(HttpResponse { status, body }),
        Err(BodyError::Connection(error)) => fault(&error, place).await,
        Err(error @ (BodyError::TooLong(_) | BodyError::Malformed)) => {
            Fetched::Unreachable(error.to_string())
        }
    }
}

/// Describes what kind of fault occurred. `place` is where the connection led.
pub(crate) async fn fault(error: &reqwest::Error, place: Option<&Endpoint>) -> Fetched {
    if error.is_timeout() {
        return Fetched::Unreachable("it did not answer within 10 s".to_owned());
    }
    if error.is_builder() {
        return Fetched::Unreachable("it is not an https URL that can be fetched".to_owned());
    }
    if !error.is_connect() {
        return Fetched::Unreachable("the answer broke off".to_owned());
    }
    let fault = ConnectionFault::diagnose(error, place).await;
    match fault.kind {
        ConnectionFaultKind::UnknownAuthority
        | ConnectionFaultKind::OtherNames
        | ConnectionFaultKind::Certificate(_) => Fetched::Untrusted(fault.text),
        _ => Fetched::Unreachable(fault.text),
    }
}

/// An issuer's discovery document, reduced to the URL of its keys.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DiscoveryDocument {
    #[serde(deserialize_with = "or_default")]
    jwks_uri: String,
}

/// Returns the key set's URL from a discovery document.
pub(crate) fn jwks_uri(document: &Fetched) -> Option<String> {
    let Fetched::Response(HttpResponse { status: 200, body }) = document else {
        return None;
    };
    let Lenient(document): Lenient<DiscoveryDocument> = serde_json::from_slice(body).ok()?;
    Some(document.jwks_uri).filter(|uri| !uri.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use keyferry_kube_authn::fetched::Fetched;
    use keyferry_platform::testing::loopback_guard;
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};

    use super::Fetcher;

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[tokio::test]
    async fn a_wrong_certificate_is_told_from_a_dead_address() {
        let (certificate, key) = pair();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(
            config
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap(),
        ));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        let running = tokio::spawn(server.serve(axum::Router::new().into_make_service()));
        let url = format!("https://localhost:{port}/");
        let other = Fetcher::new(Some(pair().0.as_bytes()), loopback_guard())
            .unwrap()
            .get(&url)
            .await;
        assert!(matches!(other, Fetched::Untrusted(_)), "{other:?}");
        let same = Fetcher::new(Some(certificate.as_bytes()), loopback_guard())
            .unwrap()
            .get(&url)
            .await;
        assert!(
            matches!(&same, Fetched::Response(answer) if answer.status == 404),
            "{same:?}"
        );
        running.abort();
        let _ = running.await;
        let dead = Fetcher::new(Some(certificate.as_bytes()), loopback_guard())
            .unwrap()
            .get(&url)
            .await;
        assert!(matches!(dead, Fetched::Unreachable(_)), "{dead:?}");
    }
}
