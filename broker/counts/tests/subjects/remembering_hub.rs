//! A hub that answers a question that it knows without asking again.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keyferry_api::audience::Audience;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_hub::ports::{Hub, HubError};
use keyferry_keys::bound_token::MintAnswer;
use parking_lot::Mutex;
use secrecy::SecretString;

/// A TokenRequest with its answer.
struct RememberedMint {
    identity: ServiceAccountIdentity,
    audience: Audience,
    lifetime: Duration,
    token: SecretString,
    expires_at: jiff::Timestamp,
}

/// Remembers the answers to TokenRequests. It passes on all other calls, whose answers the product
/// keeps itself.
pub struct RememberingHub {
    hub: Arc<dyn Hub>,
    mints: Mutex<Vec<RememberedMint>>,
}

impl RememberingHub {
    /// A hub that knows nothing yet.
    pub fn new(hub: Arc<dyn Hub>) -> Self {
        Self {
            hub,
            mints: Mutex::default(),
        }
    }

    fn remembered_mint(
        &self,
        identity: &ServiceAccountIdentity,
        audience: &Audience,
        lifetime: Duration,
    ) -> Option<MintAnswer> {
        let mints = self.mints.lock();
        let known = mints.iter().find(|mint| {
            &mint.identity == identity && &mint.audience == audience && mint.lifetime == lifetime
        })?;
        Some(MintAnswer {
            token: known.token.clone(),
            expires_at: known.expires_at,
        })
    }
}

impl Hub for RememberingHub {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        Box::pin(async move {
            if let Some(known) = self.remembered_mint(identity, audience, lifetime) {
                return Ok(known);
            }
            let minted = self.hub.token_request(identity, audience, lifetime).await?;
            self.mints.lock().push(RememberedMint {
                identity: identity.clone(),
                audience: audience.clone(),
                lifetime,
                token: minted.token.clone(),
                expires_at: minted.expires_at,
            });
            Ok(minted)
        })
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        self.hub.token_review(token, audience)
    }

    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        account: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        self.hub.access_review(user, account)
    }

    fn path_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        path: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        self.hub.path_review(user, path)
    }
}
