//! Makes the private keys of client certificates.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use keyferry_keys::client_certificate::ClientKey;
use zeroize::Zeroizing;

/// Makes private keys. A port, so that tests can make it fail.
pub trait ClientKeys: Send + Sync {
    /// Makes a key on P-256; `None` if the system's randomness failed.
    fn generate(&self) -> Option<ClientKey>;
}

/// Makes keys with the operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClientKeys;

impl ClientKeys for SystemClientKeys {
    fn generate(&self) -> Option<ClientKey> {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
                .ok()?;
        // `document` wipes its own copy.
        Some(ClientKey::from_pkcs8(Zeroizing::new(
            document.as_ref().to_vec(),
        )))
    }
}
