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

/// Whether apiservers use this audience for their own credentials: the names of the Service
/// `kubernetes`, and the defaults of distributions. The admission policies have the same list as
/// `hubAudiences`.
pub fn is_well_known_hub_audience(text: &str) -> bool {
    let text = text.trim_end_matches('/');
    let host = text.strip_prefix("https://").unwrap_or(text);
    let host = host.strip_suffix(":443").unwrap_or(host);
    matches!(
        host,
        "kubernetes" | "kubernetes.default" | "kubernetes.default.svc"
    ) || host.starts_with("kubernetes.default.svc.")
        || matches!(text, "api" | "k3s" | "rke2")
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
    use super::{Audience, AudienceError, is_well_known_hub_audience};

    #[test]
    fn the_audiences_of_hubs_are_known() {
        for hub in [
            "https://kubernetes.default.svc",
            "https://kubernetes.default.svc/",
            "https://kubernetes.default.svc:443",
            "https://kubernetes.default.svc.cluster.local",
            "https://kubernetes.default.svc.corp.example",
            "https://kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes",
            "api",
            "k3s",
            "rke2",
        ] {
            assert!(is_well_known_hub_audience(hub), "{hub}");
        }
        for other in [
            "keyferry.dev",
            "https://api.example.com",
            "https://kubernetes.default.svcs.example.com",
            "https://kubernetes.example.com",
            "",
        ] {
            assert!(!is_well_known_hub_audience(other), "{other}");
        }
    }

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
