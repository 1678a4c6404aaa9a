//! The keys that targets verify with: taken from a hub that is not believed, given out in one
//! spelling.
//!
//! A hub's answer (RFC 7517) is read into typed public keys and printed again from them, so nothing
//! else it holds can leave. Key types that old verifiers choke on are left out: a single one makes
//! them drop the whole set.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::json::{JsonError, JsonLimits, MAX_JSON_DEPTH, read_object};
use crate::jwt::SigningAlgorithm;

pub use key::{Curve, KeyMaterial, PublicKey};
pub use rejection::{RejectReason, RejectedKey};
pub use rsa::RsaFault;

mod key;
mod rejection;
pub(crate) mod rsa;

/// What an upstream key set may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySetLimits {
    /// Most bytes of the answer.
    pub bytes: usize,
    /// Most entries of `keys`, the unusable ones included.
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

/// Why a whole answer is refused. No part of it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// No strict JSON object.
    #[error("key set cannot be read")]
    Json(#[source] JsonError),
    /// `keys` is absent or no array.
    #[error("key set has no array `keys`")]
    NoKeysArray,
    /// More entries than allowed.
    #[error("key set has {found} keys, more than the {limit} allowed")]
    TooManyKeys {
        /// Entries of `keys`.
        found: usize,
        /// The most that is read.
        limit: usize,
    },
    /// A key holds a private member: whoever serves it has published a private key. Nothing of the
    /// set is used.
    #[error("key set holds a private key")]
    PrivateKeyInSet,
    /// Two usable keys have one `kid` and are not the same.
    #[error("key set has two different keys under one kid")]
    KidClash,
    /// No key is left that a target could verify with.
    #[error("key set has no usable key among its {0}")]
    NoUsableKey(usize),
}

/// Public keys, each under its own `kid`. Only [`PublicKeySet::revoked_whole`] holds none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKeySet {
    keys: BTreeMap<String, PublicKey>,
}

impl PublicKeySet {
    /// Reads an upstream's answer. Unusable keys are left out and named; an unsafe answer is
    /// refused whole.
    ///
    /// # Errors
    /// [`JwksError`] says why nothing of the answer is used.
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
        if entries.iter().any(holds_private_member) {
            return Err(JwksError::PrivateKeyInSet);
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
        let set = collect(usable, entries.len())?;
        Ok((set, rejected))
    }

    /// A set of keys that were read before. The same key twice is one key.
    ///
    /// # Errors
    /// [`JwksError::KidClash`] or [`JwksError::NoUsableKey`].
    pub fn from_keys(keys: impl IntoIterator<Item = PublicKey>) -> Result<Self, JwksError> {
        collect(keys, 0)
    }

    /// What is left where every key there was has been revoked by hand: the one way to an empty
    /// set.
    pub fn revoked_whole() -> Self {
        Self {
            keys: BTreeMap::new(),
        }
    }

    /// The set as RFC 7517 section 5 spells it: the same bytes for the same keys, sorted by `kid`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let keys: Vec<String> = self.keys.values().map(PublicKey::to_json).collect();
        format!("{{\"keys\":[{}]}}", keys.join(",")).into_bytes()
    }

    /// The keys, sorted by `kid`.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.values()
    }

    /// The kids, sorted.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The key of that exact `kid`.
    pub fn get(&self, kid: &str) -> Option<&PublicKey> {
        self.keys.get(kid)
    }

    /// Whether the set holds this `kid` with the same key and the same `alg`. A `kid` that comes
    /// back with another key is a replacement that no rotation makes.
    pub fn contains_same_key(&self, key: &PublicKey) -> bool {
        self.get(key.kid()) == Some(key)
    }

    /// The algorithms of the keys, sorted.
    pub fn algorithms(&self) -> BTreeSet<SigningAlgorithm> {
        self.keys.values().map(PublicKey::algorithm).collect()
    }

    /// Whether all that there was is revoked.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

/// The private members of RFC 7518 section 6 and of RFC 9964 (`priv`).
const PRIVATE_MEMBERS: [&str; 9] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

fn holds_private_member(entry: &Value) -> bool {
    PRIVATE_MEMBERS
        .iter()
        .any(|member| entry.get(member).is_some())
}

fn collect(
    keys: impl IntoIterator<Item = PublicKey>,
    seen: usize,
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
        Err(JwksError::NoUsableKey(seen))
    } else {
        Ok(PublicKeySet { keys: by_kid })
    }
}

#[cfg(test)]
pub(crate) mod test_keys;
#[cfg(test)]
mod tests;
