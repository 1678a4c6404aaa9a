//! The hub's word that the ServiceAccount is there, by its UID, and that Keyferry may mint for it.

use std::time::Duration;

use keyferry_core::audience::{Audience, AudienceError};
use keyferry_core::authorise::Grant;
use keyferry_core::managed_issuer::INERT_AUDIENCE;
use keyferry_core::moment::{Deadline, Moment};
use keyferry_core::reason::Reason;
use keyferry_core::service_account::ServiceAccountIdentity;

use crate::bound_request::{self, Order};
use crate::clock::Clock;
use crate::ports::Hub;
use crate::publication::Publisher;

/// How old the hub's word may be when a token is signed.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// Proof that a UID-pinned TokenRequest for the grant's ServiceAccount has just succeeded. Only
/// [`HubsConsent::ask`] makes it; it is good for one signature.
#[derive(Debug)]
pub struct HubsConsent {
    identity: ServiceAccountIdentity,
    until: Deadline,
    skew_seconds: i64,
}

impl HubsConsent {
    /// Asks the hub for a token that is good nowhere, compares it with the grant, and drops it.
    ///
    /// # Errors
    /// What the hub or the comparison says: the same reasons as for a token of the hub's own.
    pub async fn ask(
        hub: &dyn Hub,
        publisher: &Publisher,
        clock: &dyn Clock,
        grant: &Grant,
    ) -> Result<Self, Reason> {
        let audience = inert_audience().map_err(|_| Reason::MintFailed)?;
        let token =
            bound_request::send(hub, publisher, clock, Order::Inert(grant, &audience)).await?;
        let identity = grant.pair().service_account().clone();
        Ok(Self {
            identity,
            until: Deadline::after(GOOD_FOR, clock.now()),
            skew_seconds: token.skew_seconds(),
        })
    }

    /// Whether it is about this ServiceAccount, and not too old.
    pub fn covers(&self, identity: &ServiceAccountIdentity, now: Moment) -> bool {
        self.identity == *identity && !self.until.passed(now)
    }

    /// How far the hub's clock was ahead of ours, in seconds.
    pub fn skew_seconds(&self) -> i64 {
        self.skew_seconds
    }
}

/// See [`INERT_AUDIENCE`].
pub(super) fn inert_audience() -> Result<Audience, AudienceError> {
    Audience::new(INERT_AUDIENCE)
}
