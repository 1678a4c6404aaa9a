//! A token of an own issuer: the hub consents, the signer signs, and the result is compared like
//! any minted token.

use std::sync::Arc;

use keyferry_core::authorise::Grant;
use keyferry_core::bound_token::{self, BoundToken, MintExpectation};
use keyferry_core::issuer::Issuer;
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;

use super::consent::inert_audience;
use super::{HubsConsent, ManagedIssuer, ManagedIssuers};
use crate::mint::MintParts;
use crate::ports::Signer;

/// What signs, and what is published of it.
#[derive(Clone)]
pub struct OwnMint {
    issuers: ManagedIssuers,
    signer: Option<Arc<dyn Signer>>,
}

impl OwnMint {
    /// A mint of these issuers.
    pub fn new(issuers: ManagedIssuers, signer: Arc<dyn Signer>) -> Self {
        Self {
            issuers,
            signer: Some(signer),
        }
    }

    /// Where managed issuers are not enabled.
    pub fn none() -> Self {
        Self {
            issuers: ManagedIssuers::default(),
            signer: None,
        }
    }

    /// The issuer of a target and the stored object of its keys, by which its tokens are held.
    ///
    /// # Errors
    /// The reason why there is none yet.
    pub fn holding_key(&self, target: &ObjectName) -> Result<(Issuer, Arc<str>), Reason> {
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
        Ok((issuer.clone(), origin))
    }

    /// A token for what is granted, and how far the hub's clock is ahead of ours.
    ///
    /// # Errors
    /// A reason of the hub, of the key set, or of the comparison.
    pub async fn mint(
        &self,
        parts: &MintParts,
        grant: &Grant,
    ) -> Result<(BoundToken, i64), Reason> {
        let pair = grant.pair();
        let signer = self.signer.as_ref().ok_or(Reason::IssuerKeysSettling)?;
        // Before the hub is asked: keys that cannot sign must cost it nothing.
        self.issuers
            .get(pair.target())
            .ok_or(Reason::IssuerKeysSettling)?
            .signing_key(parts.clock.now())?;
        parts
            .guard
            .check(&inert_audience().map_err(|_| Reason::MintFailed)?)
            .await?;
        let consent = HubsConsent::ask(&*parts.hub, &parts.publisher, &*parts.clock, grant).await?;
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
        let token = bound_token::check(answer, &expected, parts.clock.now()).map_err(|fault| {
            let reason = fault.reason();
            tracing::error!(%reason, %fault, target_cluster = %pair.target(), "a token of an own issuer was dropped");
            reason
        })?;
        Ok((token, skew))
    }
}
