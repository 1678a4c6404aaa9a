//! The CA certificates of the server of the discovery documents, for the AuthenticationConfiguration
//! of targets.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use keyferry_hub::regular_file;
use keyferry_keys::ca_bundle::CaBundle;
use parking_lot::Mutex;

/// Reads `ca.crt` beside the serving certificate, where cert-manager and `kubernetes.io/tls`
/// Secrets have it. Keyferry does not need the file, so a missing or invalid one is no failure.
#[derive(Debug)]
pub struct DiscoveryAuthority {
    file: PathBuf,
    pem: Mutex<Option<String>>,
}

/// The largest bundle that statuses show.
const MAX_BYTES: u64 = 32 * 1024;

impl DiscoveryAuthority {
    /// The authority of the serving certificate in this file.
    pub fn beside(certificate: &Path) -> Self {
        Self {
            file: certificate.with_file_name("ca.crt"),
            pem: Mutex::default(),
        }
    }

    /// Reads the file again.
    pub(super) fn refresh(&self, now: Timestamp) {
        let bytes = regular_file::read(&self.file, MAX_BYTES).ok();
        // Encoded again, so that nothing else of the file is shown.
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
    }
}
