//! Renders an object with a token, and reads which token an object contains.

use std::time::Duration;

use keyferry_api::config::{Delivery, TargetCluster, TokenIssuer};
use keyferry_api::lifetime;
use keyferry_api::reason::Reason;
use keyferry_core::access_status::TokenReport;
use keyferry_core::audit::TokenNote;
use keyferry_core::authorise::{self, Pair};
use keyferry_core::delivery::{Bearer, CredentialNote, ObjectBody, OwnedObject, Snapshot};
use keyferry_issuer::advice;
use keyferry_keys::jwt::MAX_KID_BYTES;

use super::error::DeliveryError;
use super::object::{DELIVERY_ROUTE, render_object};
use super::{Deliveries, Reconciliation};

/// The shortest time between two writes of a token.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

impl Deliveries {
    /// Renders an object body with a token that the authoriser granted and that may still be
    /// issued.
    pub(super) async fn render_with_token(
        &self,
        run: &Reconciliation<'_>,
        delivery: &Delivery,
        pair: &Pair,
        snapshot: &Snapshot<'_>,
    ) -> Result<(ObjectBody, TokenReport), DeliveryError> {
        let advised = |reason: Reason| {
            let message = advice::advice_on(reason, pair, run.policy.own_namespace.as_ref());
            DeliveryError::new(
                reason,
                message.unwrap_or_else(|| "no token could be minted; see the log".to_owned()),
            )
        };
        let grant = run.grant_delivery(delivery, pair).map_err(advised)?;
        let minted = self
            .credentials
            .mint
            .token(&grant, lifetime::greatest_min_ttl(pair.lifetime()))
            .await;
        // A key becomes active at a known time, and until then the object may contain a token that
        // no target accepts.
        let minted = minted
            .map_err(|error| advised(error.reason()).with_retry_after(error.retry_after()))?;
        let token = minted.token;
        let now = self.context.clock.now();
        let due = lifetime::refresh_after(
            token.lifetime(),
            self.credentials.activation_delay,
            self.context.random.unit_fraction(),
        );
        let rest = due.saturating_sub(token.age(now)).max(MIN_RENEWAL_INTERVAL);
        let expires_at = token.deadline().wall();
        let renew_at = now
            .wall
            .saturating_add(rest)
            .unwrap_or(expires_at)
            .min(expires_at);
        // The token is issued only after its record is written, and only if the grant is still
        // allowed.
        self.record_issuance(
            DELIVERY_ROUTE,
            run,
            delivery,
            pair,
            Some((&grant, TokenNote::of_token(&token))),
        )
        .await?;
        authorise::still_holds(&self.context.policy.current(), &*self.context.live, &grant)
            .map_err(advised)?;
        let key_id = token.kid();
        let report = TokenReport {
            token_id: token.token_id().to_owned(),
            key_id: Some(key_id.to_owned()),
            expires_at,
            renew_at,
        };
        let bearer = Bearer {
            token: token.secret(),
            note: CredentialNote {
                id: token.token_id(),
                key_id: Some(key_id),
                expires_at,
                renew_at,
            },
        };
        Ok((render_object(snapshot, delivery, Some(&bearer))?, report))
    }

    /// Whether a delivered token was signed by a revoked key of the hub. A token whose key is not
    /// named may have been.
    pub(super) fn is_revoked(&self, key_id: Option<&str>, target: Option<&TargetCluster>) -> bool {
        let revoked = self.context.published.revoked_kids();
        let of_hub = target.is_none_or(|target| target.issuer == TokenIssuer::Hub);
        of_hub && !revoked.is_empty() && key_id.is_none_or(|key_id| revoked.contains(key_id))
    }

    /// Whether an object contains a token that a revoked key of the hub signed, or may contain one.
    pub(super) fn holds_revoked_token(
        &self,
        owned: &OwnedObject<'_>,
        target: Option<&TargetCluster>,
    ) -> bool {
        let tokens = owned.tokens();
        if !tokens.complete || tokens.key_ids.is_empty() {
            return self.is_revoked(None, target);
        }
        tokens
            .key_ids
            .iter()
            .any(|key_id| self.is_revoked(Some(key_id), target))
    }
}

/// Reports the token that an object contains.
pub(super) fn token_report(owned: &OwnedObject<'_>) -> Option<TokenReport> {
    let (expires_at, renew_at) = (owned.expires_at()?, owned.renew_at()?);
    let bounded = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let token_id = bounded(owned.token_id().unwrap_or_default(), 128);
    Some(TokenReport {
        token_id,
        key_id: owned.key_id().map(|key_id| bounded(&key_id, MAX_KID_BYTES)),
        expires_at,
        renew_at,
    })
}
