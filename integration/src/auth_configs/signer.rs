//! Two keys for the vectors: one that every issuer publishes, and one that none publishes.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::{Case, Vectors};
use crate::runner::TestError;

/// Signs tokens of vectors with fresh keys.
#[derive(Debug)]
pub struct VectorSigner {
    published: EcdsaKeyPair,
    stranger: EcdsaKeyPair,
}

impl VectorSigner {
    /// Creates two new keys.
    ///
    /// # Errors
    /// A key could not be created.
    pub fn new() -> Result<Self, TestError> {
        let key =
            || EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| "make a key");
        Ok(Self {
            published: key()?,
            stranger: key()?,
        })
    }

    /// The signed token of a case (ES256), issued at a time in seconds since 1970.
    ///
    /// # Errors
    /// It could not be signed.
    pub fn token(&self, vectors: &Vectors, case: &Case, now: i64) -> Result<String, TestError> {
        let key = if case.signed_by_issuer() {
            &self.published
        } else {
            &self.stranger
        };
        sign(key, &vectors.claims(case, now))
    }

    /// The body of a `jwks_uri`.
    pub fn key_set(&self) -> Value {
        // An uncompressed point, SEC 1: 4, then x and y of 32 bytes.
        let point = self
            .published
            .public_key()
            .as_ref()
            .get(1..)
            .unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "use": "sig", "alg": "ES256", "x": number(x), "y": number(y)}]})
    }
}

fn sign(key: &EcdsaKeyPair, claims: &Map<String, Value>) -> Result<String, TestError> {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let input = format!(
        "{}.{}",
        encode(&json!({"alg": "ES256", "kid": "k"})),
        encode(&Value::Object(claims.clone()))
    );
    let signature = key
        .sign(&SystemRandom::new(), input.as_bytes())
        .map_err(|_| "sign a token")?;
    Ok(format!(
        "{input}.{}",
        URL_SAFE_NO_PAD.encode(signature.as_ref())
    ))
}
