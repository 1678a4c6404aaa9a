//! Keyferry's managed issuers: the published documents and the signers.
//!
//! A background task ([`KeySetMaintainer`]) reloads each target's key set regularly and stores the
//! result here as a whole. Requests use only the stored result; they never read a Secret and never
//! see a key.

mod consent;
mod keyring;
mod maintainer;
mod minting;
mod signer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keyferry_api::issuer::Issuer;
use keyferry_api::moment::Moment;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_keys::jwks::PublicKeySet;
use keyferry_keys::managed_issuer::READING_GOOD_FOR;

use crate::publication::Document;

pub use consent::HubsConsent;
pub use maintainer::{KeySetMaintainer, KeySetMaintainerParts};
pub use minting::OwnMint;
pub use signer::{LocalSigner, Signer};

use keyring::SigningKey;

/// The documents of one issuer.
#[derive(Debug)]
pub struct OwnDocuments {
    /// The keys.
    pub keys: PublicKeySet,
    /// The provider metadata document.
    pub metadata: Document,
    /// The key set document.
    pub jwks: Document,
}

/// The current state of one target's managed issuer.
#[derive(Clone, Debug)]
pub struct ManagedIssuer {
    /// The `iss` claim of its tokens.
    pub issuer: Issuer,
    /// The published documents of the last successful reading, however old; `None` before the first
    /// one.
    pub documents: Option<Arc<OwnDocuments>>,
    /// Identifies the stored object with the keys. A different object means that the keys of this
    /// one were revoked.
    pub origin: Option<Arc<str>>,
    signing: Option<Arc<SigningKey>>,
    read_at: Option<Duration>,
    fault: Option<Reason>,
}

impl ManagedIssuer {
    fn new(issuer: Issuer) -> Self {
        Self {
            issuer,
            documents: None,
            origin: None,
            signing: None,
            read_at: None,
            fault: None,
        }
    }

    /// Whether the keys were read at most `limit` before `now`; later, they may have been revoked.
    fn was_read_within(&self, limit: Duration, now: Moment) -> bool {
        self.read_at
            .is_some_and(|at| now.mono.saturating_sub(at) <= limit)
    }

    /// Returns the active signing key, if a recent reading found one.
    pub(crate) fn signing_key(&self, now: Moment) -> Result<Arc<SigningKey>, Reason> {
        match (&self.signing, self.fault) {
            (Some(key), _) if self.was_read_within(READING_GOOD_FOR, now) => Ok(Arc::clone(key)),
            (None, None) => Err(Reason::IssuerKeysSettling),
            (_, fault) => Err(fault.unwrap_or(Reason::HubUnreachable)),
        }
    }
}

/// The managed issuers by target; empty if they are not enabled.
#[derive(Clone, Default)]
pub struct ManagedIssuers(Arc<ArcSwap<BTreeMap<ObjectName, Arc<ManagedIssuer>>>>);

impl ManagedIssuers {
    /// Returns the managed issuer of a target; `None` if the target has none.
    pub fn get(&self, target: &ObjectName) -> Option<Arc<ManagedIssuer>> {
        self.0.load().get(target).cloned()
    }

    /// Returns the managed issuer for a target's name in a request path.
    pub fn find_by_name(&self, target: &str) -> Option<Arc<ManagedIssuer>> {
        self.get(&ObjectName::new(target).ok()?)
    }

    fn store_issuer(&self, target: &ObjectName, issuer: &ManagedIssuer) {
        let issuer = Arc::new(issuer.clone());
        self.0.rcu(|issuers| {
            let mut issuers = BTreeMap::clone(issuers);
            issuers.insert(target.clone(), Arc::clone(&issuer));
            issuers
        });
    }

    fn retain(&self, keep: impl Fn(&ObjectName) -> bool) {
        self.0.rcu(|issuers| {
            let mut issuers = BTreeMap::clone(issuers);
            issuers.retain(|target, _| keep(target));
            issuers
        });
    }
}

#[cfg(test)]
mod tests;
