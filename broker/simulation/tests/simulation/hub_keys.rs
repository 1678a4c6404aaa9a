//! The hub's keys and the tokens that it signs.

use std::sync::LazyLock;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The hub's issuer.
pub(crate) const ISSUER: &str = "https://hub.example.test";
/// How many keys the hub can have.
const KEY_COUNT: usize = 5;

/// A key of the hub.
pub(crate) struct HubKey {
    pub(crate) kid: String,
    pair: EcdsaKeyPair,
    /// Its entry in the hub's key set.
    pub(crate) entry: Value,
}

/// The keys are new in each process, and their names are not: no name of the trace depends on them.
pub(crate) static HUB_KEYS: LazyLock<Vec<HubKey>> =
    LazyLock::new(|| (0..KEY_COUNT).map(HubKey::generate).collect());

/// What a token says.
pub(crate) struct TokenSpec<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) token_id: &'a str,
    pub(crate) issued_at: Timestamp,
    pub(crate) lifetime: Duration,
}

impl HubKey {
    fn generate(index: usize) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref()).unwrap();
        let kid = format!("hub-key-{index}");
        let point = pair.public_key().as_ref();
        let entry = json!({
            "use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": kid,
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..]),
        });
        Self { kid, pair, entry }
    }

    /// Signs a token as kube-apiserver does.
    pub(crate) fn sign(&self, spec: &TokenSpec<'_>) -> String {
        let issued = spec.issued_at.as_second();
        let expires = issued + i64::try_from(spec.lifetime.as_secs()).unwrap();
        let header = json!({ "alg": "ES256", "kid": self.kid });
        let claims = json!({
            "aud": [spec.audience], "iss": ISSUER, "jti": spec.token_id,
            "iat": issued, "nbf": issued, "exp": expires,
            "sub": format!("system:serviceaccount:{}:{}", spec.namespace, spec.name),
            "kubernetes.io": {
                "namespace": spec.namespace,
                "serviceaccount": { "name": spec.name, "uid": spec.uid },
            },
        });
        let [header, claims] =
            [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let input = format!("{header}.{claims}");
        let signature = self.pair.sign(&SystemRandom::new(), input.as_bytes());
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature.unwrap()))
    }
}
