//! One target's keys in the memory of one replica: the keys that it has seen, those that it
//! publishes, and the single key that it may sign with.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use keyferry_api::moment::Moment;
use keyferry_api::reason::Reason;
use keyferry_keys::discovery;
use keyferry_keys::managed_issuer::{self, Binding, KeySet, PrivateKey, RotationPolicy, Sightings};
use zeroize::Zeroizing;

use super::{ManagedIssuer, OwnDocuments};
use crate::publication::Document;

/// A loaded private key, with the issuer and audience that it signs for. It cannot be printed or
/// copied; the library wipes it.
pub(crate) struct SigningKey {
    binding: Binding,
    kid: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    fn new(binding: &Binding, key: &PrivateKey) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.pkcs8()).ok()?;
        Some(Self {
            binding: binding.clone(),
            kid: key.kid().to_owned(),
            pair,
        })
    }

    pub(super) fn binding(&self) -> &Binding {
        &self.binding
    }

    pub(crate) fn kid(&self) -> &str {
        &self.kid
    }

    /// Signs with ES256 (RFC 7518 section 3.4): the signature is two numbers of 32 bytes each.
    pub(super) fn sign(&self, input: &[u8]) -> Option<Vec<u8>> {
        Some(
            self.pair
                .sign(&SystemRandom::new(), input)
                .ok()?
                .as_ref()
                .to_vec(),
        )
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

/// Generates a new key; `None` if the system's randomness failed.
pub(super) fn fresh_key() -> Option<PrivateKey> {
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .ok()?;
    PrivateKey::from_pkcs8(Zeroizing::new(pkcs8.as_ref().to_vec())).ok()
}

pub(super) struct Keyring {
    pub(super) binding: Binding,
    pub(super) sightings: Sightings,
    pub(super) face: ManagedIssuer,
    reported: Option<Reason>,
}

impl Keyring {
    pub(super) fn new(binding: Binding) -> Self {
        let face = ManagedIssuer::new(binding.issuer.clone());
        Self {
            binding,
            sightings: Sightings::default(),
            face,
            reported: None,
        }
    }

    /// Processes a reading: publishes its keys, and lets the current key sign once it is active.
    pub(super) fn apply_reading(
        &mut self,
        set: &KeySet,
        origin: &str,
        policy: &RotationPolicy,
        now: Moment,
    ) {
        self.sightings
            .note_reading(set, origin, policy.active_after, now);
        let face = &mut self.face;
        let active = self.sightings.is_active(set.current.key.kid(), now);
        let known = face
            .signing
            .take()
            .filter(|key| active && key.kid == set.current.key.kid());
        face.signing = known.or_else(|| {
            if active {
                SigningKey::new(&self.binding, &set.current.key).map(Arc::new)
            } else {
                None
            }
        });
        face.origin = Some(origin.into());
        face.read_at = Some(now.mono);
        face.fault = None;
        // Cannot fail: a set always has two keys.
        let Ok(keys) = self.sightings.published_keys() else {
            return;
        };
        if face
            .documents
            .as_ref()
            .is_none_or(|documents| documents.keys != keys)
        {
            let issuer = &self.binding.issuer;
            let metadata = Document::new(discovery::render_metadata(
                issuer.as_str(),
                &managed_issuer::jwks_uri(issuer),
                &keys,
            ));
            let jwks = Document::new(keys.to_bytes());
            tracing::info!(%issuer, keys = keys.len(), etag = %jwks.etag, current = set.current.key.kid(), "publishing the keys of a managed issuer");
            face.documents = Some(Arc::new(OwnDocuments {
                keys,
                metadata,
                jwks,
            }));
        }
    }

    /// Stops signing, because the stored object is gone. The published keys stay until there is
    /// another set.
    pub(super) fn stop_signing(&mut self) {
        self.face.signing = None;
        self.face.origin = None;
    }

    /// Notes a failed read or write. What was read before stays valid for its time. Returns whether
    /// the reason is new.
    pub(super) fn note_failure(&mut self, reason: Reason) -> bool {
        self.face.fault = Some(reason);
        self.reported.replace(reason) != Some(reason)
    }

    /// Notes a success: the next failure is reported again.
    pub(super) fn is_well(&mut self) {
        self.reported = None;
    }
}
