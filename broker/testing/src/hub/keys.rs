//! Signing keys and which of them are published.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
use serde_json::{Value, json};

use crate::{EmbeddedError, EmbeddedHub, locked};

/// Type of a hub's signing keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// ECDSA on P-256.
    #[default]
    Es256,
    /// RSA with 2048 bits, PKCS#1 v1.5.
    Rs256,
}

impl EmbeddedHub {
    /// Creates a key, publishes it and signs with it; the old ones stay published. Returns the kid.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn rotate_key(&self) -> Result<String, EmbeddedError> {
        let kid = self.new_key()?;
        self.publish_key(&kid)?;
        self.sign_with(&kid)?;
        Ok(kid)
    }

    /// Creates a key that is neither published nor used to sign. Returns its kid.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new_key(&self) -> Result<String, EmbeddedError> {
        locked(&self.policy.keys).add(self.policy.algorithm)
    }

    /// Lists the key in the JWKS.
    ///
    /// # Errors
    /// When there is no such key.
    pub fn publish_key(&self, kid: &str) -> Result<(), EmbeddedError> {
        locked(&self.policy.keys).set_published(kid, Published::Yes)
    }

    /// Takes the key out of the JWKS; the hub stops accepting its tokens.
    ///
    /// # Errors
    /// When there is no such key.
    pub fn withdraw_key(&self, kid: &str) -> Result<(), EmbeddedError> {
        locked(&self.policy.keys).set_published(kid, Published::No)
    }

    /// Signs with the key from now on, published or not.
    ///
    /// # Errors
    /// When there is no such key.
    pub fn sign_with(&self, kid: &str) -> Result<(), EmbeddedError> {
        locked(&self.policy.keys).sign_with(kid)
    }

    /// The kid of the key that signs now.
    #[must_use]
    pub fn signing_kid(&self) -> String {
        locked(&self.policy.keys).signer().kid.clone()
    }
}

/// A private key with its public half as a JWK.
pub(super) struct SigningKey {
    pub(super) kid: String,
    pub(super) jwk: Value,
    pair: Pair,
}

/// All keys of a hub.
pub(super) struct KeyRing {
    keys: Vec<(Arc<SigningKey>, Published)>,
    signer: Arc<SigningKey>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Published {
    Yes,
    No,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    fn generate(algorithm: KeyAlgorithm) -> Result<Self, EmbeddedError> {
        match algorithm {
            KeyAlgorithm::Es256 => Self::generate_ec(),
            KeyAlgorithm::Rs256 => Self::generate_rsa(),
        }
    }

    fn generate_ec() -> Result<Self, EmbeddedError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let kid = key_id(pair.public_key())?;
        // SEC1 uncompressed point: one tag byte, then x and y of equal length.
        let point = pair.public_key().as_ref();
        let (x, y) = point
            .get(1..)
            .map(|xy| xy.split_at(xy.len() / 2))
            .ok_or(EmbeddedError::Crypto)?;
        let jwk = json!({
            "use": "sig", "kty": "EC", "kid": kid, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        });
        Ok(Self {
            kid,
            jwk,
            pair: Pair::Ec(pair),
        })
    }

    fn generate_rsa() -> Result<Self, EmbeddedError> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048)?;
        let kid = key_id(pair.public_key())?;
        let public = DecodingKey::from_rsa_der(pair.public_key().as_ref());
        let public = Jwk::from_decoding_key(&public, None).map_err(|_| EmbeddedError::Crypto)?;
        let AlgorithmParameters::RSA(public) = public.algorithm else {
            return Err(EmbeddedError::Crypto);
        };
        let jwk = json!({
            "use": "sig", "kty": "RSA", "kid": kid, "alg": "RS256", "n": public.n, "e": public.e,
        });
        Ok(Self {
            kid,
            jwk,
            pair: Pair::Rsa(pair),
        })
    }

    /// Signs claims into a compact JWS whose header has only `alg` and `kid`, as in Kubernetes.
    pub(super) fn sign(&self, claims: &Value) -> Result<String, EmbeddedError> {
        let header = json!({"alg": self.jwk["alg"], "kid": self.kid});
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, signed.as_bytes())?.as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    signed.as_bytes(),
                    &mut signature,
                )?;
                signature
            }
        };
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl KeyRing {
    /// Creates a key ring with one published key, which signs.
    pub(super) fn new(algorithm: KeyAlgorithm) -> Result<Self, EmbeddedError> {
        let signer = Arc::new(SigningKey::generate(algorithm)?);
        Ok(Self {
            keys: vec![(Arc::clone(&signer), Published::Yes)],
            signer,
        })
    }

    pub(super) fn signer(&self) -> Arc<SigningKey> {
        Arc::clone(&self.signer)
    }

    /// The published keys as JWKs, oldest first.
    pub(super) fn published(&self) -> Vec<Value> {
        self.keys
            .iter()
            .filter(|(_, published)| *published == Published::Yes)
            .map(|(key, _)| key.jwk.clone())
            .collect()
    }

    fn add(&mut self, algorithm: KeyAlgorithm) -> Result<String, EmbeddedError> {
        let key = Arc::new(SigningKey::generate(algorithm)?);
        let kid = key.kid.clone();
        self.keys.push((key, Published::No));
        Ok(kid)
    }

    fn set_published(&mut self, kid: &str, published: Published) -> Result<(), EmbeddedError> {
        self.find(kid)?.1 = published;
        Ok(())
    }

    fn sign_with(&mut self, kid: &str) -> Result<(), EmbeddedError> {
        self.signer = Arc::clone(&self.find(kid)?.0);
        Ok(())
    }

    fn find(&mut self, kid: &str) -> Result<&mut (Arc<SigningKey>, Published), EmbeddedError> {
        self.keys
            .iter_mut()
            .find(|(key, _)| key.kid == kid)
            .ok_or_else(|| EmbeddedError::NoKey {
                kid: kid.to_owned(),
            })
    }
}

/// base64url(SHA-256(DER SubjectPublicKeyInfo)), as kube-apiserver names file keys.
fn key_id<K: AsDer<PublicKeyX509Der<'static>>>(public: &K) -> Result<String, EmbeddedError> {
    let spki = public.as_der()?;
    Ok(URL_SAFE_NO_PAD.encode(digest(&SHA256, spki.as_ref())))
}
