//! What happened to a key, for the log and the metrics.

/// See the module. A kid is text that an upstream wrote: print it encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// It is published from now on.
    Published(String),
    /// No endpoint of the hub lists it any more; it is held while a token that it signed may live.
    Withdrawn(String),
    /// It is published no longer.
    Retired(String),
    /// It was revoked.
    Revoked(String),
    /// The hub lists a key that was revoked. It is not published.
    RevokedListed(String),
    /// An endpoint of the hub lists other bytes under a known kid. They are not published.
    Replaced(String),
    /// The shared record has no valid seal, names another issuer, or contradicts what this process
    /// saw. It is written anew.
    RecordTampered(&'static str),
    /// The shared record is older than one that was seen before. It is written anew.
    RecordRolledBack,
}
