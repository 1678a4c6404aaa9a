//! Checks `ca.crt` beside a serving certificate: statuses publish it for targets, so it must verify
//! the certificate that they meet.

use std::sync::Arc;

use jiff::Timestamp;
use keyferry_api::reason::Reason;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::certificate_source::CertificateContent;
use crate::serving_certificate::Requirements;

/// A client that trusts `ca.crt` alone would refuse the serving certificate beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}", reason = Reason::DiscoveryAuthorityMismatch, message = self.message())]
pub struct DiscoveryAuthorityMismatch {
    certificate_at: String,
}

impl DiscoveryAuthorityMismatch {
    /// The problem and the fix, without the reason code.
    pub(crate) fn message(&self) -> String {
        format!(
            "{}: ca.crt beside it does not verify it, so no target gets that ca.crt; fix: write \
             the CA that issued the certificate, or remove ca.crt",
            self.certificate_at
        )
    }
}

/// Returns the CA certificates beside a serving certificate, if there are any and they verify it
/// for the host that clients use. If no host is known, they are not published.
///
/// # Errors
/// They do not verify it.
pub(crate) fn verified_authority(
    content: &CertificateContent,
    requirements: &Requirements,
    now: Timestamp,
) -> Result<Option<Vec<u8>>, DiscoveryAuthorityMismatch> {
    let (Some(authority), Some(host)) = (&content.authority, &requirements.host) else {
        return Ok(None);
    };
    let trusted: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(authority)
        .flatten()
        .collect();
    let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(&content.certificate)
        .flatten()
        .collect();
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Ok(None);
    };
    // The targets' Go verifier accepts a certificate that is itself trusted.
    if trusted.is_empty() || trusted.contains(leaf) {
        return Ok(Some(authority.clone()));
    }
    if is_issued_by(&trusted, leaf, intermediates, host, now) {
        Ok(Some(authority.clone()))
    } else {
        Err(DiscoveryAuthorityMismatch {
            certificate_at: content.certificate_at.clone(),
        })
    }
}

/// Whether one of the trusted certificates issued the leaf, directly or through the intermediates.
/// The check of the certificate itself finds all other faults of the chain.
fn is_issued_by(
    trusted: &[CertificateDer<'_>],
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    host: &str,
    now: Timestamp,
) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned().map(CertificateDer::into_owned));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let name = ServerName::try_from(host.trim_matches(['[', ']']));
    let (Ok(verifier), Ok(name)) = (verifier, name) else {
        return false;
    };
    let now = std::time::Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let now = UnixTime::since_unix_epoch(now);
    match verifier.verify_server_cert(leaf, intermediates, &name, &[], now) {
        Err(rustls::Error::InvalidCertificate(error)) => !matches!(
            error,
            rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature
        ),
        _ => true,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use keyferry_api::config::TlsVersion;
    use keyferry_testing::Authority;
    use secrecy::{ExposeSecret, SecretSlice};

    use super::{CertificateContent, Requirements, verified_authority};
    use crate::client_certificate::ClientCertificates;
    use crate::listener::tests::now;

    #[test]
    fn only_an_authority_that_verifies_the_certificate_is_published() {
        let now = now();
        let [own, other] = ["own CA", "other CA"].map(|name| Authority::new(name).unwrap());
        let identity = own.server_identity(&["keyferry.example.com"]).unwrap();
        let content = |authority: Option<String>| CertificateContent {
            certificate_at: "tls.crt".to_owned(),
            key_at: "tls.key".to_owned(),
            certificate: identity.certificate_pem.clone().into_bytes(),
            key: SecretSlice::from(identity.key_pem.expose_secret().as_bytes().to_vec()),
            authority: authority.map(String::into_bytes),
        };
        let check = |authority: Option<String>, host: Option<&str>| {
            let requirements = Requirements {
                host: host.map(str::to_owned),
                min_version: TlsVersion::V1_3,
                client_certificates: ClientCertificates::Ignored,
            };
            verified_authority(&content(authority), &requirements, now)
                .map(|authority| authority.is_some())
                .map_err(|error| error.to_string())
        };
        let host = Some("keyferry.example.com");
        let both = format!("{}{}", other.ca_pem(), own.ca_pem());
        for (authority, host, published) in [
            (None, host, false),
            (Some(own.ca_pem().to_owned()), host, true),
            (Some(both), host, true),
            (Some(identity.certificate_pem.clone()), host, true),
            (Some(other.ca_pem().to_owned()), None, false),
        ] {
            assert_eq!(check(authority, host), Ok(published));
        }
        let wrong = check(Some(other.ca_pem().to_owned()), host).unwrap_err();
        assert!(
            wrong.starts_with("DiscoveryAuthorityMismatch: tls.crt: ") && wrong.contains("; fix: "),
            "{wrong}"
        );
    }
}
