//! Where the serving certificate of a listener comes from.

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::condition::Finding;
use keyferry_api::reason::Reason;
use secrecy::{ExposeSecret, SecretSlice};

/// A serving certificate cannot be used: what, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {location}: {problem}; fix: {fix}", reason = Reason::ServingCertificateInvalid)]
pub struct ServingCertificateError {
    location: String,
    problem: String,
    fix: String,
    state: SourceState,
}

/// What an error says about the source of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    /// It was read, and its content is wrong.
    Wrong,
    /// It does not exist.
    Absent,
    /// It could not be read, so nothing is known of its content.
    Unread,
}

impl ServingCertificateError {
    /// Says that what was read is wrong.
    pub fn new(place: String, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            location: place,
            problem: problem.into(),
            fix: fix.into(),
            state: SourceState::Wrong,
        }
    }

    /// The same error, of a file or Secret that does not exist.
    #[must_use]
    pub fn as_absent(self) -> Self {
        Self {
            state: SourceState::Absent,
            ..self
        }
    }

    /// The same error, of a source of which nothing is known because it could not be read.
    #[must_use]
    pub fn as_unread(self) -> Self {
        Self {
            state: SourceState::Unread,
            ..self
        }
    }

    /// Whether the only problem is that the file or Secret does not exist: it may exist on another
    /// machine.
    pub fn is_absent(&self) -> bool {
        self.state == SourceState::Absent
    }

    /// Whether the source could not be read, so that nothing is known of the certificate.
    pub fn is_unread(&self) -> bool {
        self.state == SourceState::Unread
    }

    /// The problem and the fix, without the reason code, which an Event has in a field of its own.
    pub(crate) fn message(&self) -> String {
        format!("{}: {}; fix: {}", self.location, self.problem, self.fix)
    }
}

/// The source of one listener's certificate, such as files or a Secret.
pub trait CertificateSource: Send + Sync {
    /// Reads the certificate and the key.
    fn read_certificate(&self) -> BoxFuture<'_, CertificateRead>;

    /// Waits until the source may have changed since `version`, that of the Secret as last read.
    fn wait_for_change<'a>(&'a self, version: Option<&'a str>) -> BoxFuture<'a, ()>;

    /// Reports a fault of the certificate where people look for it. `secret` is what was read last.
    fn report_finding<'a>(
        &'a self,
        secret: Option<&'a ReadSecret>,
        finding: &'a Finding,
    ) -> BoxFuture<'a, ()>;
}

/// A certificate and its key as read, unchecked.
pub struct CertificateContent {
    /// Where the certificate is, for messages.
    pub certificate_at: String,
    /// Where the key is, for messages.
    pub key_at: String,
    /// The certificate chain as PEM.
    pub certificate: Vec<u8>,
    /// The key as PEM.
    pub key: SecretSlice<u8>,
    /// `ca.crt` of the same Secret, or beside the certificate's file. Clients may be told to trust
    /// it.
    pub authority: Option<Vec<u8>>,
}

/// The result of one read of a source.
pub struct CertificateRead {
    /// The certificate, or why there is none.
    pub content: Result<CertificateContent, ServingCertificateError>,
    /// The Secret, if the source is one and could be read.
    pub secret: Option<ReadSecret>,
    /// When it was read. The certificate must be valid then.
    pub read_at: Timestamp,
}

/// What is known of a Secret beside the certificate.
pub struct ReadSecret {
    /// Its resourceVersion.
    pub version: String,
    /// Its UID.
    pub uid: String,
}

impl CertificateContent {
    /// Whether both have the same certificate and key.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.certificate == other.certificate
            && self.key.expose_secret() == other.key.expose_secret()
    }
}
