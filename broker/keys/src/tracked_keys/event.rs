//! Changes to the hub's keys, for the log and the metrics.

/// A change to a hub key or to the key journal. A `kid` is text from the upstream: encode it before
/// printing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// The key is published from now on.
    Published(String),
    /// No endpoint of the hub lists the key any more. It stays published while a token that it
    /// signed may be valid.
    Withdrawn(String),
    /// The key is no longer published.
    Retired(String),
    /// The key was revoked.
    Revoked(String),
    /// The hub lists a key that was revoked. It is not published.
    RevokedListed(String),
    /// An endpoint of the hub lists a different key under a known `kid`. That key is not published.
    Replaced(String),
    /// The shared journal has no valid seal, names another issuer, or contradicts what this process
    /// saw. It is rewritten.
    RecordTampered(&'static str),
    /// The shared journal is older than one that was seen before. It is rewritten.
    RecordRolledBack,
}
