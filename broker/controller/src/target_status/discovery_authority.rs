//! The CA certificates of the server of the discovery documents, for the AuthenticationConfiguration
//! of targets.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_hub::regular_file;
use keyferry_keys::ca_bundle::CaBundle;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Reads `ca.crt` beside the serving certificate, where cert-manager and `kubernetes.io/tls`
/// Secrets have it. Keyferry does not need it, so a missing or invalid one is no failure.
#[derive(Debug)]
pub struct DiscoveryAuthority {
    source: AuthoritySource,
    pem: Mutex<Option<String>>,
}

#[derive(Debug)]
enum AuthoritySource {
    File(PathBuf),
    /// `ca.crt` of a Secret, which the listener keeps current.
    Secret(watch::Receiver<Option<Vec<u8>>>),
}

/// The largest bundle that statuses show.
const MAX_BYTES: u64 = 32 * 1024;

impl DiscoveryAuthority {
    /// The authority of the serving certificate in this file.
    pub fn beside(certificate: &Path) -> Self {
        Self {
            source: AuthoritySource::File(certificate.with_file_name("ca.crt")),
            pem: Mutex::default(),
        }
    }

    /// The authority in the Secret of the serving certificate, as it was last read.
    pub fn of_secret(authority: watch::Receiver<Option<Vec<u8>>>) -> Self {
        Self {
            source: AuthoritySource::Secret(authority),
            pem: Mutex::default(),
        }
    }

    /// Reads the source again.
    pub(super) fn refresh(&self, now: Timestamp) {
        let bytes = match &self.source {
            AuthoritySource::File(file) => regular_file::read(file, MAX_BYTES).ok(),
            AuthoritySource::Secret(authority) => authority
                .borrow()
                .clone()
                .filter(|bytes| bytes.len() as u64 <= MAX_BYTES),
        };
        // Encoded again, so that nothing else of the source is shown.
        *self.pem.lock() = bytes
            .and_then(|bytes| CaBundle::from_pem(&bytes, now).ok())
            .map(|bundle| bundle.to_pem());
    }

    /// The certificates as PEM, if there are any.
    pub(super) fn current(&self) -> Option<String> {
        self.pem.lock().clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::Timestamp;

    use super::DiscoveryAuthority;

    #[test]
    fn only_certificates_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let authority = DiscoveryAuthority::beside(&folder.path().join("tls.crt"));
        let now: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        let read = || {
            authority.refresh(now);
            authority.current()
        };
        assert_eq!(read(), None);
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, format!("{pem}# a note\n")).unwrap();
        assert_eq!(read().unwrap().trim(), pem.trim());
        std::fs::write(&file, key.serialize_pem()).unwrap();
        assert_eq!(read(), None);

        let (secret, reader) = tokio::sync::watch::channel(None);
        let authority = DiscoveryAuthority::of_secret(reader);
        let read = || {
            authority.refresh(now);
            authority.current()
        };
        assert_eq!(read(), None);
        secret.send_replace(Some(pem.clone().into_bytes()));
        assert_eq!(read().unwrap().trim(), pem.trim());
        secret.send_replace(Some(key.serialize_pem().into_bytes()));
        assert_eq!(read(), None);
    }
}
