//! Identifies callers by client certificates. The result is cached for seconds, so that a connection
//! with many requests costs one verification, and no longer than the rules and the CAs stay as they
//! are.

use std::sync::Arc;
use std::time::Duration;

use keyferry_api::moment::{Deadline, Moment};
use keyferry_api::reason::Reason;
use keyferry_core::caller::{self, VerifiedCaller};
use keyferry_keys::caller_certificate::{self, CallerCertificateError, PresentedChain};
use moka::sync::Cache;
use parking_lot::Mutex;

use super::review::Reviewer;
use super::{Authentication, TokenKey};
use crate::caller_trust::{Trust, TrustReader};
use crate::source::Source;

/// How long an accepted certificate is cached.
const ACCEPTED_LIFETIME: Duration = Duration::from_secs(10);
/// How long a refusal is cached, to slow down a client that retries in a loop.
const REFUSED_LIFETIME: Duration = Duration::from_secs(5);
/// The maximum number of cached certificates.
const CAPACITY: u64 = 20_000;

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

/// The cached result of a certificate's verification.
#[derive(Clone)]
enum CachedCheck {
    Accepted {
        caller: VerifiedCaller,
        fresh: Deadline,
        /// Until then the caller is a known one, which no limit of unknown callers applies to.
        known: Deadline,
    },
    Refused {
        fault: CallerCertificateError,
        until: Deadline,
    },
}

/// Verifies client certificates.
pub(super) struct CertificateChecks {
    trust: TrustReader,
    max_stale: Duration,
    cached: Cache<TokenKey, CachedCheck>,
}

impl CertificateChecks {
    pub(super) fn new(trust: TrustReader, max_stale: Duration) -> Self {
        let life = max_stale.max(ACCEPTED_LIFETIME) + REFUSED_LIFETIME;
        Self {
            trust,
            max_stale,
            cached: Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_live(life)
                .build(),
        }
    }

    /// Identifies the caller. `hash` makes the cache key of the certificate for a version of the
    /// rules.
    pub(super) async fn identify(
        &self,
        chain: &Arc<PresentedChain>,
        source: Source,
        hash: impl Fn(u64) -> TokenKey,
        reviewer: &Reviewer,
    ) -> Result<Authentication, CertificateRefusal> {
        let now = reviewer.now();
        let trust = self.trust.current();
        let key = hash(trust.version);
        let authenticated = |caller: VerifiedCaller| Authentication {
            caller,
            key,
            stale: false,
        };
        let cached = self.cached.get(&key);
        let is_known = match &cached {
            Some(CachedCheck::Accepted { caller, fresh, .. }) if !fresh.passed(now) => {
                return Ok(authenticated(caller.clone()));
            }
            Some(CachedCheck::Accepted { known, .. }) => !known.passed(now),
            _ => false,
        };
        if !is_known {
            reviewer.new_callers.of_source(source, now.mono)?;
        }
        match cached {
            Some(CachedCheck::Refused { fault, until }) if !until.passed(now) => {
                return Err(fault.into());
            }
            _ => {}
        }
        let verified = if is_known {
            verify(&trust, chain, now)
        } else {
            verify_apart(trust, Arc::clone(chain), now, reviewer).await?
        };
        match verified {
            Ok(caller) => {
                if !is_known {
                    let namespace = &caller.identity().account.namespace;
                    reviewer.new_callers.of_namespace(namespace, now.mono)?;
                }
                self.accepted(key, &caller, now);
                Ok(authenticated(caller))
            }
            Err(fault) => {
                let until = Deadline::after(REFUSED_LIFETIME, now);
                self.cached
                    .insert(key, CachedCheck::Refused { fault, until });
                Err(fault.into())
            }
        }
    }

    fn accepted(&self, key: TokenKey, caller: &VerifiedCaller, now: Moment) {
        let expiry = Deadline::at(caller.expires_at(), now);
        let until = |life| {
            let end = Deadline::after(life, now);
            if expiry.left(now) < end.left(now) {
                expiry
            } else {
                end
            }
        };
        self.cached.insert(
            key,
            CachedCheck::Accepted {
                caller: caller.clone(),
                fresh: until(ACCEPTED_LIFETIME),
                known: until(self.max_stale),
            },
        );
    }
}

fn verify(
    trust: &Trust,
    chain: &PresentedChain,
    now: Moment,
) -> Result<VerifiedCaller, CallerCertificateError> {
    caller_certificate::identify(&trust.rules, chain, now.wall)
        .map(|certified| caller::accept_certificate(&certified))
}

/// Verifies on other threads than known callers' requests, so that the signatures of unknown
/// callers take none of their time.
async fn verify_apart(
    trust: Arc<Trust>,
    chain: Arc<PresentedChain>,
    now: Moment,
    reviewer: &Reviewer,
) -> Result<Result<VerifiedCaller, CallerCertificateError>, Reason> {
    let outcome = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&outcome);
    let check = move || {
        *slot.lock() = Some(verify(&trust, &chain, now));
        Ok(())
    };
    reviewer.new_callers.check(check).await?;
    let outcome = outcome.lock().take();
    outcome.ok_or(Reason::CallerCertificateRejected)
}
