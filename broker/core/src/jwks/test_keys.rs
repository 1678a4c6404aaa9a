//! Keys of the tests, made once for a test binary by josekit, and tokens signed with them byte by
//! byte.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use base64::Engine;
use josekit::jwk::Jwk;
use josekit::jwk::alg::ec::EcCurve;
use josekit::jws::{
    ES256, ES384, ES512, JwsSigner, JwsVerifier, PS256, PS384, PS512, RS256, RS384, RS512,
};
use serde_json::{Value, json};

use super::{KeySetLimits, PublicKeySet};
use crate::jwt::{BASE64URL, SigningAlgorithm};

/// A private key and its algorithm; the algorithm's name is its kid.
pub(crate) struct TestKey {
    pub(crate) algorithm: SigningAlgorithm,
    pub(crate) private: Jwk,
}

static RSA: LazyLock<Jwk> = LazyLock::new(|| Jwk::generate_rsa_key(2048).unwrap());
static P256: LazyLock<Jwk> = LazyLock::new(|| Jwk::generate_ec_key(EcCurve::P256).unwrap());
static P384: LazyLock<Jwk> = LazyLock::new(|| Jwk::generate_ec_key(EcCurve::P384).unwrap());
static P521: LazyLock<Jwk> = LazyLock::new(|| Jwk::generate_ec_key(EcCurve::P521).unwrap());

/// The key for an algorithm. All RSA algorithms have one key.
pub(crate) fn key(algorithm: SigningAlgorithm) -> TestKey {
    let private = match algorithm {
        SigningAlgorithm::Es256 => &P256,
        SigningAlgorithm::Es384 => &P384,
        SigningAlgorithm::Es512 => &P521,
        _ => &RSA,
    };
    TestKey {
        algorithm,
        private: Jwk::clone(private),
    }
}

impl TestKey {
    /// Its entry in a key set, as kube-apiserver writes it.
    pub(crate) fn entry(&self) -> Value {
        let public = self.private.to_public_key().unwrap();
        let mut entry =
            json!({"use": "sig", "kid": self.algorithm.as_str(), "alg": self.algorithm.as_str()});
        for member in ["kty", "n", "e", "crv", "x", "y"] {
            if let Some(value) = public
                .parameter(member)
                .cloned()
                .or((member == "kty").then(|| public.key_type().into()))
            {
                entry[member] = value;
            }
        }
        entry
    }

    /// A key set of this key alone.
    pub(crate) fn set(&self) -> PublicKeySet {
        set([self.entry()])
    }

    /// A token of these bytes, properly encoded and signed.
    pub(crate) fn sign(&self, header: &[u8], claims: &[u8]) -> String {
        let input = format!("{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims));
        let signature = self.signer().sign(input.as_bytes()).unwrap();
        format!("{input}.{}", BASE64URL.encode(signature))
    }

    /// A token with the plain header of this key.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm.as_str(), "kid": self.algorithm.as_str()});
        self.sign(header.to_string().as_bytes(), claims.to_string().as_bytes())
    }

    /// Whether josekit, too, believes the token's signature.
    pub(crate) fn josekit_believes(&self, token: &str) -> bool {
        let Some((input, signature)) = token.rsplit_once('.') else {
            return false;
        };
        let Ok(signature) = BASE64URL.decode(signature) else {
            return false;
        };
        self.verifier().verify(input.as_bytes(), &signature).is_ok()
    }

    fn signer(&self) -> Box<dyn JwsSigner> {
        let jwk = &self.private;
        match self.algorithm {
            SigningAlgorithm::Es256 => Box::new(ES256.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Es384 => Box::new(ES384.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Es512 => Box::new(ES512.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Ps256 => Box::new(PS256.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Ps384 => Box::new(PS384.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Ps512 => Box::new(PS512.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Rs256 => Box::new(RS256.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Rs384 => Box::new(RS384.signer_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Rs512 => Box::new(RS512.signer_from_jwk(jwk).unwrap()),
        }
    }

    fn verifier(&self) -> Box<dyn JwsVerifier> {
        let jwk = &self.private.to_public_key().unwrap();
        match self.algorithm {
            SigningAlgorithm::Es256 => Box::new(ES256.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Es384 => Box::new(ES384.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Es512 => Box::new(ES512.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Ps256 => Box::new(PS256.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Ps384 => Box::new(PS384.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Ps512 => Box::new(PS512.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Rs256 => Box::new(RS256.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Rs384 => Box::new(RS384.verifier_from_jwk(jwk).unwrap()),
            SigningAlgorithm::Rs512 => Box::new(RS512.verifier_from_jwk(jwk).unwrap()),
        }
    }
}

/// A set of entries that must all be usable.
pub(crate) fn set(entries: impl IntoIterator<Item = Value>) -> PublicKeySet {
    let document = json!({"keys": entries.into_iter().collect::<Vec<_>>()}).to_string();
    let (set, rejected) =
        PublicKeySet::from_upstream(document.as_bytes(), KeySetLimits::default()).unwrap();
    assert_eq!(rejected, []);
    set
}

/// The claims of a token as Kubernetes 1.33 mints it, good for an hour from [`NOW`].
pub(crate) fn claims() -> Value {
    json!({
        "aud": ["keyferry.dev"],
        "exp": NOW + 3600,
        "iat": NOW,
        "iss": "https://hub.example.com",
        "jti": "6f2ee0f7-1ab9-4d7a-8f4e-0e2f1b1f0c55",
        "kubernetes.io": {
            "namespace": "tenant-a",
            "node": {"name": "worker-1", "uid": "0b8f2a5e-5f39-4c3c-9c7e-0d1c6d9f8a11"},
            "pod": {"name": "reconciler-7d9c", "uid": "51a3d0a2-7f0e-4d6b-b1f1-6a8f4f8f7c22"},
            "serviceaccount": {"name": "reconciler", "uid": "c7a1f2e0-3f6d-4b57-8a67-2a9d1b8e4d33"},
        },
        "nbf": NOW,
        "sub": "system:serviceaccount:tenant-a:reconciler",
    })
}

/// When the tests' tokens are issued, in seconds since 1970.
pub(crate) const NOW: i64 = 1_790_000_000;
