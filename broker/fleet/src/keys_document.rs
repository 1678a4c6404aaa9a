//! What `keyferry keys -o json` prints: the journal of the hub's keys for readers without rights to it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lenient::{Lenient, or_default, readable_items};

/// The largest document that is read, in bytes.
pub const MAX_KEYS_BYTES: usize = 8 * 1024 * 1024;
/// The most keys that are read of one.
const MAX_KEYS: usize = 10_000;

/// The hub's keys at the time when the document was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct KeysDocument {
    /// The hub's issuer.
    #[serde(deserialize_with = "or_default")]
    pub issuer: Option<String>,
    /// The keys of the journal.
    #[serde(deserialize_with = "readable_items")]
    pub keys: Vec<ListedKey>,
    /// The keys that were revoked.
    #[serde(deserialize_with = "readable_items")]
    pub revoked: Vec<RevokedKey>,
}

/// One key of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedKey {
    /// Its kid.
    pub kid: String,
    /// Its algorithm.
    #[serde(default, deserialize_with = "or_default")]
    pub algorithm: Option<String>,
    /// Whether it signs: `lastSeen`, `before` or `notSeen`.
    #[serde(default, deserialize_with = "or_default")]
    pub signs: String,
    /// When a token signed with it was first seen.
    #[serde(default, deserialize_with = "or_default")]
    pub signs_since: Option<Timestamp>,
    /// When it was published.
    #[serde(default, deserialize_with = "or_default")]
    pub published_at: Option<Timestamp>,
    /// When every target knows it.
    #[serde(default, deserialize_with = "or_default")]
    pub active_at: Option<Timestamp>,
    /// When the hub was seen without it.
    #[serde(default, deserialize_with = "or_default")]
    pub withdrawn_at: Option<Timestamp>,
    /// When the last token of it ends that was seen.
    #[serde(default, deserialize_with = "or_default")]
    pub tokens_until: Option<Timestamp>,
    /// When it is safe to remove.
    #[serde(default, deserialize_with = "or_default")]
    pub remove_after: Option<Timestamp>,
}

/// A key that was revoked for ever.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RevokedKey {
    /// Its kid.
    pub kid: String,
    /// When.
    pub at: Timestamp,
}

/// Why a document of keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysDocumentError {
    /// It is too large.
    #[error("it is larger than {MAX_KEYS_BYTES} bytes")]
    TooLarge,
    /// It is not JSON, or ends too early.
    #[error("it is not JSON, or ends too early")]
    Unreadable,
    /// It has no member `keys`, so it is something else.
    #[error("it has no keys, so it is not what keyferry keys -o json prints")]
    OtherDocument,
}

impl KeysDocument {
    /// Reads what `keyferry keys -o json` printed.
    ///
    /// # Errors
    /// [`KeysDocumentError`].
    pub fn read(bytes: &[u8]) -> Result<Self, KeysDocumentError> {
        if bytes.len() > MAX_KEYS_BYTES {
            return Err(KeysDocumentError::TooLarge);
        }
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|_| KeysDocumentError::Unreadable)?;
        if !value.get("keys").is_some_and(serde_json::Value::is_array) {
            return Err(KeysDocumentError::OtherDocument);
        }
        let Lenient(mut document) =
            Lenient::<Self>::deserialize(value).map_err(|_| KeysDocumentError::Unreadable)?;
        document.keys.truncate(MAX_KEYS);
        document.revoked.truncate(MAX_KEYS);
        Ok(document)
    }

    /// Returns the document with a note as its first member.
    pub fn document(&self, note: &str) -> serde_json::Value {
        serde_json::json!({
            "note": note, "issuer": self.issuer, "keys": self.keys, "revoked": self.revoked,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_command_keys_prints_is_read() {
        let odd = br#"{"note":"x","issuer":"https://hub","keys":[{"kid":"a","publishedAt":7,
            "activeAt":"2026-01-01T00:00:00Z"},{"kid":1}],"revoked":[{"kid":"b","at":"x"}]}"#;
        let document = KeysDocument::read(odd).unwrap();
        assert_eq!((document.keys.len(), document.revoked.len()), (1, 0));
        assert_eq!(document.keys[0].published_at, None);
        assert!(document.keys[0].active_at.is_some());
        let cases: [(&[u8], _); 3] = [
            (b"{\"keys\":[", KeysDocumentError::Unreadable),
            (b"{\"issuer\":\"a\"}", KeysDocumentError::OtherDocument),
            (b"[]", KeysDocumentError::OtherDocument),
        ];
        for (bytes, expected) in cases {
            assert_eq!(KeysDocument::read(bytes), Err(expected));
        }
        let long = vec![b' '; MAX_KEYS_BYTES + 1];
        assert_eq!(KeysDocument::read(&long), Err(KeysDocumentError::TooLarge));
    }
}
