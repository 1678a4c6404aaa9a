//! The hub's consent: it confirms that the ServiceAccount exists, by its UID, and that Keyferry may
//! mint for it.

use std::time::Duration;

use keyferry_api::audience::{Audience, AudienceError};
use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_core::authorise::Grant;
use keyferry_hub::ports::Hub;
use keyferry_keys::managed_issuer::INERT_AUDIENCE;
use keyferry_platform::clock::Clock;

use crate::bound_request::{self, TokenPurpose};
use crate::publication::Publisher;

/// How old the consent may be when a token is signed.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// Proof that a UID-pinned TokenRequest for the grant's ServiceAccount has just succeeded. Only
/// [`HubsConsent::request_consent`] creates it; it allows one signature.
#[derive(Debug)]
pub struct HubsConsent {
    identity: ServiceAccountIdentity,
    until: Deadline,
    skew_seconds: i64,
}

impl HubsConsent {
    /// Requests a token from the hub that no cluster accepts, checks it against the grant, and
    /// drops it.
    ///
    /// # Errors
    /// The error of the hub or of the check: the same reasons as for a token of the hub's own.
    pub async fn request_consent(
        hub: &dyn Hub,
        publisher: &Publisher,
        clock: &dyn Clock,
        grant: &Grant,
    ) -> Result<Self, Reason> {
        let audience = inert_audience().map_err(|_| Reason::MintFailed)?;
        let token = bound_request::request_bound_token(
            hub,
            publisher,
            clock,
            TokenPurpose::Inert(grant, &audience),
        )
        .await?;
        let identity = grant.pair().service_account().clone();
        Ok(Self {
            identity,
            until: Deadline::after(GOOD_FOR, clock.now()),
            skew_seconds: token.skew_seconds(),
        })
    }

    /// Whether the consent covers this ServiceAccount and is recent enough.
    pub fn covers(&self, identity: &ServiceAccountIdentity, now: Moment) -> bool {
        self.identity == *identity && !self.until.passed(now)
    }

    /// Returns the seconds that the hub's clock was ahead of ours.
    pub fn skew_seconds(&self) -> i64 {
        self.skew_seconds
    }
}

/// Returns [`INERT_AUDIENCE`] as an [`Audience`].
pub(super) fn inert_audience() -> Result<Audience, AudienceError> {
    Audience::new(INERT_AUDIENCE)
}
