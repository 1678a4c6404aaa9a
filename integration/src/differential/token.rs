//! Tokens as the parts they are made of, so that shrinking a case can remove parts.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};

use super::keys::{KeyName, SigningKeys};
use super::node::Node;

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSpec {
    /// The JOSE header.
    pub(crate) header: Node,
    /// The claims. This may be any node, for payloads that are not objects.
    pub(crate) claims: Node,
    /// The key that signs.
    pub(crate) key: KeyName,
    /// The algorithm of the signature, whatever the header says.
    pub(crate) algorithm: String,
    /// The changes to the finished token.
    pub(crate) damage: Vec<Damage>,
}

/// A change to a finished token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Flips one bit of the signature.
    FlipSignature,
    /// Replaces the claims with others than those that were signed.
    SwapClaims(Node),
    /// Removes the signature after the last dot.
    DropSignature,
    /// Keeps half of the signature.
    CutSignature,
    /// Adds `=` after each part.
    Pad,
    /// Uses base64 with `+` and `/`.
    StandardAlphabet,
    /// Adds a fourth part.
    ExtraPart,
    /// Keeps only two parts.
    TwoParts,
    /// Adds text before the token.
    Before(String),
    /// Adds text after the token.
    After(String),
    /// Adds text inside the claims part.
    Inside(String),
    /// Uses the JWS JSON form, RFC 7515 section 7.2.2.
    FlattenedJson,
    /// Replaces the whole token.
    Whole(String),
}

impl TokenSpec {
    /// The token as it is sent.
    pub(crate) fn text(&self, keys: &SigningKeys) -> String {
        let header = URL_SAFE_NO_PAD.encode(self.header.json());
        let mut claims = URL_SAFE_NO_PAD.encode(self.claims.json());
        let message = format!("{header}.{claims}");
        let mut signature = keys.sign(self.key, &self.algorithm, message.as_bytes());
        for damage in &self.damage {
            match damage {
                Damage::FlipSignature => signature.iter_mut().take(1).for_each(|byte| *byte ^= 1),
                Damage::SwapClaims(other) => claims = URL_SAFE_NO_PAD.encode(other.json()),
                Damage::DropSignature => signature.clear(),
                Damage::CutSignature => signature.truncate(signature.len() / 2),
                _ => {}
            }
        }
        let mut token = format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(&signature));
        for damage in &self.damage {
            token = damage.after(token, &signature, &self.claims);
        }
        token
    }
}

impl Damage {
    fn after(&self, token: String, signature: &[u8], claims: &Node) -> String {
        let parts: Vec<&str> = token.split('.').collect();
        let (header, middle) = (
            parts.first().copied().unwrap_or_default(),
            parts.get(1).copied().unwrap_or_default(),
        );
        let last = URL_SAFE_NO_PAD.encode(signature);
        match self {
            Self::Pad => format!(
                "{header}.{}.{}",
                URL_SAFE.encode(claims.json()),
                URL_SAFE.encode(signature)
            ),
            Self::StandardAlphabet => format!(
                "{header}.{middle}.{}",
                STANDARD.encode(signature).trim_end_matches('=')
            ),
            Self::ExtraPart => format!("{token}.AAAA"),
            Self::TwoParts => format!("{header}.{middle}"),
            Self::Before(text) => format!("{text}{token}"),
            Self::After(text) => format!("{token}{text}"),
            Self::Inside(text) => {
                let (start, end) = middle.split_at(middle.len() / 2);
                format!("{header}.{start}{text}{end}.{last}")
            }
            Self::FlattenedJson => {
                format!(r#"{{"payload":"{middle}","protected":"{header}","signature":"{last}"}}"#)
            }
            Self::Whole(text) => text.clone(),
            Self::FlipSignature
            | Self::SwapClaims(_)
            | Self::DropSignature
            | Self::CutSignature => token,
        }
    }
}
