//! A private key that cannot be printed or cloned.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::jwks::PublicKey;

/// The bytes are not a PKCS#8 private key on P-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no PKCS#8 private key on P-256")]
pub struct KeyFault;

/// A private key on P-256 for ES256, with its public half. Wiped when dropped.
pub struct PrivateKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

impl PrivateKey {
    /// Takes a PKCS#8 v1 document (RFC 5208).
    ///
    /// # Errors
    /// [`KeyFault`] for anything but a key on P-256.
    pub fn from_pkcs8(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, KeyFault> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8)
            .map_err(|_| KeyFault)?;
        let public = PublicKey::of_es256_point(pair.public_key().as_ref()).ok_or(KeyFault)?;
        Ok(Self { pkcs8, public })
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// base64url of the SHA-256 of the public half's SubjectPublicKeyInfo, as kube-apiserver names
    /// its keys.
    pub fn kid(&self) -> &str {
        self.public.kid()
    }

    /// The private key as PKCS#8, only for the store and the signer.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("kid", &self.kid())
            .finish_non_exhaustive()
    }
}
