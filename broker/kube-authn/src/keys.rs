//! Reads a key set as go-oidc and go-jose v2 do: one odd key makes the whole set unreadable, and
//! `alg` and `use` are not compared.

mod hash;
mod jwk;
mod modular;
mod private_rsa;
mod rsa;
mod signature;

pub(crate) use jwk::{Jwk, Key, KeyFault, read_chain};
pub use signature::Algorithm;

use keyferry_go_formats::GoRelease;
use keyferry_go_formats::json::{Json, JsonFault, folds_to};
use keyferry_go_formats::quote::quote;

use crate::Code;
use crate::config::Undetermined;

/// The longest key set that is read, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The keys of an issuer, as the body of its `jwks_uri` lists them.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Jwk>,
    instead: Option<InsteadOfKeys>,
    published_secret: Option<PublishedSecret>,
}

/// A key of a set that only its owner may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedSecret {
    /// Its position in the set, from 0.
    pub index: usize,
    /// What it is, by its `kty`, with an article. Nothing else of it is repeated.
    pub kind: &'static str,
}

impl PublishedSecret {
    /// The private members of RFC 7518, section 6, and of RFC 9964 (`priv`).
    const PRIVATE_MEMBERS: [&'static str; 9] =
        ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

    /// Looks for a private member. Go reads a key with some of them as a public one.
    fn of(index: usize, key: &Json) -> Option<Self> {
        Self::PRIVATE_MEMBERS
            .iter()
            .any(|name| key.member(name).is_some_and(|value| *value != Json::Null))
            .then(|| Self {
                index,
                kind: match key.member("kty") {
                    Some(Json::Text(kty)) if kty == "RSA" => "a private RSA key",
                    Some(Json::Text(kty)) if kty == "EC" => "a private EC key",
                    Some(Json::Text(kty)) if kty == "OKP" => "a private OKP key",
                    Some(Json::Text(kty)) if kty == "oct" => "a symmetric key",
                    _ => "a private key",
                },
            })
    }
}

/// A document that people give for a key set. The apiserver reads it as a set without keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsteadOfKeys {
    /// The discovery document, which names the address of the keys.
    DiscoveryDocument,
    /// One key by itself.
    SingleKey,
}

impl InsteadOfKeys {
    /// Says what the document is, and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::DiscoveryDocument => {
                "it is a discovery document: give the document that its jwks_uri names"
            }
            Self::SingleKey => "it is one key, not a set: write it as {\"keys\": [<the key>]}",
        }
    }
}

/// Why a key set cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// The apiserver cannot decode the set, so it refuses every token of the issuer.
    #[error("the key set cannot be decoded: {0}")]
    Undecodable(String),
    /// Whether the apiserver decodes the set cannot be decided here.
    #[error(transparent)]
    Undetermined(#[from] Undetermined),
}

impl KeySet {
    /// Reads the body of a key set as builds with these releases of Go do.
    ///
    /// # Errors
    /// [`KeySetFault`] if the apiserver cannot decode the set, or if that cannot be decided here.
    pub fn read(bytes: &[u8], releases: &[GoRelease]) -> Result<Self, KeySetFault> {
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
        let mut published_secret = None;
        for (name, member) in value
            .members()
            .iter()
            .filter(|(name, _)| folds_to(name, "keys"))
        {
            match member {
                Json::Null => keys.clear(),
                Json::List(items) => {
                    let secret = |(index, key)| PublishedSecret::of(index, key);
                    published_secret =
                        published_secret.or(items.iter().enumerate().find_map(secret));
                    keys = items
                        .iter()
                        .enumerate()
                        .map(|(index, key)| {
                            Jwk::read(key, releases).map_err(|fault| in_key(fault, index, key))
                        })
                        .collect::<Result<_, _>>()?
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
            None => Ok(Self {
                instead: keys.is_empty().then(|| instead_of(&value)).flatten(),
                keys,
                published_secret,
            }),
        }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether no key can verify a token: the apiserver accepts only RSA and EC signatures, and
    /// go-jose does not verify with a private key.
    pub fn verifies_nothing(&self) -> bool {
        !self
            .keys
            .iter()
            .any(|jwk| matches!(jwk.key, Key::Rsa(_) | Key::Ec(..)))
    }

    /// The first key of the set that should not be published.
    pub fn published_secret(&self) -> Option<PublishedSecret> {
        self.published_secret
    }

    /// Says what a document without keys is, if that is known.
    pub fn instead_of_keys(&self) -> Option<InsteadOfKeys> {
        self.instead
    }

    /// The `kid` of each key, in the order of the set.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|jwk| jwk.kid.as_str())
    }

    /// Whether a key with that `kid` signed the input; any key counts if the token names none.
    pub fn verifies(
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

/// The longest `kid` that is repeated, in characters.
const MAX_KID: usize = 80;

/// Says which key of the set is the odd one. The apiserver does not.
fn in_key(fault: KeyFault, index: usize, key: &Json) -> KeySetFault {
    let kid = match key.member("kid") {
        Some(Json::Text(kid)) => {
            let kid: String = kid.chars().take(MAX_KID).collect();
            format!(" with the kid {}", quote(&kid))
        }
        _ => String::new(),
    };
    let which = format!("; it is keys[{index}]{kid}");
    match fault {
        KeyFault::Refused(reason) => KeySetFault::Undecodable(reason + &which),
        KeyFault::Undetermined(code, reason) => Undetermined::new(code, reason + &which).into(),
    }
}

fn instead_of(document: &Json) -> Option<InsteadOfKeys> {
    if document.member("jwks_uri").is_some() {
        Some(InsteadOfKeys::DiscoveryDocument)
    } else if document.member("kty").is_some() {
        Some(InsteadOfKeys::SingleKey)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
