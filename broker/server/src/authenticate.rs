//! Authenticates callers: the hub reviews the caller's token. The result is cached for seconds, and
//! a little longer while the hub is unreachable. A client certificate is verified here, without the
//! hub.

mod certificate;
mod review;
mod token_key;

use std::sync::Arc;

use aws_lc_rs::hmac;
use keyferry_api::config::InputCredential;
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_core::caller::{CallerRefusal, CallerRules, PresentedToken, VerifiedCaller};
use keyferry_core::inputs::credential::InputCaller;
use keyferry_hub::ports::{Hub, HubError};
use keyferry_issuer::publication::Publisher;
use keyferry_issuer::settings::CallerSettings;
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::stale_cache::{FetchError, Lookup};

use self::certificate::CertificateChecks;
use self::review::Reviewer;
use crate::caller_trust::TrustReader;
use crate::external_callers::ExternalCallers;
use crate::new_callers::NewCallers;

pub use self::certificate::CertificateRefusal;
pub use self::token_key::TokenKey;

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// The verified identity.
    pub caller: VerifiedCaller,
    /// The cache key of the caller's token or certificate.
    pub key: TokenKey,
    /// Whether the hub was unreachable, so that an earlier review was used.
    pub stale: bool,
}

/// Authenticates callers.
pub struct Authenticator {
    reviewer: Arc<Reviewer>,
    publisher: Publisher,
    callers: CallerSettings,
    hash_key: hmac::Key,
    certificates: CertificateChecks<ServiceAccountIdentity>,
    input_certificates: CertificateChecks<Arc<InputCredential>>,
    external: Option<Arc<ExternalCallers>>,
}

impl Authenticator {
    /// Creates an authenticator; `hash_key` must be random and private to this process.
    pub fn new(
        hub: Arc<dyn Hub>,
        publisher: Publisher,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        hash_key: [u8; 32],
        callers: CallerSettings,
    ) -> Self {
        let new_callers = NewCallers::new(callers.new_callers);
        let (no_trust, max_stale) = (TrustReader::default(), callers.max_stale);
        Self {
            certificates: CertificateChecks::new(no_trust.clone(), max_stale, Arc::clone(&clock)),
            input_certificates: CertificateChecks::new(no_trust, max_stale, Arc::clone(&clock)),
            reviewer: Arc::new(Reviewer::new(
                hub,
                publisher.clone(),
                clock,
                metrics,
                max_stale,
                new_callers,
            )),
            publisher,
            callers,
            hash_key: hmac::Key::new(hmac::HMAC_SHA256, &hash_key),
            external: None,
        }
    }

    /// Also identifies callers and readers of fleet inputs by client certificates, by these rules.
    #[must_use]
    pub fn with_certificates(self, trust: TrustReader) -> Self {
        let (clock, max_stale) = (&self.reviewer.clock, self.callers.max_stale);
        Self {
            certificates: CertificateChecks::new(trust.clone(), max_stale, Arc::clone(clock)),
            input_certificates: CertificateChecks::new(trust, max_stale, Arc::clone(clock)),
            ..self
        }
    }

    /// Also accepts the tokens of external issuers.
    #[must_use]
    pub fn with_external(self, external: Option<Arc<ExternalCallers>>) -> Self {
        Self { external, ..self }
    }

    /// Identifies the caller by the client certificate of the connection from `source`. Only an
    /// unknown caller counts towards the limit of its source.
    ///
    /// # Errors
    /// [`CertificateRefusal`]: a `Caller…` reason or [`Reason::RateLimited`].
    pub async fn authenticate_certificate(
        &self,
        chain: &Arc<PresentedChain>,
        source: Source,
    ) -> Result<Authentication, CertificateRefusal> {
        let hash = |version| self.certificate_key(chain, version);
        let (caller, key) = self
            .certificates
            .identify_caller(chain, source, hash, &self.reviewer)
            .await?;
        Ok(fresh_authentication(caller, key))
    }

    /// Identifies the reader of fleet inputs whose certificate the connection from `source` has, by
    /// the same checks as a caller of tokens.
    ///
    /// # Errors
    /// As [`Self::authenticate_certificate`].
    pub async fn authenticate_input_certificate(
        &self,
        chain: &Arc<PresentedChain>,
        source: Source,
    ) -> Result<InputCaller, CertificateRefusal> {
        let hash = |version| self.certificate_key(chain, version);
        let identified =
            self.input_certificates
                .identify_caller(chain, source, hash, &self.reviewer);
        identified.await.map(|(caller, _)| caller)
    }

    /// Identifies the caller that sent `token` from `source`. Only an unknown caller counts towards
    /// the limit of its source.
    ///
    /// # Errors
    /// A `Caller…` reason, with the claim that no rule accepts; or [`Reason::HubUnreachable`],
    /// [`Reason::RateLimited`], [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn authenticate(
        &self,
        token: &PresentedToken<'_>,
        source: Source,
    ) -> Result<Authentication, CallerRefusal> {
        let published = self.publisher.borrow_current();
        let issuer = &published.as_ref().ok_or(Reason::HubUnreachable)?.issuer;
        let key = self.token_key(token, issuer);
        if let Some(known) = self.external.as_ref().and_then(|it| it.cached_caller(&key)) {
            return Ok(fresh_authentication(known?, key));
        }
        let is_known = match self.reviewer.reviews.lookup(&key) {
            Lookup::Fresh(caller) => return Ok(fresh_authentication(caller, key)),
            // The hub accepted this token recently: its review is due again.
            Lookup::Stale(_) => true,
            Lookup::Refused(reason) => {
                self.count_unreadable(source)?;
                return Err(reason.into());
            }
            Lookup::Unknown => {
                self.count_unreadable(source)?;
                false
            }
        };
        if let Some(external) = &self.external
            && external.claims_external_issuer(token, issuer)
        {
            drop(published);
            let new_callers = &self.reviewer.new_callers;
            let caller = external.verify_caller(token, key, new_callers).await?;
            return Ok(fresh_authentication(caller, key));
        }
        let CallerSettings {
            audience,
            require_pod_bound,
            ..
        } = self.callers.clone();
        let rules = CallerRules {
            issuer: issuer.clone(),
            audience,
            require_pod_bound,
        };
        drop(published);
        Ok(self.review_token(token, rules, key, is_known).await?)
    }

    /// Counts a request without a readable token towards the limit of its source.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub fn count_unreadable(&self, source: Source) -> Result<(), Reason> {
        self.reviewer
            .new_callers
            .of_source(source, self.reviewer.now().mono)
    }

    /// Delays a refusal for [`Reason::RateLimited`] for a moment.
    pub async fn delay_refusal(&self) {
        self.reviewer.new_callers.delay_refusal().await;
    }

    /// Reviews a token, or falls back to an earlier review while the hub is proven unreachable.
    async fn review_token(
        &self,
        token: &PresentedToken<'_>,
        rules: CallerRules,
        key: TokenKey,
        is_known: bool,
    ) -> Result<Authentication, Reason> {
        let review =
            || Arc::clone(&self.reviewer).review_token(key, token.to_secret(), rules, is_known);
        let served = self
            .reviewer
            .reviews
            .fetch_or_stale(&key, HubError::proves_unreachable, review)
            .await;
        match served {
            Ok(served) => Ok(Authentication {
                caller: served.value,
                key,
                stale: served.is_stale,
            }),
            Err(FetchError::Refused(reason)) => Err(reason),
            Err(FetchError::Failed(error)) => {
                let reason = error.review_reason();
                if !error.proves_unreachable() {
                    tracing::error!(%reason, %error, "the TokenReview failed");
                }
                Err(reason)
            }
            Err(FetchError::Lost) => Err(Reason::HubUnreachable),
        }
    }

    fn certificate_key(&self, chain: &PresentedChain, version: u64) -> TokenKey {
        let mut context = hmac::Context::with_key(&self.hash_key);
        // The keys of tokens begin with the length of an audience, which is far below this.
        context.update(&usize::MAX.to_be_bytes());
        context.update(&version.to_be_bytes());
        for der in std::iter::once(chain.leaf()).chain(chain.intermediates()) {
            context.update(&der.len().to_be_bytes());
            context.update(der);
        }
        digest_of(context)
    }

    fn token_key(&self, token: &PresentedToken<'_>, issuer: &Issuer) -> TokenKey {
        let mut context = hmac::Context::with_key(&self.hash_key);
        for part in [
            self.callers.audience.as_str(),
            issuer.as_str(),
            token.expose(),
        ] {
            context.update(&part.len().to_be_bytes());
            context.update(part.as_bytes());
        }
        digest_of(context)
    }
}

fn digest_of(context: hmac::Context) -> TokenKey {
    let mut key = [0; 32];
    key.copy_from_slice(context.sign().as_ref());
    key
}

/// The authentication of a caller by a current answer. The hub does not authenticate external callers,
/// so theirs is never stale.
fn fresh_authentication(caller: VerifiedCaller, key: TokenKey) -> Authentication {
    Authentication {
        caller,
        key,
        stale: false,
    }
}

#[cfg(test)]
mod tests;
