//! The signer whose keys are in this process.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::reason::Reason;
use keyferry_core::authorise::Grant;
use keyferry_keys::bound_token::MintAnswer;
use keyferry_keys::managed_issuer::{ClaimsOfToken, signing_input};
use keyferry_platform::clock::Clock;
use keyferry_platform::random::Random;
use secrecy::SecretString;

use super::{HubsConsent, ManagedIssuers};

/// Signs for a managed issuer. The key set defines the audience; no caller can name another.
pub trait Signer: Send + Sync {
    /// Signs a token for the grant; `consent` proves that the hub agreed.
    fn sign<'a>(
        &'a self,
        grant: &'a Grant,
        consent: HubsConsent,
    ) -> BoxFuture<'a, Result<MintAnswer, Reason>>;
}

/// Signs with the keys that this replica has loaded.
pub struct LocalSigner {
    issuers: ManagedIssuers,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl LocalSigner {
    /// Creates a signer for these issuers.
    pub fn new(issuers: ManagedIssuers, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self {
            issuers,
            clock,
            random,
        }
    }

    fn sign_now(&self, grant: &Grant, consent: &HubsConsent) -> Result<MintAnswer, Reason> {
        let (now, pair) = (self.clock.now(), grant.pair());
        if !consent.covers(pair.service_account(), now) {
            return Err(Reason::ServiceAccountChanged);
        }
        let issuer = self
            .issuers
            .get(pair.target())
            .ok_or(Reason::IssuerKeysSettling)?;
        let key = issuer.signing_key(now)?;
        // The signed audience is that of the key set; a grant for another audience belongs to
        // another set.
        if key.binding().audience != *pair.audience() || key.binding().target != *pair.target() {
            return Err(Reason::IssuerKeysInvalid);
        }
        let mut id = [0; 16];
        if !self.random.fill_bytes(&mut id) {
            return Err(Reason::MintFailed);
        }
        let token = ClaimsOfToken {
            identity: pair.service_account(),
            issued_at: now.wall,
            lifetime: pair.lifetime(),
            id,
        };
        let input = signing_input(key.binding(), key.kid(), &token);
        let signature = key.sign(input.as_bytes()).ok_or(Reason::MintFailed)?;
        let expires_at = Timestamp::from_second(now.wall.as_second())
            .and_then(|from| from.checked_add(pair.lifetime()));
        let token = SecretString::from(format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature)));
        Ok(MintAnswer {
            token,
            expires_at: expires_at.map_err(|_| Reason::MintFailed)?,
        })
    }
}

impl Signer for LocalSigner {
    fn sign<'a>(
        &'a self,
        grant: &'a Grant,
        consent: HubsConsent,
    ) -> BoxFuture<'a, Result<MintAnswer, Reason>> {
        Box::pin(async move { self.sign_now(grant, &consent) })
    }
}
