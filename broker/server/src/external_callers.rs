//! Authenticates callers by the id-tokens of external issuers, such as a CI system.
//!
//! The issuer's keys and the configured rules decide; the hub is not asked about such a token. All
//! that follows is the same as for a token of the hub.

mod issuer_keys;
mod used_tokens;

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::ExternalIssuer;
use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Deadline;
use keyferry_api::reason::Reason;
use keyferry_core::authorise::HubView;
use keyferry_core::caller::external::{self, CallerRefusal, ExternalIdentity};
use keyferry_core::caller::{PresentedToken, VerifiedCaller};
use keyferry_hub::live::LiveObjects;
use keyferry_keys::id_token::claimed_issuer;
use keyferry_keys::jwt::UnverifiedJwt;
use keyferry_keys::verify;
use keyferry_platform::clock::Clock;
use keyferry_platform::external_issuer_documents::ExternalIssuerKeys;
use keyferry_platform::stale_cache::{Lifetimes, Lookup, StaleCache};
use secrecy::ExposeSecret;

use self::issuer_keys::IssuerKeys;
use self::used_tokens::UsedTokens;
use crate::authenticate::TokenKey;
use crate::new_callers::NewCallers;

/// How long a verified token is cached. A key that its issuer withdrew is accepted this much longer.
const VERIFIED_LIFETIME: Duration = Duration::from_secs(10);
/// The maximum number of cached tokens.
const MAX_CACHED_TOKENS: u64 = 20_000;

/// The dependencies of [`ExternalCallers`].
pub struct ExternalCallersParts {
    /// The configured issuers.
    pub issuers: Vec<ExternalIssuer>,
    /// Fetches their keys.
    pub source: Arc<dyn ExternalIssuerKeys>,
    /// The hub's live objects.
    pub live: Arc<LiveObjects>,
    /// The clock for expiry and caches.
    pub clock: Arc<dyn Clock>,
    /// The key under which used tokens are remembered; random and private to this process.
    pub hash_key: [u8; 32],
}

/// Authenticates the callers of all configured external issuers.
pub struct ExternalCallers {
    issuers: Arc<[ExternalIssuer]>,
    keys: IssuerKeys,
    live: Arc<LiveObjects>,
    clock: Arc<dyn Clock>,
    verified: StaleCache<TokenKey, ExternalIdentity>,
    used: UsedTokens,
}

impl ExternalCallers {
    /// Creates it without keys. The first token of an issuer causes a fetch of that issuer's keys.
    pub fn new(parts: ExternalCallersParts) -> Self {
        let lifetimes = Lifetimes {
            fresh: VERIFIED_LIFETIME,
            stale: Duration::ZERO,
            refused: Duration::ZERO,
        };
        Self {
            verified: StaleCache::new(lifetimes, MAX_CACHED_TOKENS, Arc::clone(&parts.clock)),
            keys: IssuerKeys::new(&parts.issuers, parts.source, Arc::clone(&parts.clock)),
            used: UsedTokens::new(parts.issuers.len(), &parts.hash_key),
            issuers: parts.issuers.into(),
            live: parts.live,
            clock: parts.clock,
        }
    }

    /// Returns the caller of a token that was verified recently.
    pub(crate) fn cached_caller(&self, key: &TokenKey) -> Option<Result<VerifiedCaller, Reason>> {
        match self.verified.lookup(key) {
            Lookup::Fresh(identity) => Some(self.caller_of(&identity)),
            _ => None,
        }
    }

    /// Whether a token claims to be of one of these issuers. A token that claims the hub's issuer
    /// never is, so the hub always decides on its own tokens.
    pub(crate) fn claims_external_issuer(&self, token: &PresentedToken<'_>, hub: &Issuer) -> bool {
        let Ok(jwt) = UnverifiedJwt::parse_id_token(token.expose()) else {
            return false;
        };
        claimed_issuer(&jwt).is_some_and(|claimed| {
            claimed != hub.as_str()
                && self
                    .issuers
                    .iter()
                    .any(|issuer| issuer.url.as_str() == claimed)
        })
    }

    /// Verifies a token and returns its caller.
    ///
    /// # Errors
    /// A `Caller…` reason, with the claim that no rule accepts, or [`Reason::RateLimited`].
    pub(crate) async fn verify_caller(
        &self,
        token: &PresentedToken<'_>,
        key: TokenKey,
        new_callers: &NewCallers,
    ) -> Result<VerifiedCaller, CallerRefusal> {
        let (issuer, kid) = {
            let jwt = UnverifiedJwt::parse_id_token(token.expose())
                .map_err(|_| Reason::CallerMalformed)?;
            // Refuses tokens for other audiences without a signature check. The rules are compared
            // after the signature.
            external::check_unverified(&jwt, &self.issuers, self.clock.now().wall)?;
            let issuer = claimed_issuer(&jwt).ok_or(Reason::CallerMalformed)?;
            let kid = jwt.kid().ok_or(Reason::CallerMalformed)?;
            (issuer.to_owned(), kid.to_owned())
        };
        let keys = self.keys.key_set(&issuer, &kid).await?;
        let (token, issuers) = (token.to_secret(), Arc::clone(&self.issuers));
        let now = self.clock.now();
        let identity = new_callers
            .run_check(move || {
                let jwt = UnverifiedJwt::parse_id_token(token.expose_secret())
                    .map_err(|_| Reason::CallerMalformed)?;
                let signature =
                    verify::verify_signature(&jwt, &keys).map_err(|_| Reason::CallerRejected)?;
                external::accept_external(&signature, &issuers, now.wall)
            })
            .await?;
        // The signature is verified, so the configuration names this namespace, not the caller.
        new_callers.of_namespace(&identity.account().namespace, now.mono)?;
        let expiry = Deadline::at(identity.expires_at(), now);
        self.verified
            .accept(key, identity.clone(), now, Some(expiry));
        Ok(self.caller_of(&identity)?)
    }

    /// Uses up the token of a caller, if it is for one use. Called when its request is granted and
    /// right before the issuance, so that a request that fails can be repeated.
    ///
    /// # Errors
    /// [`Reason::CallerTokenReused`] if it was used before; [`Reason::RateLimited`] if no more used
    /// tokens can be remembered.
    pub fn use_up(&self, caller: &VerifiedCaller) -> Result<(), Reason> {
        match caller.external() {
            Some(identity) => self.used.add_token(identity, self.clock.now().wall),
            None => Ok(()),
        }
    }

    fn caller_of(&self, identity: &ExternalIdentity) -> Result<VerifiedCaller, Reason> {
        if self.used.is_used(identity) {
            return Err(Reason::CallerTokenReused);
        }
        identity.caller(self.live.service_account(identity.account()))
    }
}

#[cfg(test)]
mod tests;
