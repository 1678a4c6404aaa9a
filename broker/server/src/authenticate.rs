//! Authenticates callers: the hub reviews the caller's token. The result is cached for seconds, and
//! a little longer while the hub is unreachable. A client certificate is verified here, without the
//! hub.

mod certificate;
mod review;

use std::sync::Arc;

use aws_lc_rs::hmac;
use keyferry_api::config::InputCredential;
use keyferry_api::issuer::Issuer;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_controller::caller_trust::TrustReader;
use keyferry_core::caller::{CallerRules, PresentedToken, VerifiedCaller};
use keyferry_core::inputs::credential::InputCaller;
use keyferry_hub::clock::Clock;
use keyferry_hub::metrics::Metrics;
use keyferry_hub::ports::Hub;
use keyferry_hub::single_flight::SingleFlight;
use keyferry_issuer::publication::Publisher;
use keyferry_issuer::settings::CallerSettings;
use keyferry_keys::caller_certificate::PresentedChain;
use keyferry_listener::Source;

use self::certificate::CertificateChecks;
use self::review::{CachedReview, Failure, Reviewer};
use crate::external_callers::ExternalCallers;
use crate::new_callers::NewCallers;

pub use self::certificate::CertificateRefusal;

/// The cache key of a token or a certificate: a keyed hash, so that no cache contains the token.
pub type TokenKey = [u8; 32];

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
    calls: SingleFlight<TokenKey, Result<VerifiedCaller, Failure>>,
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
        let reviewer = Arc::new(Reviewer::new(
            hub,
            publisher.clone(),
            clock,
            metrics,
            callers.max_stale,
            new_callers,
        ));
        let hash_key = hmac::Key::new(hmac::HMAC_SHA256, &hash_key);
        let callers_max_stale = callers.max_stale;
        Self {
            reviewer,
            publisher,
            callers,
            hash_key,
            certificates: CertificateChecks::new(TrustReader::default(), callers_max_stale),
            input_certificates: CertificateChecks::new(TrustReader::default(), callers_max_stale),
            external: None,
            calls: SingleFlight::default(),
        }
    }

    /// Also identifies callers and readers of fleet inputs by client certificates, by these rules.
    #[must_use]
    pub fn with_certificates(self, trust: TrustReader) -> Self {
        Self {
            certificates: CertificateChecks::new(trust.clone(), self.callers.max_stale),
            input_certificates: CertificateChecks::new(trust, self.callers.max_stale),
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
            .identify(chain, source, hash, &self.reviewer)
            .await?;
        Ok(Authentication {
            caller,
            key,
            stale: false,
        })
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
        let identified = self
            .input_certificates
            .identify(chain, source, hash, &self.reviewer);
        identified.await.map(|(caller, _)| caller)
    }

    /// Identifies the caller that sent `token` from `source`. Only an unknown caller counts towards
    /// the limit of its source.
    ///
    /// # Errors
    /// A `Caller…` reason, [`Reason::HubUnreachable`], [`Reason::RateLimited`],
    /// [`Reason::ReviewForbidden`] or [`Reason::ReviewFailed`].
    pub async fn authenticate(
        &self,
        token: &PresentedToken<'_>,
        source: Source,
    ) -> Result<Authentication, Reason> {
        let now = self.reviewer.now();
        let published = self.publisher.look();
        let issuer = &published.as_ref().ok_or(Reason::HubUnreachable)?.issuer;
        let key = self.key(token, issuer);
        if let Some(known) = self.external.as_ref().and_then(|it| it.known(&key)) {
            return known.map(|caller| of_external(caller, key));
        }
        let known = self.reviewer.known(&key);
        match &known {
            Some(CachedReview::Accepted { caller, fresh, .. }) if !fresh.passed(now) => {
                return Ok(Authentication {
                    caller: caller.clone(),
                    key,
                    stale: false,
                });
            }
            // The hub accepted this token recently: its review is due again.
            Some(CachedReview::Accepted { stale, .. }) if !stale.passed(now) => {}
            known => {
                self.reviewer.new_callers.of_source(source, now.mono)?;
                match known {
                    Some(CachedReview::Rejected { reason, until }) if !until.passed(now) => {
                        return Err(*reason);
                    }
                    _ => {}
                }
            }
        }
        if let Some(external) = &self.external
            && external.covers(token, issuer)
        {
            drop(published);
            let new_callers = &self.reviewer.new_callers;
            let caller = external.authenticate(token, key, new_callers).await?;
            return Ok(of_external(caller, key));
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
        self.ask(token, rules, key, known).await
    }

    /// Counts a request without a readable token towards the limit of its source.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub fn count(&self, source: Source) -> Result<(), Reason> {
        self.reviewer
            .new_callers
            .of_source(source, self.reviewer.now().mono)
    }

    /// Delays a refusal for [`Reason::RateLimited`] for a moment.
    pub async fn hold_back(&self) {
        self.reviewer.new_callers.hold_back().await;
    }

    async fn ask(
        &self,
        token: &PresentedToken<'_>,
        rules: CallerRules,
        key: TokenKey,
        known: Option<CachedReview>,
    ) -> Result<Authentication, Reason> {
        match self
            .calls
            .join(key, || {
                Arc::clone(&self.reviewer).review(key, token.keep(), rules)
            })
            .await
        {
            Ok(Ok(caller)) => Ok(Authentication {
                caller,
                key,
                stale: false,
            }),
            Ok(Err(Failure::Rejected(reason))) => Err(reason),
            Ok(Err(Failure::Hub(error))) if error.proves_unreachable() => self.stale(key, known),
            Ok(Err(Failure::Hub(error))) => {
                let reason = error.review_reason();
                tracing::error!(%reason, %error, "the TokenReview failed");
                Err(reason)
            }
            Err(_) => Err(Reason::HubUnreachable),
        }
    }

    /// Falls back to an earlier review while the hub is proven unreachable.
    fn stale(&self, key: TokenKey, known: Option<CachedReview>) -> Result<Authentication, Reason> {
        match known {
            Some(CachedReview::Accepted { caller, stale, .. })
                if !stale.passed(self.reviewer.now()) =>
            {
                Ok(Authentication {
                    caller,
                    key,
                    stale: true,
                })
            }
            _ => Err(Reason::HubUnreachable),
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

    fn key(&self, token: &PresentedToken<'_>, issuer: &Issuer) -> TokenKey {
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

/// The hub does not authenticate external callers, so their results are never stale.
fn of_external(caller: VerifiedCaller, key: TokenKey) -> Authentication {
    Authentication {
        caller,
        key,
        stale: false,
    }
}

#[cfg(test)]
mod tests;
