//! Reads every target's key set, creates missing ones, and rotates those that are due. Each write
//! names the version that it replaces, so of several replicas one wins and the others reload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, StreamExt};
use keyferry_api::config::{Policy, TargetCluster, TokenIssuer};
use keyferry_api::issuer::PublicUrl;
use keyferry_api::name::ObjectName;
use keyferry_api::reason::Reason;
use keyferry_hub::ports::{HubError, IssuerKeyStore, StoredKeys, StoredObject};
use keyferry_keys::managed_issuer::{self, Binding, Change, KeySet, ReadyChange, RotationPolicy};
use keyferry_platform::clock::Clock;
use keyferry_platform::metrics::Metrics;

use super::ManagedIssuers;
use super::keyring::{Keyring, fresh_key};

/// How many key sets are read at once.
const MAX_CONCURRENT_READS: usize = 8;
/// How often one round reads the same set, again after a write or a lost race.
const MAX_ATTEMPTS: usize = 4;
/// The maximum length of a rotation request.
const MAX_REQUEST_BYTES: usize = 256;

/// The dependencies of a [`KeySetMaintainer`].
pub struct KeySetMaintainerParts {
    /// The store of the key sets.
    pub store: Arc<dyn IssuerKeyStore>,
    /// The issuers that readers see.
    pub issuers: ManagedIssuers,
    /// The clock for activation and rotation.
    pub clock: Arc<dyn Clock>,
    /// Counts reads and writes of key sets.
    pub metrics: Metrics,
    /// The URL prefix of all issuers.
    pub public_url: PublicUrl,
    /// When keys become active and when they are rotated.
    pub rotation: RotationPolicy,
    /// Whether the maintainer may write: only after the startup checks have found the clock to be
    /// right.
    pub may_write: Arc<AtomicBool>,
}

/// Maintains the key sets. Each process has one.
pub struct KeySetMaintainer {
    parts: KeySetMaintainerParts,
    rings: BTreeMap<ObjectName, Keyring>,
}

/// Why the check of a key set failed.
#[derive(Debug, thiserror::Error)]
enum MaintainError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Stored(#[from] managed_issuer::StoredFault),
    #[error("the Secret is there, but holds no key set; remove it, or move it away")]
    Foreign,
    #[error(
        "the key set is for another issuer or another audience; delete the Secret, and Keyferry \
         creates one for this TargetCluster"
    )]
    OtherBinding,
    #[error("the target's name is too long for the name of a Secret")]
    Name,
    #[error("the operating system gave no randomness for a key")]
    Random,
}

impl MaintainError {
    fn reason(&self) -> Reason {
        match self {
            Self::Hub(HubError::Forbidden(_) | HubError::Unauthenticated(_)) => {
                Reason::IssuerKeysForbidden
            }
            Self::Hub(
                HubError::Unreachable(_)
                | HubError::Overloaded(_)
                | HubError::Busy
                | HubError::TooLarge,
            ) => Reason::HubUnreachable,
            _ => Reason::IssuerKeysInvalid,
        }
    }
}

enum Next {
    /// Nothing more to do in this round.
    Rest,
    /// A set was stored, by this replica or another: read it.
    Again,
}

impl KeySetMaintainer {
    /// Creates a maintainer that has read nothing yet.
    pub fn new(parts: KeySetMaintainerParts) -> Self {
        Self {
            parts,
            rings: BTreeMap::new(),
        }
    }

    /// Checks every target's key set once.
    pub async fn run_round(&mut self, policy: &Policy) {
        let own = |target: &&TargetCluster| target.issuer == TokenIssuer::Keyferry;
        let wanted: BTreeMap<ObjectName, Binding> = policy
            .targets
            .values()
            .filter(own)
            .filter_map(|target| Some((target.name.clone(), self.binding_of(target)?)))
            .collect();
        self.rings.retain(|target, _| wanted.contains_key(target));
        for (target, binding) in &wanted {
            let ring = self
                .rings
                .entry(target.clone())
                .or_insert_with(|| Keyring::new(binding.clone()));
            if ring.binding != *binding {
                // Tokens for the other audience may still be valid: the published keys stay, but
                // nothing is signed.
                ring.binding = binding.clone();
                ring.stop_signing();
            }
        }
        self.parts
            .issuers
            .retain(|target| wanted.contains_key(target));
        let parts = &self.parts;
        stream::iter(self.rings.iter_mut())
            .for_each_concurrent(MAX_CONCURRENT_READS, |(target, ring)| {
                maintain_key_set(parts, target, ring)
            })
            .await;
    }

    fn binding_of(&self, target: &TargetCluster) -> Option<Binding> {
        let issuer =
            managed_issuer::managed_issuer_url(&self.parts.public_url, &target.name).ok()?;
        Some(Binding {
            target: target.name.clone(),
            issuer,
            audience: target.audience.clone(),
        })
    }
}

async fn maintain_key_set(parts: &KeySetMaintainerParts, target: &ObjectName, ring: &mut Keyring) {
    for _ in 0..MAX_ATTEMPTS {
        let outcome = check_key_set(parts, target, ring).await;
        parts
            .metrics
            .own_keys_read(outcome.as_ref().map(|_| ()).map_err(MaintainError::reason));
        match &outcome {
            Ok(Next::Rest) => ring.is_well(),
            Ok(Next::Again) => {}
            Err(error) => {
                if ring.note_failure(error.reason()) {
                    tracing::error!(reason = %error.reason(), %error, target_cluster = %target, "the keys of the managed issuer are unchanged");
                }
            }
        }
        parts.issuers.store_issuer(target, &ring.face);
        if !matches!(outcome, Ok(Next::Again)) {
            return;
        }
    }
}

async fn check_key_set(
    parts: &KeySetMaintainerParts,
    target: &ObjectName,
    ring: &mut Keyring,
) -> Result<Next, MaintainError> {
    managed_issuer::secret_name(target).map_err(|_| MaintainError::Name)?;
    let Some(stored) = parts.store.read(target).await? else {
        ring.stop_signing();
        if !parts.may_write.load(Ordering::Relaxed) {
            return Ok(Next::Rest);
        }
        let (current, next) = (
            fresh_key().ok_or(MaintainError::Random)?,
            fresh_key().ok_or(MaintainError::Random)?,
        );
        let set = KeySet::initial_set(ring.binding.clone(), current, next, parts.clock.now());
        tracing::info!(target_cluster = %target, issuer = %ring.binding.issuer, "creating the \
            first keys of the managed issuer");
        return write_key_set(parts, target, &set, None, "first").await;
    };
    let StoredKeys {
        object,
        document,
        rotation_request,
    } = stored;
    let set = managed_issuer::read_key_set(&document.ok_or(MaintainError::Foreign)?)?;
    if set.binding != ring.binding {
        // Stops signing with the earlier keys as well: the object no longer belongs to this target.
        ring.stop_signing();
        return Err(MaintainError::OtherBinding);
    }
    // The clock is read after the answer, so that a key's publication is never dated before its
    // storage.
    let now = parts.clock.now();
    ring.apply_reading(&set, &object.uid, &parts.rotation, now);
    parts.issuers.store_issuer(target, &ring.face);
    let request = rotation_request.filter(|request| request.len() <= MAX_REQUEST_BYTES);
    let due = managed_issuer::due_change(
        &set,
        &ring.sightings,
        request.as_deref(),
        &parts.rotation,
        now,
    );
    let Some(due) = due.filter(|_| parts.may_write.load(Ordering::Relaxed)) else {
        return Ok(Next::Rest);
    };
    let (change, label) = match due {
        Change::Promote => {
            tracing::info!(target_cluster = %target, from = set.current.key.kid(), to = set.next.key.kid(), "rotating the key of the managed issuer");
            (
                ReadyChange::Promote {
                    fresh: fresh_key().ok_or(MaintainError::Random)?,
                    asked_for: request,
                },
                "rotation",
            )
        }
        Change::Tidy => (ReadyChange::Tidy, "tidy"),
    };
    let set = set.apply_change(change, &ring.sightings, now);
    write_key_set(parts, target, &set, Some(&object), label).await
}

async fn write_key_set(
    parts: &KeySetMaintainerParts,
    target: &ObjectName,
    set: &KeySet,
    replaces: Option<&StoredObject>,
    label: &'static str,
) -> Result<Next, MaintainError> {
    let outcome = parts
        .store
        .write(target, &managed_issuer::write_key_set(set), replaces)
        .await;
    parts.metrics.own_keys_written(label, outcome.is_ok());
    match outcome {
        Ok(()) | Err(HubError::Conflict(_)) => Ok(Next::Again),
        Err(error) => Err(error.into()),
    }
}
