//! Identifies callers of the token API and readers of fleet inputs by client certificates. The
//! result is cached for seconds, so that a connection with many requests costs one verification. A
//! change of the rules or of a CA ends the caching.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::InputCredential;
use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccountIdentity;
use keyferry_core::caller::{self, VerifiedCaller};
use keyferry_core::inputs::credential::InputCaller;
use keyferry_keys::caller_certificate::{
    CallerCertificateError, CallerCertificateRules, CertifiedCaller, PresentedChain,
};
use keyferry_listener::Source;
use keyferry_platform::clock::Clock;
use keyferry_platform::stale_cache::{Lifetimes, Lookup, StaleCache};

use super::review::Reviewer;
use super::token_key::TokenKey;
use crate::caller_trust::{Trust, TrustReader};

/// How long an accepted certificate is cached.
const ACCEPTED_LIFETIME: Duration = Duration::from_secs(10);
/// How long a refusal is cached, to slow down a client that retries in a loop.
const REFUSED_LIFETIME: Duration = Duration::from_secs(5);
/// The maximum number of cached certificates.
const MAX_CACHED_CERTIFICATES: u64 = 20_000;

/// Why a certificate identified no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateRefusal {
    /// The stable code.
    pub reason: Reason,
    /// What is wrong with the certificate, for the audit record.
    pub fault: Option<CallerCertificateError>,
}

impl From<Reason> for CertificateRefusal {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            fault: None,
        }
    }
}

impl From<CallerCertificateError> for CertificateRefusal {
    fn from(fault: CallerCertificateError) -> Self {
        Self {
            reason: Reason::CallerCertificateRejected,
            fault: Some(fault),
        }
    }
}

/// What a rule for client certificates stands for.
pub(super) trait CertificateIdentity: Clone + PartialEq + Send + Sync + 'static {
    /// What a certificate of the rule makes of its client.
    type Caller: Clone + Send + Sync + 'static;

    fn certificate_rules(trust: &Trust) -> &CallerCertificateRules<Self>;

    fn accept(certified: &CertifiedCaller<Self>) -> Self::Caller;

    /// The namespace that can make any number of such callers.
    fn namespace(&self) -> Option<&Namespace>;
}

impl CertificateIdentity for ServiceAccountIdentity {
    type Caller = VerifiedCaller;

    fn certificate_rules(trust: &Trust) -> &CallerCertificateRules<Self> {
        &trust.callers
    }

    fn accept(certified: &CertifiedCaller<Self>) -> VerifiedCaller {
        caller::accept_certificate(certified)
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.account.namespace)
    }
}

impl CertificateIdentity for Arc<InputCredential> {
    type Caller = InputCaller;

    fn certificate_rules(trust: &Trust) -> &CallerCertificateRules<Self> {
        &trust.inputs
    }

    fn accept(certified: &CertifiedCaller<Self>) -> InputCaller {
        InputCaller::of_certificate(certified)
    }

    fn namespace(&self) -> Option<&Namespace> {
        None
    }
}

/// Verifies client certificates by the rules for identities of one type.
pub(super) struct CertificateChecks<I: CertificateIdentity> {
    trust: TrustReader,
    /// The callers of recent certificates. One whose check is stale is verified again, but it is
    /// known: the limits of unknown callers do not apply to it.
    checks: StaleCache<TokenKey, I::Caller, CallerCertificateError>,
}

impl<I: CertificateIdentity> CertificateChecks<I> {
    pub(super) fn new(trust: TrustReader, max_stale: Duration, clock: Arc<dyn Clock>) -> Self {
        let lifetimes = Lifetimes {
            fresh: ACCEPTED_LIFETIME,
            stale: max_stale,
            refused: REFUSED_LIFETIME,
        };
        Self {
            trust,
            checks: StaleCache::new(lifetimes, MAX_CACHED_CERTIFICATES, clock),
        }
    }

    /// Identifies the caller, and returns the cache key of its certificate beside it. `hash` makes
    /// this key for a version of the rules.
    pub(super) async fn identify_caller(
        &self,
        chain: &Arc<PresentedChain>,
        source: Source,
        hash: impl Fn(u64) -> TokenKey,
        reviewer: &Reviewer,
    ) -> Result<(I::Caller, TokenKey), CertificateRefusal> {
        let now = reviewer.now();
        let trust = self.trust.current();
        let key = hash(trust.version);
        let is_known = match self.checks.lookup(&key) {
            Lookup::Fresh(caller) => return Ok((caller, key)),
            Lookup::Stale(_) => true,
            Lookup::Refused(fault) => {
                reviewer.new_callers.of_source(source, now.mono)?;
                return Err(fault.into());
            }
            Lookup::Unknown => {
                reviewer.new_callers.of_source(source, now.mono)?;
                false
            }
        };
        let verified = if is_known {
            I::certificate_rules(&trust).identify_caller(chain, now.wall)
        } else {
            verify_apart::<I>(trust, Arc::clone(chain), now, reviewer).await?
        };
        match verified {
            Ok(certified) => {
                if let (false, Some(namespace)) = (is_known, certified.identity().namespace()) {
                    reviewer.new_callers.of_namespace(namespace, now.mono)?;
                }
                let caller = I::accept(&certified);
                let expiry = Deadline::at(certified.not_after(), now);
                self.checks.accept(key, caller.clone(), now, Some(expiry));
                Ok((caller, key))
            }
            Err(fault) => {
                self.checks.refuse(key, fault, now);
                Err(fault.into())
            }
        }
    }
}

/// Verifies on other threads than known callers' requests, so that the signatures of unknown
/// callers take none of their time.
async fn verify_apart<I: CertificateIdentity>(
    trust: Arc<Trust>,
    chain: Arc<PresentedChain>,
    now: Moment,
    reviewer: &Reviewer,
) -> Result<Result<CertifiedCaller<I>, CallerCertificateError>, Reason> {
    let check = move || Ok(I::certificate_rules(&trust).identify_caller(&chain, now.wall));
    reviewer.new_callers.run_check(check).await
}
