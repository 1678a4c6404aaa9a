//! Keyferry's managed issuers: what of them is published, and who signs.
//!
//! A background task reads each target's key set again and again ([`Keeper`]) and puts what it
//! finds here, whole. Requests look; they never read, and never see a key.

mod consent;
mod keeper;
mod keyring;
mod minting;
mod signer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use keyferry_core::issuer::Issuer;
use keyferry_core::jwks::PublicKeySet;
use keyferry_core::managed_issuer::READING_GOOD_FOR;
use keyferry_core::moment::Moment;
use keyferry_core::name::ObjectName;
use keyferry_core::reason::Reason;

use crate::publication::Document;

pub use consent::HubsConsent;
pub use keeper::{Keeper, KeeperParts};
pub use minting::OwnMint;
pub use signer::LocalSigner;

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

/// One target's issuer as it is now.
#[derive(Clone, Debug)]
pub struct ManagedIssuer {
    /// `iss`.
    pub issuer: Issuer,
    /// What is published: what the last good reading said, however old. Nothing before the first
    /// one.
    pub documents: Option<Arc<OwnDocuments>>,
    /// Which stored object the keys are of. Another one means that the keys of this one were
    /// revoked.
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

    /// The key to sign with: that of a reading not long ago which found it settled.
    fn signing_key(&self, now: Moment) -> Result<Arc<SigningKey>, Reason> {
        let fresh = self
            .read_at
            .is_some_and(|at| now.mono.saturating_sub(at) <= READING_GOOD_FOR);
        match (&self.signing, self.fault) {
            (Some(key), _) if fresh => Ok(Arc::clone(key)),
            (None, None) => Err(Reason::IssuerKeysSettling),
            (_, fault) => Err(fault.unwrap_or(Reason::HubUnreachable)),
        }
    }
}

/// Reads the issuers. Empty where they are not enabled.
#[derive(Clone, Default)]
pub struct ManagedIssuers(Arc<ArcSwap<BTreeMap<ObjectName, Arc<ManagedIssuer>>>>);

impl ManagedIssuers {
    /// The issuer of a target, nothing where the target has none of its own.
    pub fn get(&self, target: &ObjectName) -> Option<Arc<ManagedIssuer>> {
        self.0.load().get(target).cloned()
    }

    /// The issuer at a path, by the target's name as a client writes it.
    pub fn named(&self, target: &str) -> Option<Arc<ManagedIssuer>> {
        self.get(&ObjectName::new(target).ok()?)
    }

    fn put(&self, target: &ObjectName, issuer: &ManagedIssuer) {
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

#[cfg(all(test, feature = "embedded"))]
mod tests;
