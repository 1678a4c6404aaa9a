//! Which cached tokens may be issued: those whose signing key verifiers already have.

use std::time::Duration;

use keyferry_api::moment::Moment;
use keyferry_keys::bound_token::BoundToken;

use crate::publication::Published;

/// Which cached tokens may be issued.
pub(super) enum Gate<'a> {
    /// Tokens signed by the hub's active keys.
    Hub {
        /// The keys.
        published: &'a Published,
        /// How long after the last reading of the key journal: a key may have been revoked since.
        max_stale: Duration,
    },
    /// All tokens of a managed issuer: it signs with active keys only, and tokens of another key
    /// set have another cache key.
    Managed,
}

impl Gate<'_> {
    /// Whether this token may be issued now.
    pub(super) fn may_issue(&self, token: &BoundToken, now: Moment) -> bool {
        match self {
            Gate::Hub {
                published,
                max_stale,
            } => {
                published.is_active(token.kid(), now)
                    && published.knows_revocations(*max_stale, now)
            }
            Gate::Managed => true,
        }
    }
}
