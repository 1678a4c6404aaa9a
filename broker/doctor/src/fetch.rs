//! Fetches documents as a target does: anonymously, with one set of CA certificates, and following
//! redirects.

use std::time::Duration;

use keyferry_hub::connection_fault::{ConnectionFault, ConnectionFaultKind, Endpoint};
use keyferry_hub::https_client::{BodyError, HttpsClientBuilder, read_body};
use keyferry_kube_authn::doctor::{Fetched, HttpResponse};

use crate::DoctorError;

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 1 << 20;

/// An HTTPS client without credentials.
pub(crate) struct Fetcher {
    client: reqwest::Client,
}

impl Fetcher {
    /// Creates a client that trusts only these CA certificates, or the system's if none are given.
    ///
    /// # Errors
    /// [`DoctorError::Authority`], [`DoctorError::Client`].
    pub(crate) fn new(ca_pem: Option<&[u8]>) -> Result<Self, DoctorError> {
        let mut builder = HttpsClientBuilder::new(DEADLINE).following_redirects();
        if let Some(pem) = ca_pem {
            builder = builder
                .trusting_only(pem)
                .map_err(|_| DoctorError::Authority("the discovery document"))?;
        }
        Ok(Self {
            client: builder.build().map_err(|_| DoctorError::Client)?,
        })
    }

    /// Fetches a URL with GET.
    pub(crate) async fn get(&self, url: &str) -> Fetched {
        exchange(self.client.get(url), ConnectionTo::AsTheErrorSays).await
    }
}

/// Where a request's connection leads; used in messages about its failure.
#[derive(Clone, Copy)]
pub(crate) enum ConnectionTo<'a> {
    /// To the host of the URL in the error, also after a redirect.
    AsTheErrorSays,
    /// To this place; `None` through a proxy.
    Known(Option<&'a Endpoint>),
}

/// Sends a request and reads a response of limited size.
pub(crate) async fn exchange(request: reqwest::RequestBuilder, way: ConnectionTo<'_>) -> Fetched {
    match request.send().await {
        Ok(response) => bounded(response, way).await,
        Err(error) => way.fault(&error).await,
    }
}

impl ConnectionTo<'_> {
    async fn fault(self, error: &reqwest::Error) -> Fetched {
        match self {
            ConnectionTo::AsTheErrorSays => {
                fault(error, error.url().and_then(Endpoint::of_url).as_ref()).await
            }
            ConnectionTo::Known(place) => fault(error, place).await,
        }
    }
}

/// Reads a response body up to the size limit.
pub(crate) async fn bounded(mut response: reqwest::Response, way: ConnectionTo<'_>) -> Fetched {
    let status = response.status().as_u16();
    match read_body(&mut response, MAX_BYTES).await {
        Ok(body) => Fetched::Response(HttpResponse { status, body }),
        Err(BodyError::Connection(error)) => way.fault(&error).await,
        Err(error @ BodyError::TooLong(_)) => Fetched::Unreachable(error.to_string()),
    }
}

/// Describes what kind of fault occurred. `place` is where the connection led, unless the error
/// itself names it.
pub(crate) async fn fault(error: &reqwest::Error, place: Option<&Endpoint>) -> Fetched {
    if error.is_timeout() {
        return Fetched::Unreachable("it did not answer within 10 s".to_owned());
    }
    if error.is_builder() {
        return Fetched::Unreachable("it is not an https URL that can be fetched".to_owned());
    }
    if error.is_redirect() {
        return Fetched::Unreachable(
            "it redirects without end, or to a URL that is not https".to_owned(),
        );
    }
    if !error.is_connect() {
        return Fetched::Unreachable("the answer broke off".to_owned());
    }
    let fault = ConnectionFault::of(error, place).await;
    match fault.kind {
        ConnectionFaultKind::UnknownAuthority
        | ConnectionFaultKind::OtherNames
        | ConnectionFaultKind::Certificate(_) => Fetched::Untrusted(fault.text),
        _ => Fetched::Unreachable(fault.text),
    }
}

/// Returns the key set's URL from a discovery document.
pub(crate) fn jwks_uri(document: &Fetched) -> Option<String> {
    let Fetched::Response(HttpResponse { status: 200, body }) = document else {
        return None;
    };
    let document: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(document.get("jwks_uri")?.as_str()?.to_owned()).filter(|uri| !uri.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use keyferry_kube_authn::doctor::Fetched;
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
        let other = Fetcher::new(Some(pair().0.as_bytes()))
            .unwrap()
            .get(&url)
            .await;
        assert!(matches!(other, Fetched::Untrusted(_)), "{other:?}");
        let same = Fetcher::new(Some(certificate.as_bytes()))
            .unwrap()
            .get(&url)
            .await;
        assert!(
            matches!(&same, Fetched::Response(answer) if answer.status == 404),
            "{same:?}"
        );
        running.abort();
        let _ = running.await;
        let dead = Fetcher::new(Some(certificate.as_bytes()))
            .unwrap()
            .get(&url)
            .await;
        assert!(matches!(dead, Fetched::Unreachable(_)), "{dead:?}");
    }
}
