//! The CA certificates of the server of the discovery documents, for the AuthenticationConfiguration
//! of targets.

use jiff::Timestamp;
use keyferry_keys::ca_bundle::CaBundle;
use parking_lot::Mutex;
use tokio::sync::watch;

/// `ca.crt` beside the serving certificate, where cert-manager and `kubernetes.io/tls` Secrets have
/// it. Keyferry does not need it, so a missing or invalid one is not an error.
#[derive(Debug)]
pub struct DiscoveryAuthority {
    /// The listener keeps it current, and omits CA certificates that do not verify its certificate.
    read: watch::Receiver<Option<Vec<u8>>>,
    pem: Mutex<Option<String>>,
}

/// The largest bundle that statuses show.
const MAX_BYTES: usize = 32 * 1024;

impl DiscoveryAuthority {
    /// The authority beside the serving certificate, as it was last read.
    pub fn new(read: watch::Receiver<Option<Vec<u8>>>) -> Self {
        Self {
            read,
            pem: Mutex::default(),
        }
    }

    /// Takes what was read last.
    pub(super) fn refresh(&self, now: Timestamp) {
        let bytes = self.read.borrow().clone();
        // Encoded again, so that nothing else from the file or Secret is published.
        *self.pem.lock() = bytes
            .filter(|bytes| bytes.len() <= MAX_BYTES)
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
        let now: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        let (listener, reader) = tokio::sync::watch::channel(None);
        let authority = DiscoveryAuthority::new(reader);
        let read = || {
            authority.refresh(now);
            authority.current()
        };
        assert_eq!(read(), None);
        listener.send_replace(Some(format!("{pem}# a note\n").into_bytes()));
        assert_eq!(read().unwrap().trim(), pem.trim());
        listener.send_replace(Some(key.serialize_pem().into_bytes()));
        assert_eq!(read(), None);
    }
}
