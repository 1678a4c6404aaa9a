//! The seal of a key journal: HMAC-SHA-256 with a key that is generated once per installation.

use aws_lc_rs::hmac;
use base64::Engine;
use zeroize::Zeroizing;

use crate::jwt::BASE64URL;

/// Separates these seals from any other use of the key.
const SEAL_PURPOSE: &[u8] = b"keyferry hub keys 1\n";

/// The HMAC key of the seal. Its `Debug` output does not contain the key.
pub struct SealKey(hmac::Key);

/// The bytes have the wrong length for a seal key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a seal's key is exactly 32 bytes")]
pub struct SealKeyError;

impl SealKey {
    /// Takes 32 random bytes.
    ///
    /// # Errors
    /// [`SealKeyError`] for any other number of bytes.
    pub fn new(bytes: &Zeroizing<Vec<u8>>) -> Result<Self, SealKeyError> {
        if bytes.len() == 32 {
            Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
        } else {
            Err(SealKeyError)
        }
    }

    /// The seal of these bytes, base64url.
    pub fn seal_bytes(&self, bytes: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(SEAL_PURPOSE);
        context.update(bytes);
        BASE64URL.encode(context.sign().as_ref())
    }

    /// Whether `seal` is the seal of these bytes.
    pub fn is_seal_of(&self, seal: &str, bytes: &[u8]) -> bool {
        let Ok(tag) = BASE64URL.decode(seal) else {
            return false;
        };
        hmac::verify(&self.0, &[SEAL_PURPOSE, bytes].concat(), &tag).is_ok()
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)")
    }
}
