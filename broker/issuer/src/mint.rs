//! Mints and caches bound tokens. One TokenRequest serves many callers, tokens are renewed before
//! they expire, and each token is checked before it is cached.

mod cache;
mod counted_cache;
mod gate;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use keyferry_api::config::TokenIssuer;
use keyferry_api::lifetime;
use keyferry_api::moment::Moment;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::Uid;
use keyferry_core::authorise::{Grant, Requester};
use keyferry_hub::ports::Hub;
use keyferry_keys::bound_token::BoundToken;
use keyferry_keys::tracked_keys::{KeyActivation, RECORD_PATIENCE};
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;
use keyferry_platform::random::Random;
use keyferry_platform::single_flight::SingleFlight;
use keyferry_platform::stale_cache::{Lifetimes, Lookup, StaleCache};

pub use self::cache::MintKey;
use self::cache::{CachedToken, CachedTokens};
use self::gate::Gate;
use crate::audience_guard::AudienceGuard;
use crate::bound_request::{self, TokenPurpose};
use crate::managed_issuer::OwnMint;
use crate::publication::{Published, Publisher};

/// How long a failed mint is cached for the caller that met it.
const FAILURE_LIFETIME: Duration = Duration::from_secs(2);
/// The maximum number of cached failures.
const FAILURE_CAPACITY: u64 = 10_000;

/// How long a caller waits for a key's activation delay before it is refused with a time to retry.
const ACTIVATION_PATIENCE: Duration = Duration::from_secs(20);

/// Why a grant gets no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// A token was minted, but the key that signed it is not active yet.
    #[error("the key that signed the token becomes active in {} s", retry_after.as_secs())]
    KeyNotActive {
        /// How long until it is.
        retry_after: Duration,
    },
    /// No token was minted.
    #[error("no token was minted: {0}")]
    Refused(Reason),
}

impl MintError {
    /// The stable reason code.
    pub fn reason(self) -> Reason {
        match self {
            Self::KeyNotActive { .. } => Reason::KeySettling,
            Self::Refused(reason) => reason,
        }
    }

    /// How long until a retry can succeed, if that is known.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::KeyNotActive { retry_after } => Some(retry_after),
            Self::Refused(_) => None,
        }
    }
}

impl From<Reason> for MintError {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

/// What all callers that wait for one mint get.
#[derive(Clone)]
enum SharedMint {
    /// The token may be issued.
    Active(Arc<BoundToken>),
    /// The token waits in the cache until its key is active.
    Waiting,
}

/// A token, and whether it came from the cache.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The token.
    pub token: Arc<BoundToken>,
    /// Whether the token came from the cache.
    pub from_cache: FromCache,
}

/// Whether a token came from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromCache {
    /// The token was cached.
    Hit,
    /// The token was minted for this call, or for a concurrent one.
    Miss,
}

/// The dependencies of a [`Mint`].
pub struct MintParts {
    /// The hub's TokenRequest and review APIs.
    pub hub: Arc<dyn Hub>,
    /// The published keys, and the means to reload them.
    pub publisher: Publisher,
    /// Signs tokens of managed issuers.
    pub own: OwnMint,
    /// Checks that the hub's own apiserver does not accept the audience.
    pub guard: AudienceGuard,
    /// The clock for expiry and deadlines.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for the jitter of renewals.
    pub random: Arc<dyn Random>,
    /// Counts mints and cached tokens.
    pub metrics: Metrics,
    /// The activation delay: how long a key must have been published before tokens that it signed
    /// are issued.
    pub activation_delay: Duration,
    /// How long cached tokens are issued after the last reading of what can revoke their key: the key
    /// journal, or a managed issuer's Secret. At least as long as new ones are minted.
    pub max_stale: Duration,
}

/// Mints tokens and caches them. A clone shares the same cache.
#[derive(Clone)]
pub struct Mint {
    parts: Arc<MintParts>,
    cache: CachedTokens,
    failures: StaleCache<(MintKey, Option<Uid>), Infallible, Reason>,
    calls: Arc<SingleFlight<MintKey, Result<SharedMint, Reason>>>,
}

impl Mint {
    /// Creates a mint with an empty cache.
    pub fn new(parts: MintParts) -> Self {
        Self {
            failures: StaleCache::new(
                Lifetimes::of_refusals(FAILURE_LIFETIME),
                FAILURE_CAPACITY,
                Arc::clone(&parts.clock),
            ),
            parts: Arc::new(parts),
            cache: CachedTokens::default(),
            calls: Arc::default(),
        }
    }

    /// Returns a token for this grant with at least `min_ttl` left: a cached one, or else a new
    /// one.
    ///
    /// # Errors
    /// [`MintError`], with a `Mint…` reason, [`Reason::HubUnreachable`], or what the audience check
    /// says.
    pub async fn token(&self, grant: &Grant, min_ttl: Duration) -> Result<Minted, MintError> {
        let now = self.parts.clock.now();
        let (key, cached) = self.cached_token(grant, min_ttl, now)?;
        match cached {
            Some(token) => Ok(Minted {
                token,
                from_cache: FromCache::Hit,
            }),
            None => self.mint_shared(grant, key, min_ttl).await,
        }
    }

    /// Returns the grant's cache key, and the cached token if it may be issued.
    fn cached_token(
        &self,
        grant: &Grant,
        min_ttl: Duration,
        now: Moment,
    ) -> Result<(MintKey, Option<Arc<BoundToken>>), Reason> {
        let pair = grant.pair();
        let published = self.parts.publisher.borrow_current();
        let (key, gate) = match pair.issuer() {
            TokenIssuer::Hub => {
                let published = published.as_ref().ok_or(Reason::HubUnreachable)?;
                (
                    MintKey::of(grant, published.issuer.clone(), None),
                    self.hub_gate(published),
                )
            }
            TokenIssuer::Keyferry => {
                let parts = &self.parts;
                let (issuer, origin) =
                    parts.own.holding_key(pair.target(), parts.max_stale, now)?;
                (MintKey::of(grant, issuer, Some(origin)), Gate::Managed)
            }
        };
        if self.parts.guard.is_known_as_hubs(pair.audience()) {
            return Err(Reason::AudienceIsHubs);
        }
        let cached = self.cache.get(&key, min_ttl, now, &gate);
        Ok((key, cached))
    }

    fn hub_gate<'a>(&self, published: &'a Published) -> Gate<'a> {
        Gate::Hub {
            published,
            max_stale: self.parts.max_stale.max(RECORD_PATIENCE),
        }
    }

    /// Mints a token that is not cached, once for all concurrent callers.
    async fn mint_shared(
        &self,
        grant: &Grant,
        key: MintKey,
        min_ttl: Duration,
    ) -> Result<Minted, MintError> {
        let caller = match grant.requester() {
            Requester::Caller(caller) => Some(caller.identity().uid.clone()),
            Requester::Operator | Requester::Delivery(_) | Requester::Probe => None,
        };
        let failure = (key.clone(), caller);
        if let Lookup::Refused(reason) = self.failures.lookup(&failure) {
            return Err(reason.into());
        }
        let call = || self.clone().mint_or_reuse(key.clone(), grant.clone());
        match self
            .calls
            .join(key.clone(), call)
            .await
            .unwrap_or(Err(Reason::MintFailed))
        {
            Ok(SharedMint::Active(token)) => Ok(Minted {
                token,
                from_cache: FromCache::Miss,
            }),
            Ok(SharedMint::Waiting) => self.wait_until_active(&key, min_ttl).await,
            Err(reason) => {
                // A missing right or a changed ServiceAccount may be fixed at any moment, so it is
                // not cached. Other failures are, so that retries do not load the hub.
                if !matches!(
                    reason,
                    Reason::MintForbidden | Reason::ServiceAccountChanged | Reason::KeyRecordUnread
                ) {
                    self.failures
                        .refuse(failure, reason, self.parts.clock.now());
                }
                Err(reason.into())
            }
        }
    }

    /// Waits up to `ACTIVATION_PATIENCE` for the key of a minted token to become active.
    async fn wait_until_active(
        &self,
        key: &MintKey,
        min_ttl: Duration,
    ) -> Result<Minted, MintError> {
        let from = self.parts.clock.now();
        loop {
            let token = |token| Minted {
                token,
                from_cache: FromCache::Miss,
            };
            if let Some(active) = self.promote_waiting(key, min_ttl)? {
                return Ok(token(active));
            }
            let Some(left) = self.time_until_active(key) else {
                // The token no longer waits: another caller has just promoted it, perhaps at a time
                // at which its key was not active here yet, or its key is gone, or the key journal
                // has been unread for too long.
                let promoted = self.promote_waiting(key, min_ttl)?;
                let is_current = self.parts.publisher.is_current();
                return promoted.map(token).ok_or(MintError::Refused(if is_current {
                    Reason::KeyNotPublished
                } else {
                    Reason::KeyRecordUnread
                }));
            };
            let waited = self.parts.clock.now().mono.saturating_sub(from.mono);
            if waited + left > ACTIVATION_PATIENCE {
                return Err(MintError::KeyNotActive { retry_after: left });
            }
            tokio::time::sleep(left.clamp(Duration::from_millis(50), Duration::from_secs(1))).await;
        }
    }

    /// Caches the waiting tokens whose keys are active now, and returns the one under `key` if it may
    /// be issued.
    fn promote_waiting(
        &self,
        key: &MintKey,
        min_ttl: Duration,
    ) -> Result<Option<Arc<BoundToken>>, Reason> {
        let published = self.parts.publisher.reader().current();
        let published = published.ok_or(Reason::HubUnreachable)?;
        let now = self.parts.clock.now();
        self.cache.promote(now, &published);
        let gate = self.hub_gate(&published);
        Ok(self.cache.get(key, min_ttl, now, &gate))
    }

    /// Returns how long the token under `key` still waits for its key's activation; `None` if none
    /// waits.
    fn time_until_active(&self, key: &MintKey) -> Option<Duration> {
        let kid = self.cache.waiting_kid(key)?;
        match self.parts.publisher.key_activation(&kid) {
            KeyActivation::Active => Some(Duration::ZERO),
            KeyActivation::After(left) => Some(left),
            KeyActivation::Unpublished | KeyActivation::Revoked => None,
        }
    }

    /// Mints unless a token is cached by now: another mint for the key may have ended between the
    /// cache lookup and the start of this one.
    async fn mint_or_reuse(self, key: MintKey, grant: Grant) -> Result<SharedMint, Reason> {
        let min_ttl = lifetime::greatest_min_ttl(grant.pair().lifetime());
        let cached = {
            let published = self.parts.publisher.borrow_current();
            let gate = match grant.pair().issuer() {
                TokenIssuer::Hub => {
                    self.hub_gate(published.as_ref().ok_or(Reason::HubUnreachable)?)
                }
                TokenIssuer::Keyferry => Gate::Managed,
            };
            self.cache.get(&key, min_ttl, self.parts.clock.now(), &gate)
        };
        match cached {
            Some(token) => Ok(SharedMint::Active(token)),
            None if self.time_until_active(&key).is_some() => Ok(SharedMint::Waiting),
            None => self.mint(key, grant).await,
        }
    }

    /// The one place that asks the hub for a token to issue. It takes a [`Grant`], the proof that
    /// only the authoriser can make.
    async fn mint(self, key: MintKey, grant: Grant) -> Result<SharedMint, Reason> {
        self.cache.check_room(&key)?;
        // Without the other replicas' publications and revocations, Keyferry might issue a token of
        // a revoked key.
        if grant.pair().issuer() == TokenIssuer::Hub && !self.parts.publisher.is_current() {
            return Err(Reason::KeyRecordUnread);
        }
        let outcome = self.mint_checked(&grant).await;
        self.parts
            .metrics
            .count_mint(outcome.as_ref().map(|_| ()).map_err(|reason| *reason));
        let (token, skew) = outcome?;
        let token = Arc::new(token);
        self.parts.metrics.hub_clock_skew(skew);
        let (now, publisher) = (self.parts.clock.now(), &self.parts.publisher);
        let own = grant.pair().issuer() == TokenIssuer::Keyferry;
        let entry = CachedToken::new(
            Arc::clone(&token),
            grant,
            self.parts.activation_delay,
            self.parts.random.unit_fraction(),
            now,
        );
        if !own {
            publisher.note_signature(token.kid(), token.deadline().wall());
        }
        // A managed issuer signs with active keys only.
        if own || publisher.key_activation(token.kid()) == KeyActivation::Active {
            self.cache.insert(key, entry);
            self.parts.metrics.cached_tokens(self.cache.len());
            return Ok(SharedMint::Active(token));
        }
        // An older cached token is still issued meanwhile; without one, callers must wait.
        self.cache.hold_until_active(key, entry);
        Ok(SharedMint::Waiting)
    }

    /// Mints a token and returns it with the seconds that the hub's clock is ahead of ours.
    async fn mint_checked(&self, grant: &Grant) -> Result<(BoundToken, i64), Reason> {
        let parts = &self.parts;
        if grant.pair().issuer() == TokenIssuer::Keyferry {
            return parts.own.mint_managed(parts, grant).await;
        }
        parts.guard.check_audience(grant.pair().audience()).await?;
        let token = bound_request::request_bound_token(
            &*parts.hub,
            &parts.publisher,
            &*parts.clock,
            TokenPurpose::Granted(grant),
        )
        .await?;
        let skew = token.skew_seconds();
        Ok((token, skew))
    }

    /// Renews due tokens that were used within their last lifetime, and forgets the rest. `allowed`
    /// says which grants policy still allows.
    pub fn renew_due(&self, allowed: impl Fn(&Grant) -> bool) {
        let now = self.parts.clock.now();
        if let Some(published) = self.parts.publisher.reader().current() {
            self.cache.promote(now, &published);
        }
        for (key, grant) in self.cache.due_renewals(now) {
            if !allowed(&grant) {
                self.cache.remove(&key);
                continue;
            }
            let this = self.clone();
            tokio::spawn(async move {
                let renewal = this.clone();
                // A failure leaves the cached token: it is valid until it expires, and the next run
                // tries again.
                let renewed = this
                    .calls
                    .join(key.clone(), || renewal.mint(key, grant))
                    .await;
                if let Ok(Err(reason)) = renewed {
                    tracing::warn!(%reason, "renewing a cached token failed; it is used until it expires");
                }
            });
        }
        self.parts.metrics.cached_tokens(self.cache.len());
    }
}

#[cfg(test)]
mod activation_tests;
#[cfg(test)]
mod tests;
