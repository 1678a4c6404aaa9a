//! The public keys that targets verify with: read from an untrusted hub and published in one
//! canonical form.
//!
//! A hub's answer (RFC 7517) is parsed into typed public keys and written again from them, so
//! nothing else in it is published. Key types that old verifiers do not support are left out,
//! because a single one makes them drop the whole set.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::json::{JsonError, JsonLimits, MAX_JSON_DEPTH, read_object};
use crate::jwt::SigningAlgorithm;

use key::holds_private_member;
pub use key::{Curve, KeyMaterial, PublicKey};
pub use rejection::{RejectReason, RejectedKey};
pub use rsa::RsaFault;

mod key;
mod rejection;
pub(crate) mod rsa;

/// Limits on an upstream key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySetLimits {
    /// Maximum size of the answer in bytes.
    pub bytes: usize,
    /// Maximum number of entries in `keys`, including unusable ones.
    pub keys: usize,
}

impl Default for KeySetLimits {
    /// 1 MiB and 200 keys; a hub has two or three.
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            keys: 200,
        }
    }
}

/// Why an answer is refused as a whole. No part of it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// Not a strict JSON object.
    #[error("key set cannot be read")]
    Json(#[source] JsonError),
    /// `keys` is missing or not an array.
    #[error("key set has no array `keys`")]
    NoKeysArray,
    /// More entries than allowed.
    #[error("key set has {found} keys, more than the {limit} allowed")]
    TooManyKeys {
        /// The number of entries in `keys`.
        found: usize,
        /// The maximum number of entries.
        limit: usize,
    },
    /// A key has a private member, so the server has published a private key. The whole set is
    /// refused.
    #[error("key set publishes {kind}: keys[{index}]")]
    PrivateKeyInSet {
        /// The position of the first such key in `keys`, from 0.
        index: usize,
        /// What it is, by its `kty`, with an article.
        kind: &'static str,
    },
    /// Two different usable keys have the same `kid`.
    #[error("key set has two different keys under one kid")]
    KidClash,
    /// No key remains that a target could verify with.
    #[error("key set has no usable key among its {found}{}", first_problem(*first))]
    NoUsableKey {
        /// The number of entries in `keys`.
        found: usize,
        /// Why the first of them is left out.
        first: Option<RejectReason>,
    },
}

fn first_problem(first: Option<RejectReason>) -> String {
    first.map_or_else(String::new, |why| format!(": keys[0] {why}"))
}

impl JwksError {
    /// What the issuer has to do, in one sentence without a full stop.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Json(_) | Self::NoKeysArray => {
                "serve a JSON object with the array `keys`, as in RFC 7517"
            }
            Self::TooManyKeys { .. } => {
                "publish only the keys that sign, and those that signed lately"
            }
            Self::PrivateKeyInSet { .. } => {
                "replace that key, because everyone who read the set can sign with it, and publish \
                 public keys only"
            }
            Self::KidClash => "give each key a kid of its own",
            Self::NoUsableKey { .. } => {
                "publish the public key that signs, RSA of 2048 bits or more or EC on P-256, P-384 \
                 or P-521, with its kid and without a use other than sig"
            }
        }
    }
}

/// Public keys, each under its own `kid`. Only [`PublicKeySet::revoked_whole`] makes an empty set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKeySet {
    keys: BTreeMap<String, PublicKey>,
}

impl PublicKeySet {
    /// Reads an upstream's answer. Unusable keys are left out and reported; an unsafe answer is
    /// refused as a whole.
    ///
    /// # Errors
    /// [`JwksError`] says why no part of the answer is used.
    pub fn from_upstream(
        bytes: &[u8],
        limits: KeySetLimits,
    ) -> Result<(Self, Vec<RejectedKey>), JwksError> {
        let document = read_object(
            bytes,
            JsonLimits {
                bytes: limits.bytes,
                depth: MAX_JSON_DEPTH,
            },
        )
        .map_err(JwksError::Json)?;
        let entries = document
            .get("keys")
            .and_then(Value::as_array)
            .ok_or(JwksError::NoKeysArray)?;
        let private = entries.iter().position(holds_private_member);
        if let Some(index) = private {
            let kind = entries.get(index).map_or(ANY_PRIVATE_KEY, private_kind);
            return Err(JwksError::PrivateKeyInSet { index, kind });
        }
        if entries.len() > limits.keys {
            return Err(JwksError::TooManyKeys {
                found: entries.len(),
                limit: limits.keys,
            });
        }
        let mut usable = Vec::new();
        let mut rejected = Vec::new();
        for entry in entries {
            match PublicKey::from_entry(entry) {
                Ok(key) => usable.push(key),
                Err(why) => rejected.push(RejectedKey::new(entry, why)),
            }
        }
        let none = JwksError::NoUsableKey {
            found: entries.len(),
            first: rejected.first().map(|key| key.why),
        };
        Ok((collect_keys(usable, none)?, rejected))
    }

    /// Makes a set of keys that were read before. Equal keys are merged.
    ///
    /// # Errors
    /// [`JwksError::KidClash`] or [`JwksError::NoUsableKey`].
    pub fn from_keys(keys: impl IntoIterator<Item = PublicKey>) -> Result<Self, JwksError> {
        let none = JwksError::NoUsableKey {
            found: 0,
            first: None,
        };
        collect_keys(keys, none)
    }

    /// The empty set, for when every key was revoked by hand. Nothing else makes an empty set.
    pub fn revoked_whole() -> Self {
        Self {
            keys: BTreeMap::new(),
        }
    }

    /// Encodes the set as in RFC 7517 section 5, sorted by `kid`: the same bytes for the same keys.
    pub fn to_bytes(&self) -> Vec<u8> {
        let keys: Vec<String> = self.keys.values().map(PublicKey::to_json).collect();
        format!("{{\"keys\":[{}]}}", keys.join(",")).into_bytes()
    }

    /// The keys, sorted by `kid`.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.values()
    }

    /// The `kid` of every key, sorted.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The key with exactly this `kid`.
    pub fn get(&self, kid: &str) -> Option<&PublicKey> {
        self.keys.get(kid)
    }

    /// The algorithms of the keys, sorted.
    pub fn algorithms(&self) -> BTreeSet<SigningAlgorithm> {
        self.keys.values().map(PublicKey::algorithm).collect()
    }

    /// Whether the set is empty because every key was revoked.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

const ANY_PRIVATE_KEY: &str = "a private key";

/// Names the kind of a key with a private member. Nothing else of such a key is repeated.
fn private_kind(entry: &Value) -> &'static str {
    match entry.get("kty").and_then(Value::as_str) {
        Some("RSA") => "a private RSA key",
        Some("EC") => "a private EC key",
        Some("OKP") => "a private OKP key",
        Some("AKP") => "a private AKP key",
        Some("oct") => "a symmetric key",
        _ => ANY_PRIVATE_KEY,
    }
}

/// Puts keys under their kids. `none` is the error if there is no key.
fn collect_keys(
    keys: impl IntoIterator<Item = PublicKey>,
    none: JwksError,
) -> Result<PublicKeySet, JwksError> {
    let mut by_kid: BTreeMap<String, PublicKey> = BTreeMap::new();
    for key in keys {
        match by_kid.get(key.kid()) {
            Some(present) if *present != key => return Err(JwksError::KidClash),
            Some(_) => {}
            None => {
                by_kid.insert(key.kid().to_owned(), key);
            }
        }
    }
    if by_kid.is_empty() {
        Err(none)
    } else {
        Ok(PublicKeySet { keys: by_kid })
    }
}
#[cfg(test)]
mod tests;
