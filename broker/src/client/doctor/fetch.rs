//! Documents as a target fetches them: anonymously, with one set of authorities, redirects followed.

use std::error::Error;
use std::time::Duration;

use keyferry_trust::doctor::{Answer, Fetched};

use super::DoctorError;

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 1 << 20;

/// A client without credentials.
pub struct Fetcher {
    client: reqwest::Client,
}

impl Fetcher {
    /// One that trusts these CA certificates, and only these; without, the system's.
    ///
    /// # Errors
    /// [`DoctorError::Authority`], [`DoctorError::Client`].
    pub fn new(ca_pem: Option<&[u8]>) -> Result<Fetcher, DoctorError> {
        let mut builder = reqwest::Client::builder().no_proxy().timeout(DEADLINE);
        if let Some(pem) = ca_pem {
            builder = builder.tls_certs_only(authorities(pem, "the discovery document")?);
        }
        Ok(Fetcher { client: builder.build().map_err(|_| DoctorError::Client)? })
    }

    /// GET.
    pub async fn get(&self, url: &str) -> Fetched {
        exchange(self.client.get(url)).await
    }
}

/// Reads CA certificates.
///
/// # Errors
/// [`DoctorError::Authority`].
pub(super) fn authorities(pem: &[u8], whose: &'static str) -> Result<Vec<reqwest::Certificate>, DoctorError> {
    let found = reqwest::Certificate::from_pem_bundle(pem).map_err(|_| DoctorError::Authority(whose))?;
    if found.is_empty() { Err(DoctorError::Authority(whose)) } else { Ok(found) }
}

/// Sends a request and reads a bounded answer.
pub(super) async fn exchange(request: reqwest::RequestBuilder) -> Fetched {
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return fault(&error),
    };
    let status = response.status().as_u16();
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_BYTES => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Fetched::Unreachable(format!("the answer is longer than {MAX_BYTES} bytes")),
            Ok(None) => return Fetched::Answer(Answer { status, body }),
            Err(error) => return fault(&error),
        }
    }
}

/// What kind of fault it was.
pub(super) fn fault(error: &reqwest::Error) -> Fetched {
    if let Some(how) = certificate_fault(error) {
        return Fetched::Untrusted(how);
    }
    Fetched::Unreachable(
        if error.is_timeout() {
            "it did not answer within 10 s"
        } else if error.is_connect() {
            "the connection failed"
        } else if error.is_builder() {
            "it is not a URL that can be fetched"
        } else if error.is_redirect() {
            "it redirects without end"
        } else {
            "the answer broke off"
        }
        .to_owned(),
    )
}

fn certificate_fault(error: &reqwest::Error) -> Option<String> {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    // A chain of errors has no cycle, but may be long.
    for _ in 0..16 {
        let current = next?;
        if let Some(rustls::Error::InvalidCertificate(fault)) = current.downcast_ref() {
            return Some(format!("its certificate is not accepted: {fault:?}").chars().take(300).collect());
        }
        // The source of an I/O error is that of the error within; the error within is only to be had like this.
        next = match current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(within) => Some(within),
            None => current.source(),
        };
    }
    None
}

/// Where a discovery document says the keys are.
pub(super) fn jwks_uri(document: &Fetched) -> Option<String> {
    let Fetched::Answer(Answer { status: 200, body }) = document else { return None };
    let document: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(document.get("jwks_uri")?.as_str()?.to_owned()).filter(|uri| !uri.is_empty())
}

#[cfg(all(test, feature = "embedded"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use keyferry_trust::doctor::Fetched;
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};

    use super::Fetcher;

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[tokio::test]
    async fn a_wrong_certificate_is_told_from_a_dead_address() {
        let (certificate, key) = pair();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(
            config.with_no_client_auth().with_single_cert(chain, key).unwrap(),
        ));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        let running = tokio::spawn(server.serve(axum::Router::new().into_make_service()));
        let url = format!("https://localhost:{port}/");
        let other = Fetcher::new(Some(pair().0.as_bytes())).unwrap().get(&url).await;
        assert!(matches!(other, Fetched::Untrusted(_)), "{other:?}");
        let same = Fetcher::new(Some(certificate.as_bytes())).unwrap().get(&url).await;
        assert!(matches!(&same, Fetched::Answer(answer) if answer.status == 404), "{same:?}");
        running.abort();
        let _ = running.await;
        let dead = Fetcher::new(Some(certificate.as_bytes())).unwrap().get(&url).await;
        assert!(matches!(dead, Fetched::Unreachable(_)), "{dead:?}");
    }
}
