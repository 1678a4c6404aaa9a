//! The clock of the embedded servers, injected so that a test can move it.

use std::sync::Arc;

use jiff::Timestamp;

/// The clock of an embedded server. Token times are read from it; TLS and timeouts are not.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of this machine.
#[must_use]
pub fn system() -> Clock {
    #[allow(
        clippy::disallowed_methods,
        reason = "the embedded servers stand outside the broker and keep their own time"
    )]
    Arc::new(Timestamp::now)
}
