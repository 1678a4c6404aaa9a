//! Mints tokens of managed issuers: the hub consents, the signer signs, and the token is checked
//! like any minted one.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Moment;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_core::authorise::Grant;
use keyferry_keys::bound_token::{self, BoundToken, MintExpectation};
use keyferry_keys::managed_issuer::READING_GOOD_FOR;

use super::consent::inert_audience;
use super::{HubsConsent, ManagedIssuer, ManagedIssuers, Signer};
use crate::mint::MintParts;

/// The signer of managed issuers, with their published documents.
#[derive(Clone)]
pub struct OwnMint {
    issuers: ManagedIssuers,
    signer: Option<Arc<dyn Signer>>,
}

impl OwnMint {
    /// Creates a mint for these issuers.
    pub fn new(issuers: ManagedIssuers, signer: Arc<dyn Signer>) -> Self {
        Self {
            issuers,
            signer: Some(signer),
        }
    }

    /// Creates a mint for a process without managed issuers; it refuses every request.
    pub fn none() -> Self {
        Self {
            issuers: ManagedIssuers::default(),
            signer: None,
        }
    }

    /// Returns the issuer of a target and the stored object of its keys: parts of the cache key for
    /// its tokens. Cached ones are issued for `max_stale` after the last reading of the keys, and at
    /// least as long as new ones are signed.
    ///
    /// # Errors
    /// The reason why the issuer has no keys yet, or why they cannot be read.
    pub fn holding_key(
        &self,
        target: &ObjectName,
        max_stale: Duration,
        now: Moment,
    ) -> Result<(Issuer, Arc<str>), Reason> {
        let own = self.issuers.get(target).ok_or(Reason::IssuerKeysSettling)?;
        let ManagedIssuer {
            issuer,
            origin,
            fault,
            ..
        } = &*own;
        let origin = origin
            .clone()
            .ok_or(fault.unwrap_or(Reason::IssuerKeysSettling))?;
        if !own.was_read_within(max_stale.max(READING_GOOD_FOR), now) {
            return Err(fault.unwrap_or(Reason::HubUnreachable));
        }
        Ok((issuer.clone(), origin))
    }

    /// Mints a token for the grant, and returns it with the seconds that the hub's clock is ahead
    /// of ours.
    ///
    /// # Errors
    /// A reason of the hub, of the key set, or of the token check.
    pub async fn mint_managed(
        &self,
        parts: &MintParts,
        grant: &Grant,
    ) -> Result<(BoundToken, i64), Reason> {
        let pair = grant.pair();
        let signer = self.signer.as_ref().ok_or(Reason::IssuerKeysSettling)?;
        // Checked before any call to the hub: keys that cannot sign must cost it nothing.
        self.issuers
            .get(pair.target())
            .ok_or(Reason::IssuerKeysSettling)?
            .signing_key(parts.clock.now())?;
        parts
            .guard
            .check_audience(&inert_audience().map_err(|_| Reason::MintFailed)?)
            .await?;
        let consent =
            HubsConsent::request_consent(&*parts.hub, &parts.publisher, &*parts.clock, grant)
                .await?;
        let skew = consent.skew_seconds();
        let answer = signer.sign(grant, consent).await?;
        let own = self
            .issuers
            .get(pair.target())
            .ok_or(Reason::IssuerKeysSettling)?;
        let documents = own.documents.as_ref().ok_or(Reason::IssuerKeysSettling)?;
        let expected = MintExpectation {
            issuer: &own.issuer,
            keys: &documents.keys,
            service_account: pair.service_account(),
            audience: pair.audience(),
            lifetime: pair.lifetime(),
        };
        let token = bound_token::check_minted(answer, &expected, parts.clock.now()).map_err(|fault| {
            let reason = fault.reason();
            tracing::error!(%reason, %fault, target_cluster = %pair.target(), "a token of a managed issuer was dropped");
            reason
        })?;
        Ok((token, skew))
    }
}
