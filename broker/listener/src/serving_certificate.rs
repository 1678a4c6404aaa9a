//! Checks the serving certificate of a listener and turns it into a TLS configuration.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::config::TlsVersion;
use keyferry_keys::serving_certificate;
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret;

use crate::certificate_source::{CertificateContent, ServingCertificateError};
use crate::client_certificate::{ClientCertificates, PossessionVerifier};

/// What a serving certificate must satisfy for its listener.
#[derive(Clone, Debug)]
pub(crate) struct Requirements {
    /// The host name that clients use, if known.
    pub(crate) host: Option<String>,
    /// The lowest TLS version that a client may use.
    pub(crate) min_version: TlsVersion,
    /// Whether clients are asked for a certificate.
    pub(crate) client_certificates: ClientCertificates,
}

/// A checked certificate that is ready to serve.
pub(crate) struct ServingCertificate {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) not_after: Timestamp,
}

impl ServingCertificate {
    /// Checks and loads what was read.
    pub(crate) fn load_checked(
        read: &CertificateContent,
        requirements: &Requirements,
        now: Timestamp,
    ) -> Result<Self, ServingCertificateError> {
        let in_certificate = |problem: &str, fix: &str| {
            ServingCertificateError::new(read.certificate_at.clone(), problem, fix)
        };
        let in_key = |problem: &str, fix: &str| {
            ServingCertificateError::new(read.key_at.clone(), problem, fix)
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read.certificate).collect();
        let chain = chain.map_err(|_| {
            in_certificate(
                "it is no PEM text",
                "write the certificate chain as PEM, the listener's own first",
            )
        })?;
        let Some(leaf) = chain.first() else {
            return Err(in_certificate(
                "it holds no certificate",
                "write the certificate chain as PEM, the listener's own first",
            ));
        };
        let not_after =
            serving_certificate::check_certificate(leaf, requirements.host.as_deref(), now)
                .map_err(|error| in_certificate(&error.to_string(), &error.fix()))?;
        // The library's error is dropped, because it may describe the private key.
        let key = PrivateKeyDer::from_pem_slice(read.key.expose_secret()).map_err(|_| {
            in_key(
                "it holds no private key",
                "write the key of the certificate as PEM, unencrypted",
            )
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ));
        let builder = builder.with_protocol_versions(tls_versions(requirements.min_version));
        let builder = builder.map_err(|_| {
            in_certificate(
                "TLS cannot be set up for it",
                "report this as a bug in Keyferry",
            )
        })?;
        let builder = match requirements.client_certificates {
            ClientCertificates::Ignored => builder.with_no_client_auth(),
            ClientCertificates::Requested => {
                builder.with_client_cert_verifier(Arc::new(PossessionVerifier::new()))
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => in_key(
                "it is not the key of the certificate",
                "put the certificate and the key of one pair in place together",
            ),
            _ => in_key(
                "the key or the certificate is of a kind that TLS cannot use",
                "use a key of ECDSA P-256, P-384 or RSA",
            ),
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would rely on checks made when it began. Without tickets, each
        // handshake also takes a tenth less CPU time.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self {
            config: Arc::new(config),
            not_after,
        })
    }
}

/// The versions of a listener that speaks TLS 1.3 alone.
static ONLY_1_3: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

fn tls_versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match min {
        TlsVersion::V1_2 => rustls::ALL_VERSIONS,
        TlsVersion::V1_3 => &ONLY_1_3,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use keyferry_api::config::TlsVersion;
    use keyferry_testing::Authority;
    use secrecy::{ExposeSecret, SecretSlice};

    use super::{CertificateContent, ClientCertificates, Requirements, ServingCertificate};
    use crate::listener::tests::now;

    #[test]
    fn each_fault_is_named_with_its_place_and_its_fix() {
        let authority = Authority::new("test CA").unwrap();
        let (one, other) = (
            authority.server_identity(&["localhost"]).unwrap(),
            authority.server_identity(&["localhost"]).unwrap(),
        );
        let (certificate, key) = (one.certificate_pem.as_str(), one.key_pem.expose_secret());
        let check = |certificate: &str, key: &str, host: Option<&str>, later: Duration| {
            let read = CertificateContent {
                certificate_at: "tls.crt".to_owned(),
                key_at: "tls.key".to_owned(),
                certificate: certificate.as_bytes().to_vec(),
                key: SecretSlice::from(key.as_bytes().to_vec()),
                authority: None,
            };
            let requirements = Requirements {
                host: host.map(str::to_owned),
                min_version: TlsVersion::V1_3,
                client_certificates: ClientCertificates::Ignored,
            };
            let checked = ServingCertificate::load_checked(&read, &requirements, now() + later);
            checked.map(|_| ()).map_err(|error| error.to_string())
        };
        let today = Duration::ZERO;
        assert_eq!(check(certificate, key, Some("localhost"), today), Ok(()));
        let long = Duration::from_secs(3600 * 24 * 366 * 5000);
        let cases = [
            (
                check("", key, None, today),
                "tls.crt: it holds no certificate",
            ),
            (
                check("-----BEGIN CERTIFICATE-----\n!", key, None, today),
                "tls.crt: it is no PEM text",
            ),
            (
                check(certificate, "", None, today),
                "tls.key: it holds no private key",
            ),
            (
                check(certificate, certificate, None, today),
                "tls.key: it holds no private key",
            ),
            (
                check(certificate, other.key_pem.expose_secret(), None, today),
                "tls.key: it is not the key of the certificate",
            ),
            (
                check(certificate, key, Some("keyferry.example.com"), today),
                "tls.crt: the certificate is not for keyferry.example.com, but for localhost",
            ),
            (
                check(certificate, key, None, long),
                "tls.crt: the certificate expired at",
            ),
        ];
        for (outcome, wanted) in cases {
            let text = outcome.unwrap_err();
            assert!(
                text.starts_with(&format!("ServingCertificateInvalid: {wanted}"))
                    && text.contains("; fix: "),
                "{wanted}: {text}"
            );
        }
    }
}
