//! The token of a machine that reads fleet inputs.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroize;

use super::secret_scan::TOKEN_PREFIX;

/// The characters of 32 bytes in base64url without padding.
const ENCODED_LENGTH: usize = 43;

/// The SHA-256 of a token.
pub(super) type TokenHash = [u8; 32];

/// A token for fleet inputs: a fixed prefix and 256 random bits.
pub struct InputToken(SecretString);

impl fmt::Debug for InputToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InputToken")
    }
}

impl InputToken {
    /// Makes a token of 32 random bytes.
    pub fn of(random: &[u8; 32]) -> Self {
        Self(encode_token(random, TOKEN_PREFIX))
    }

    /// Reads a token; `None` for text of any other form.
    pub fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(TOKEN_PREFIX)?;
        let url_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (random.len() == ENCODED_LENGTH && random.bytes().all(url_safe))
            .then(|| Self(SecretString::from(text)))
    }

    /// The token's text.
    pub fn secret(&self) -> &SecretString {
        &self.0
    }

    /// The SHA-256 of the text, in lower-case hexadecimal. A token has 256 random bits, so a slow
    /// hash or a salt would add nothing.
    pub fn sha256(&self) -> String {
        self.hash()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    pub(super) fn hash(&self) -> TokenHash {
        let hash = digest(&SHA256, self.0.expose_secret().as_bytes());
        hash.as_ref().first_chunk().copied().unwrap_or_default()
    }
}

/// Encodes a token, for a file that a person applies.
fn encode_token(bytes: &[u8], prefix: &str) -> SecretString {
    let mut text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let token = SecretString::from([prefix, &text].concat());
    text.zeroize();
    token
}
