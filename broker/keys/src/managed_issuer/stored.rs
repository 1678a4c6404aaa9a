//! The stored form of a key set: versioned JSON, read strictly. Read access to it is enough to sign
//! tokens; write access is enough to replace the signing key.

use std::fmt::Write;

use base64::Engine;
use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;
use keyferry_api::name::ObjectName;
use serde_json::{Map, Value};
use zeroize::{Zeroize, Zeroizing};

use super::key::PrivateKey;
use super::key_set::{Binding, CurrentKey, KeySet, MAX_PREVIOUS, NextKey, PreviousKey};
use crate::json::{JsonError, JsonLimits, read_object};
use crate::jwks::PublicKey;
use crate::jwt::BASE64URL;

/// The longest document that is read. A full one has about 7 KiB.
pub const MAX_STORED_BYTES: usize = 32 * 1024;

const FORMAT_VERSION: u64 = 1;
const DOCUMENT_LIMITS: JsonLimits = JsonLimits {
    bytes: MAX_STORED_BYTES,
    depth: 4,
};
/// The longest text of a manual rotation request.
const MAX_REQUEST_BYTES: usize = 256;

/// Why a stored document is not a valid key set. No part of it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredFault {
    /// Not a strict JSON object.
    #[error("the stored key set cannot be read")]
    Json(#[source] JsonError),
    /// Written by another program or by a newer version.
    #[error("the stored key set has another version than 1")]
    Version,
    /// A member is missing, has another type or is not valid.
    #[error("the stored key set has no usable {0}")]
    Member(&'static str),
    /// A member that version 1 does not have.
    #[error("the stored key set has a member that version 1 does not know")]
    Unknown,
    /// One key appears in two places.
    #[error("the stored key set holds one key twice")]
    Twice,
}

/// Reads a stored document.
///
/// # Errors
/// [`StoredFault`] names the first rule that it breaks.
pub fn read_key_set(bytes: &[u8]) -> Result<KeySet, StoredFault> {
    let mut members = Members(read_object(bytes, DOCUMENT_LIMITS).map_err(StoredFault::Json)?);
    if members
        .0
        .remove("version")
        .and_then(|version| version.as_u64())
        != Some(FORMAT_VERSION)
    {
        return Err(StoredFault::Version);
    }
    let wrong = StoredFault::Member;
    let binding = Binding {
        target: ObjectName::new(members.take_text("target")?).map_err(|_| wrong("target"))?,
        issuer: Issuer::new(members.take_text("issuer")?).map_err(|_| wrong("issuer"))?,
        audience: Audience::new(members.take_text("audience")?).map_err(|_| wrong("audience"))?,
    };
    let mut current = members.take_object("current")?;
    let mut next = members.take_object("next")?;
    let set = KeySet {
        binding,
        current: CurrentKey {
            key: current.private_key()?,
            published_at: current.take_time("publishedAt")?,
            signs_since: current.take_time("signsSince")?,
        },
        next: NextKey {
            key: next.private_key()?,
            published_at: next.take_time("publishedAt")?,
        },
        previous: members.take_previous_keys()?,
        handled_rotation: members.take_rotation_request()?,
    };
    for rest in [members, current, next] {
        rest.require_empty()?;
    }
    let mut kids: Vec<&str> = set.public_keys().map(|(key, _)| key.kid()).collect();
    kids.sort_unstable();
    if kids.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(StoredFault::Twice);
    }
    Ok(set)
}

/// Members of an object, removed as they are read, so that only unknown ones remain. Wiped when
/// dropped.
struct Members(Map<String, Value>);

impl Drop for Members {
    fn drop(&mut self) {
        self.0.values_mut().for_each(wipe_strings);
    }
}

fn wipe_strings(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Object(members) => members.values_mut().for_each(wipe_strings),
        Value::Array(items) => items.iter_mut().for_each(wipe_strings),
        _ => {}
    }
}

impl Members {
    fn take_text(&mut self, member: &'static str) -> Result<String, StoredFault> {
        match self.0.remove(member) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(StoredFault::Member(member)),
        }
    }

    fn take_object(&mut self, member: &'static str) -> Result<Self, StoredFault> {
        match self.0.remove(member) {
            Some(Value::Object(members)) => Ok(Self(members)),
            _ => Err(StoredFault::Member(member)),
        }
    }

    fn take_time(&mut self, member: &'static str) -> Result<Timestamp, StoredFault> {
        let time: Timestamp = self
            .take_text(member)?
            .parse()
            .map_err(|_| StoredFault::Member(member))?;
        if time.subsec_nanosecond() == 0 && time >= Timestamp::UNIX_EPOCH {
            Ok(time)
        } else {
            Err(StoredFault::Member(member))
        }
    }

    fn take_bytes(&mut self, member: &'static str) -> Result<Zeroizing<Vec<u8>>, StoredFault> {
        let text = Zeroizing::new(self.take_text(member)?);
        let bytes = BASE64URL
            .decode(text.as_bytes())
            .map_err(|_| StoredFault::Member(member))?;
        Ok(Zeroizing::new(bytes))
    }

    /// Reads a private key and checks that its `kid` is right.
    fn private_key(&mut self) -> Result<PrivateKey, StoredFault> {
        let kid = self.take_text("kid")?;
        let key = PrivateKey::from_pkcs8(self.take_bytes("privateKey")?)
            .map_err(|_| StoredFault::Member("privateKey"))?;
        if key.kid() == kid {
            Ok(key)
        } else {
            Err(StoredFault::Member("kid"))
        }
    }

    fn take_previous_keys(&mut self) -> Result<Vec<PreviousKey>, StoredFault> {
        let Some(Value::Array(items)) = self.0.remove("previous") else {
            return Err(StoredFault::Member("previous"));
        };
        if items.len() > MAX_PREVIOUS {
            return Err(StoredFault::Member("previous"));
        }
        let read = |item| {
            let Value::Object(members) = item else {
                return Err(StoredFault::Member("previous"));
            };
            let mut members = Self(members);
            let kid = members.take_text("kid")?;
            let key = PublicKey::of_es256_point(&members.take_bytes("publicKey")?)
                .ok_or(StoredFault::Member("publicKey"))?;
            if key.kid() != kid {
                return Err(StoredFault::Member("kid"));
            }
            let published_until = members.take_time("publishedUntil")?;
            members.require_empty()?;
            Ok(PreviousKey {
                key,
                published_until,
            })
        };
        items.into_iter().map(read).collect()
    }

    fn take_rotation_request(&mut self) -> Result<Option<String>, StoredFault> {
        if !self.0.contains_key("handledRotation") {
            return Ok(None);
        }
        let text = self.take_text("handledRotation")?;
        if text.len() <= MAX_REQUEST_BYTES {
            Ok(Some(text))
        } else {
            Err(StoredFault::Member("handledRotation"))
        }
    }

    fn require_empty(self) -> Result<(), StoredFault> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(StoredFault::Unknown)
        }
    }
}

/// Writes a set as a document that [`read_key_set`] reads.
pub fn write_key_set(set: &KeySet) -> Zeroizing<String> {
    // Reserves room for the whole text: a string that grows leaves copies of the keys in memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_STORED_BYTES));
    let KeySet {
        binding,
        current,
        next,
        previous,
        handled_rotation,
    } = set;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        r#"{{"version":{FORMAT_VERSION},"target":{},"issuer":{},"audience":{},"current":{{"#,
        quote_json(binding.target.as_str()),
        quote_json(binding.issuer.as_str()),
        quote_json(binding.audience.as_str()),
    );
    write_private_key(&mut text, &current.key);
    let _ = write!(
        text,
        r#","publishedAt":"{}","signsSince":"{}"}},"next":{{"#,
        current.published_at, current.signs_since
    );
    write_private_key(&mut text, &next.key);
    let _ = write!(
        text,
        r#","publishedAt":"{}"}},"previous":["#,
        next.published_at
    );
    for (
        index,
        PreviousKey {
            key,
            published_until,
        },
    ) in previous.iter().enumerate()
    {
        let comma = if index > 0 { "," } else { "" };
        let point = BASE64URL.encode(key.point());
        let _ = write!(
            text,
            r#"{comma}{{"kid":{},"publicKey":"{point}","publishedUntil":"{published_until}"}}"#,
            quote_json(key.kid())
        );
    }
    text.push(']');
    if let Some(request) = handled_rotation {
        let _ = write!(text, r#","handledRotation":{}"#, quote_json(request));
    }
    text.push('}');
    text
}

fn write_private_key(text: &mut Zeroizing<String>, key: &PrivateKey) {
    let _ = write!(text, r#""kid":{},"privateKey":""#, quote_json(key.kid()));
    BASE64URL.encode_string(key.pkcs8(), text);
    text.push('"');
}

fn quote_json(text: &str) -> String {
    Value::from(text).to_string()
}
