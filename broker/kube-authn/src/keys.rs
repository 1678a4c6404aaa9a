//! Reads a key set as go-oidc and go-jose v2 do: one odd key makes the whole set unreadable, and
//! `alg` and `use` are not compared.

mod jwk;
mod modular;
mod private_rsa;
mod rsa;
mod signature;

pub(crate) use jwk::{Jwk, Key, KeyFault, read_chain};
pub(crate) use signature::Algorithm;

use keyferry_go_formats::json::{Json, JsonFault, folds_to};

use crate::Code;
use crate::config::Undetermined;

/// The longest key set that is read, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The keys of an issuer, as the body of its `jwks_uri` lists them.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Jwk>,
}

/// Why a key set cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeySetFault {
    /// The apiserver cannot decode the set, so it refuses every token of the issuer.
    #[error("the key set cannot be decoded: {0}")]
    Undecodable(String),
    /// Whether the apiserver decodes the set cannot be decided here.
    #[error(transparent)]
    Undetermined(#[from] Undetermined),
}

impl KeySet {
    /// Reads the body of a key set.
    ///
    /// # Errors
    /// [`KeySetFault`] if the apiserver cannot decode the set, or if that cannot be decided here.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, KeySetFault> {
        if bytes.len() > MAX_BYTES {
            return Err(Undetermined::new(
                Code::TooLarge,
                format!("the key set is longer than {MAX_BYTES} bytes"),
            )
            .into());
        }
        let value = Json::parse(bytes).map_err(|fault| match fault {
            JsonFault::Syntax(reason) => KeySetFault::Undecodable(reason),
        })?;
        if !matches!(value, Json::Object(_) | Json::Null) {
            return Err(KeySetFault::Undecodable(
                value.mismatch("jose.JSONWebKeySet"),
            ));
        }
        let (mut keys, mut fault) = (Vec::new(), None);
        for (name, member) in value
            .members()
            .iter()
            .filter(|(name, _)| folds_to(name, "keys"))
        {
            match member {
                Json::Null => keys.clear(),
                Json::List(items) => {
                    keys = items
                        .iter()
                        .map(Jwk::read)
                        .collect::<Result<_, _>>()
                        .map_err(KeySetFault::from)?
                }
                other => {
                    fault = fault.or_else(|| {
                        Some(format!("{} ({name})", other.mismatch("[]jose.JSONWebKey")))
                    })
                }
            }
        }
        match fault {
            Some(fault) => Err(KeySetFault::Undecodable(fault)),
            None => Ok(Self { keys }),
        }
    }

    /// Returns the number of keys.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has no keys.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The `kid` of each key, in the order of the set.
    pub(crate) fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|jwk| jwk.kid.as_str())
    }

    /// Whether a key with that `kid` signed the input; any key counts if the token names none.
    pub(crate) fn verifies(
        &self,
        kid: &str,
        algorithm: Algorithm,
        input: &[u8],
        signature: &[u8],
    ) -> bool {
        self.keys
            .iter()
            .filter(|jwk| kid.is_empty() || jwk.kid == kid)
            .any(|jwk| signature::verifies(&jwk.key, algorithm, input, signature))
    }
}

impl From<KeyFault> for KeySetFault {
    fn from(fault: KeyFault) -> Self {
        match fault {
            KeyFault::Refused(reason) => Self::Undecodable(reason),
            KeyFault::Undetermined(reason) => Undetermined::new(Code::UnusualKey, reason).into(),
        }
    }
}

#[cfg(test)]
mod tests;
