//! Credentials of machines that have no token of the hub: their own tokens, the hashes in the hub's
//! Secrets, and what each can read.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use jiff::Timestamp;
use keyferry_api::config::{InputCredential, InputScope};
use keyferry_api::name::{ClusterDns, Namespace, ObjectName};
use keyferry_keys::caller_certificate::{CertificateNote, CertifiedCaller};

use super::input_token::TokenHash;
use super::presented::PresentedCredential;

pub use super::input_token::InputToken;

/// The longest time for which a rotated token is still accepted.
pub const MAX_OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);

/// The key of the hub's Secret with the hash of the token.
pub const SHA256_KEY: &str = "sha256";
/// The key of the hub's Secret with the hash of the token before.
pub const PREVIOUS_KEY: &str = "sha256-previous";
/// The key of the hub's Secret with the time until which that token is accepted.
pub const UNTIL_KEY: &str = "previous-until";

/// Why the content of a credential's Secret cannot be used, in whole or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialSecretError {
    /// `sha256` is absent or not a hash.
    #[error("sha256 is not 64 hexadecimal digits; fix: make it by keyferry inputs credential new")]
    Hash,
    /// `sha256-previous` is not a hash, or has no valid `previous-until`.
    #[error(
        "sha256-previous needs 64 hexadecimal digits, and previous-until a time such as \
         2026-01-31T00:00:00Z; fix: make both by keyferry inputs credential rotate"
    )]
    Previous,
    /// `previous-until` is too far ahead.
    #[error("previous-until is more than 7 days ahead; fix: choose an earlier time")]
    TooLong,
}

/// The hashes of one credential, as read from its Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialHashes {
    current: TokenHash,
    previous: Option<(TokenHash, Timestamp)>,
}

impl CredentialHashes {
    /// Reads a Secret's entries. A bad previous hash is left out and reported beside the current
    /// one, so that a mistake in a rotation does not disable the current token.
    ///
    /// # Errors
    /// [`CredentialSecretError::Hash`]: there is no current hash.
    pub fn read(
        entry: impl Fn(&str) -> Option<String>,
        now: Timestamp,
    ) -> Result<(Self, Option<CredentialSecretError>), CredentialSecretError> {
        let current = entry(SHA256_KEY)
            .and_then(|text| parse_hash(&text))
            .ok_or(CredentialSecretError::Hash)?;
        let (previous, fault) = match (entry(PREVIOUS_KEY), entry(UNTIL_KEY)) {
            (None, None) => (None, None),
            (Some(previous), Some(until)) => match previous_of(&previous, &until, now) {
                Ok(previous) => (Some(previous), None),
                Err(fault) => (None, Some(fault)),
            },
            _ => (None, Some(CredentialSecretError::Previous)),
        };
        Ok((Self { current, previous }, fault))
    }
}

fn previous_of(
    previous: &str,
    until: &str,
    now: Timestamp,
) -> Result<(TokenHash, Timestamp), CredentialSecretError> {
    let previous = parse_hash(previous).ok_or(CredentialSecretError::Previous)?;
    let until = until
        .trim()
        .parse()
        .map_err(|_| CredentialSecretError::Previous)?;
    if is_too_far(until, now) {
        return Err(CredentialSecretError::TooLong);
    }
    Ok((previous, until))
}

fn is_too_far(until: Timestamp, now: Timestamp) -> bool {
    now.saturating_add(MAX_OVERLAP)
        .is_ok_and(|latest| until > latest)
}

fn parse_hash(text: &str) -> Option<TokenHash> {
    let text = text.trim().as_bytes();
    let mut hash = TokenHash::default();
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let digits = str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(hash)
}

/// What a path of the inputs API names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputPath {
    /// A path of one cluster.
    Cluster(ClusterDns),
    /// A path of one namespace.
    Namespace(Namespace),
}

/// A machine that presented a valid credential. Only [`CredentialBook::verify`] and
/// [`InputCaller::of_certificate`] make it. It has no ServiceAccount, so nothing can be minted for it.
#[derive(Clone, Debug)]
pub struct InputCaller {
    credential: Arc<InputCredential>,
    certificate: Option<CertificateNote>,
}

impl InputCaller {
    /// Accepts a machine that a client certificate identified.
    pub fn of_certificate(certified: &CertifiedCaller<Arc<InputCredential>>) -> Self {
        Self {
            credential: Arc::clone(certified.identity()),
            certificate: Some(certified.certificate().clone()),
        }
    }

    /// The credential's name.
    pub fn name(&self) -> &ObjectName {
        &self.credential.name
    }

    /// Its client certificate, if it presented one.
    pub fn certificate(&self) -> Option<&CertificateNote> {
        self.certificate.as_ref()
    }

    /// Whether it reads every cluster and namespace.
    pub fn is_admin(&self) -> bool {
        matches!(self.credential.scope, InputScope::Admin)
    }

    /// Whether the credential is for this path.
    pub fn may_read(&self, path: &InputPath) -> bool {
        match (&self.credential.scope, path) {
            (InputScope::Admin, _) => true,
            (InputScope::Cluster(own), InputPath::Cluster(dns)) => own == dns,
            (InputScope::Namespace(own), InputPath::Namespace(namespace)) => own == namespace,
            (InputScope::Cluster(_) | InputScope::Namespace(_), _) => false,
        }
    }
}

/// One hash that is accepted, and for which credential.
struct Entry {
    hash: TokenHash,
    credential: Arc<InputCredential>,
    /// Until when, for a previous token.
    until: Option<Timestamp>,
}

/// The hashes of all credentials. A presented token is looked up by a keyed hash of its hash, so
/// the time of a lookup reveals nothing about the stored hashes.
pub struct CredentialBook {
    key: hmac::Key,
    entries: HashMap<TokenHash, Entry>,
}

impl fmt::Debug for CredentialBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CredentialBook of {} hashes", self.entries.len())
    }
}

impl CredentialBook {
    /// Makes a book of credentials and their hashes, and lists the credentials that share a hash.
    /// A shared hash is accepted for none: a Read token that is also an Admin token would be one
    /// token with two scopes.
    pub fn new(
        key: &[u8; 32],
        credentials: impl IntoIterator<Item = (Arc<InputCredential>, CredentialHashes)>,
    ) -> (Self, Vec<ObjectName>) {
        let mut owners: BTreeMap<TokenHash, Vec<Entry>> = BTreeMap::new();
        for (credential, hashes) in credentials {
            let CredentialHashes { current, previous } = hashes;
            let entry = |hash, until| Entry {
                hash,
                credential: Arc::clone(&credential),
                until,
            };
            owners
                .entry(current)
                .or_default()
                .push(entry(current, None));
            if let Some((previous, until)) = previous.filter(|(previous, _)| *previous != current) {
                let entry = entry(previous, Some(until));
                owners.entry(previous).or_default().push(entry);
            }
        }
        let key = hmac::Key::new(HMAC_SHA256, key);
        let (mut entries, mut shared) = (HashMap::new(), Vec::new());
        for (hash, mut of_hash) in owners {
            match (of_hash.pop(), of_hash.is_empty()) {
                (Some(entry), true) => drop(entries.insert(keyed_tag(&key, &hash), entry)),
                (last, _) => {
                    let all = of_hash.iter().chain(last.as_ref());
                    shared.extend(all.map(|entry| entry.credential.name.clone()));
                }
            }
        }
        (Self { key, entries }, shared)
    }

    /// Verifies what a machine presented.
    pub fn verify(&self, presented: &PresentedCredential, now: Timestamp) -> Option<InputCaller> {
        let hash = presented.token().hash();
        let entry = self.entries.get(&keyed_tag(&self.key, &hash))?;
        verify_slices_are_equal(&entry.hash, &hash).ok()?;
        let is_over = |until: Timestamp| now >= until || is_too_far(until, now);
        if entry.until.is_some_and(is_over)
            || !presented.allows_name(entry.credential.name.as_str())
        {
            return None;
        }
        Some(InputCaller {
            credential: Arc::clone(&entry.credential),
            certificate: None,
        })
    }
}

fn keyed_tag(key: &hmac::Key, hash: &TokenHash) -> TokenHash {
    let tag = hmac::sign(key, hash);
    tag.as_ref().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
