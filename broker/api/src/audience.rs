//! The audience of a bound token. It is never optional: a TokenRequest without one asks for a
//! credential of the hub itself.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One `aud` value: 1 to 256 bytes of printable ASCII without spaces, commas, quotes or
/// backslashes.
///
/// Kubernetes would accept any string. Brokers that joined audiences with a separator have confused
/// two lists, so the characters that invite this are refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Audience(Arc<str>);

/// Why a string is not a valid audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AudienceError {
    /// An empty audience would request a credential of the hub itself.
    #[error("is empty: a TokenRequest without an audience asks for a credential of the hub itself")]
    Empty,
    /// Longer than verifiers accept.
    #[error("is longer than 256 bytes")]
    TooLong,
    /// Contains a character that is not allowed.
    #[error("may hold only printable ASCII without spaces, commas, quotes and backslashes")]
    Grammar,
}

impl Audience {
    /// Makes an audience of a valid string.
    ///
    /// # Errors
    /// [`AudienceError`] says which rule it breaks.
    pub fn new(text: impl Into<String>) -> Result<Self, AudienceError> {
        let text = text.into();
        if text.is_empty() {
            return Err(AudienceError::Empty);
        }
        if text.len() > 256 {
            return Err(AudienceError::TooLong);
        }
        let allowed = |byte: u8| {
            byte.is_ascii_graphic() && !matches!(byte, b',' | b'"' | b'\'' | b'\\' | b'`')
        };
        if text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(AudienceError::Grammar)
        }
    }

    /// The audience as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Audience {
    type Error = AudienceError;

    fn try_from(text: String) -> Result<Self, AudienceError> {
        Self::new(text)
    }
}

impl From<Audience> for String {
    fn from(audience: Audience) -> Self {
        audience.0.as_ref().to_owned()
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Audience, AudienceError};

    #[test]
    fn an_audience_is_one_plain_word() {
        assert!(Audience::new("https://prod.example.com:6443").is_ok());
        assert_eq!(Audience::new(""), Err(AudienceError::Empty));
        for text in ["a,b", "a b", "a\nb", "\u{e9}", "a\"b", "a\0"] {
            assert_eq!(Audience::new(text), Err(AudienceError::Grammar), "{text:?}");
        }
        assert_eq!(Audience::new("a".repeat(257)), Err(AudienceError::TooLong));
    }
}
