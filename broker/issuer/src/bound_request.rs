//! Sends a TokenRequest, and checks that the token is what was requested.

use std::time::Duration;

use keyferry_api::audience::Audience;
use keyferry_api::lifetime;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_core::authorise::Grant;
use keyferry_hub::ports::Hub;
use keyferry_keys::bound_token::{self, BoundToken, MintExpectation};
use keyferry_keys::tracked_keys::KeyActivation;
use keyferry_platform::clock::Clock;

use crate::publication::Publisher;

/// The purpose of a TokenRequest. Only [`TokenPurpose::Granted`], with the authoriser's proof,
/// gives a token that may be issued.
#[derive(Clone, Copy)]
pub enum TokenPurpose<'a> {
    /// A token for a granted request.
    Granted(&'a Grant),
    /// A token for a grant's ServiceAccount that no cluster accepts: it shows that the hub would
    /// mint. It is dropped.
    Inert(&'a Grant, &'a Audience),
    /// A token of the canary, which has no rights, to test an audience.
    Canary(&'a ServiceAccountIdentity, &'a Audience),
}

impl<'a> TokenPurpose<'a> {
    fn request_parts(self) -> (&'a ServiceAccountIdentity, &'a Audience, Duration) {
        match self {
            TokenPurpose::Granted(grant) => (
                grant.pair().service_account(),
                grant.pair().audience(),
                grant.pair().lifetime(),
            ),
            TokenPurpose::Inert(grant, audience) => {
                (grant.pair().service_account(), audience, lifetime::MIN)
            }
            TokenPurpose::Canary(identity, audience) => (identity, audience, lifetime::MIN),
        }
    }
}

/// Sends a TokenRequest to the hub and checks the token.
///
/// # Errors
/// A `Mint…` reason, [`Reason::ServiceAccountChanged`], [`Reason::KeyNotPublished`],
/// [`Reason::ClockSkew`] or [`Reason::HubUnreachable`]; a token that is not what was asked for is
/// dropped.
pub async fn request_bound_token(
    hub: &dyn Hub,
    publisher: &Publisher,
    clock: &dyn Clock,
    purpose: TokenPurpose<'_>,
) -> Result<BoundToken, Reason> {
    let (service_account, audience, lifetime) = purpose.request_parts();
    let account = &service_account.account;
    let answer = hub.token_request(service_account, audience, lifetime).await.map_err(|error| {
        let reason = error.mint_reason();
        tracing::warn!(%reason, %error, service_account = %account, %audience, "TokenRequest failed");
        reason
    })?;
    if let Some(kid) = bound_token::kid_of(&answer) {
        // A new key often appears here first: publish it at once, not at the next poll.
        publisher.publish_signing_key(&kid).await;
        if publisher.key_activation(&kid) == KeyActivation::Revoked {
            tracing::error!(reason = %Reason::KeyRevoked, ?kid, service_account = %account, "the \
                hub still signs with a revoked key; the token was dropped");
            return Err(Reason::KeyRevoked);
        }
    }
    let published = publisher.reader().current().ok_or(Reason::HubUnreachable)?;
    let expected = MintExpectation {
        issuer: &published.issuer,
        keys: &published.keys,
        service_account,
        audience,
        lifetime,
    };
    bound_token::check_minted(answer, &expected, clock.now()).map_err(|fault| {
        let reason = fault.reason();
        tracing::error!(%reason, %fault, service_account = %account, %audience, "a minted token was dropped");
        reason
    })
}
