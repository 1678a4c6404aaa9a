//! The stored form of a key journal: versioned JSON, read strictly. Equal journals have equal
//! bytes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use keyferry_api::issuer::Issuer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{KeyJournal, KeyRecord, Revocation};
use crate::json::{self, JsonError, JsonLimits, MAX_JSON_DEPTH};
use crate::jwks::PublicKey;

/// The largest journal that is read, well below the 1 MiB of a Secret.
pub const MAX_JOURNAL_BYTES: usize = 512 * 1024;
/// Maximum number of keys and revocations in a journal.
const MAX_ENTRIES: usize = 500;
const FORMAT_VERSION: u64 = 1;

/// Why bytes are not a valid key journal. No part of them is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Not a strict JSON object.
    #[error("the key journal cannot be read")]
    Json(#[source] JsonError),
    /// Another version of Keyferry wrote it.
    #[error("the key journal has another version than 1")]
    Version,
    /// A member is missing, of another type, or unknown.
    #[error("the key journal lacks the members of version 1")]
    Shape,
    /// The issuer is not valid.
    #[error("the key journal names no usable issuer")]
    Issuer,
    /// A key could not be published.
    #[error("the key journal holds a key that cannot be published")]
    Key,
    /// There are too many entries, or one `kid` appears twice.
    #[error("the key journal holds a kid twice, or more than 500 entries")]
    Entries,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Stored {
    version: u64,
    issuer: String,
    sequence: u64,
    keys: Vec<StoredKey>,
    revoked: Vec<StoredRevocation>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StoredKey {
    jwk: Value,
    published_at: Timestamp,
    first: bool,
    confirmed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    withdrawn_at: Option<Timestamp>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoredRevocation {
    kid: String,
    thumbprint: String,
    at: Timestamp,
}

impl KeyJournal {
    /// Encodes the journal as bytes that [`KeyJournal::from_bytes`] reads.
    ///
    /// # Errors
    /// [`JournalError`] if the bytes could not be read back. Such bytes must never replace a stored
    /// journal, because its revocations would be lost.
    pub fn to_bytes(&self) -> Result<Vec<u8>, JournalError> {
        let key = |record: &KeyRecord| StoredKey {
            jwk: record.key.to_value(),
            published_at: record.published_at,
            first: record.first,
            confirmed_at: record.confirmed_at,
            signed_since: record.signed_since,
            signed_until: record.signed_until,
            withdrawn_at: record.withdrawn_at,
        };
        let revocation = |(kid, revocation): (&String, &Revocation)| StoredRevocation {
            kid: kid.clone(),
            thumbprint: revocation.thumbprint.clone(),
            at: revocation.at,
        };
        let stored = Stored {
            version: FORMAT_VERSION,
            issuer: self.issuer.as_str().to_owned(),
            sequence: self.sequence,
            keys: self.keys.values().map(key).collect(),
            revoked: self.revoked.iter().map(revocation).collect(),
        };
        check_readable(serde_json::to_vec(&stored).map_err(|_| JournalError::Shape)?)
    }

    /// Reads a journal.
    ///
    /// # Errors
    /// [`JournalError`] says why no part of it is used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, JournalError> {
        let object = json::read_object(
            bytes,
            JsonLimits {
                bytes: MAX_JOURNAL_BYTES,
                depth: MAX_JSON_DEPTH,
            },
        )
        .map_err(JournalError::Json)?;
        if object.get("version").and_then(Value::as_u64) != Some(FORMAT_VERSION) {
            return Err(JournalError::Version);
        }
        let stored: Stored =
            serde_json::from_value(Value::Object(object)).map_err(|_| JournalError::Shape)?;
        let issuer = Issuer::new(stored.issuer).map_err(|_| JournalError::Issuer)?;
        let (entries, mut keys, mut revoked) = (
            stored.keys.len() + stored.revoked.len(),
            BTreeMap::new(),
            BTreeMap::new(),
        );
        for stored in stored.keys {
            let key = PublicKey::from_value(&stored.jwk).map_err(|_| JournalError::Key)?;
            let record = KeyRecord {
                published_at: stored.published_at,
                first: stored.first,
                confirmed_at: stored.confirmed_at,
                signed_since: stored.signed_since,
                signed_until: stored.signed_until,
                withdrawn_at: stored.withdrawn_at,
                key,
            };
            keys.insert(record.key.kid().to_owned(), record);
        }
        for stored in stored.revoked {
            revoked.insert(
                stored.kid,
                Revocation {
                    thumbprint: stored.thumbprint,
                    at: stored.at,
                },
            );
        }
        let twice = keys.len() + revoked.len() != entries
            || keys.keys().any(|kid| revoked.contains_key(kid));
        if twice || entries > MAX_ENTRIES {
            return Err(JournalError::Entries);
        }
        Ok(Self {
            issuer,
            sequence: stored.sequence,
            keys,
            revoked,
        })
    }
}

/// Returns the bytes only if they can be read back. A journal that grew beyond the limits would
/// lock out every replica.
fn check_readable(bytes: Vec<u8>) -> Result<Vec<u8>, JournalError> {
    KeyJournal::from_bytes(&bytes).map(|_| bytes)
}

#[cfg(test)]
mod tests {
    use super::{JournalError, check_readable};

    #[test]
    fn a_failure_is_never_written() {
        for bytes in [
            Vec::new(),
            b"{}".to_vec(),
            b"null".to_vec(),
            br#"{"version":1,"issuer":"","sequence":0,"keys":[],"revoked":[]}"#.to_vec(),
        ] {
            assert!(check_readable(bytes).is_err());
        }
        let empty = br#"{"version":1,"issuer":"https://hub.example.com","sequence":0,"keys":[],"revoked":[]}"#.to_vec();
        assert_eq!(check_readable(empty.clone()), Ok(empty));
        assert_eq!(
            check_readable(Vec::new())
                .err()
                .map(|error| matches!(error, JournalError::Json(_))),
            Some(true)
        );
    }
}
