//! A CI system's issuer: it publishes one key for several issuer URLs on one server, and signs
//! id-tokens with it, or with an unpublished key.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::document_server::DocumentServer;
use crate::pki::TestCa;
use crate::runner::TestError;

/// The `kid` of the published key, the same at every issuer.
pub const KID: &str = "ci-key";

/// Which key signs a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedBy {
    /// The published key.
    Issuer,
    /// A key that nobody publishes.
    Stranger,
}

/// The algorithm of an issuer's keys, by its name in RFC 7518.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CiAlgorithm {
    /// RSA 2048 with PKCS #1 v1.5, which GitHub and GitLab use.
    Rs256,
    /// ECDSA with P-256.
    Es256,
    /// ECDSA with P-384.
    Es384,
    /// ECDSA with P-521.
    Es512,
}

impl CiAlgorithm {
    /// The `alg` of its tokens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
        }
    }

    fn generate(self) -> Result<CiKey, Unspecified> {
        let (algorithm, curve) = match self {
            Self::Rs256 => return RsaKeyPair::generate(KeySize::Rsa2048).map(CiKey::Rsa),
            Self::Es256 => (&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            Self::Es384 => (&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            Self::Es512 => (&ECDSA_P521_SHA512_FIXED_SIGNING, "P-521"),
        };
        Ok(CiKey::Ec(EcdsaKeyPair::generate(algorithm)?, curve))
    }
}

#[derive(Debug)]
enum CiKey {
    Rsa(RsaKeyPair),
    /// A key, and the name of its curve.
    Ec(EcdsaKeyPair, &'static str),
}

impl CiKey {
    /// The public key as a JWK without optional members.
    fn public(&self) -> Value {
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(pair) => {
                let public = pair.public_key();
                json!({
                    "kty": "RSA",
                    "n": number(public.modulus().big_endian_without_leading_zero()),
                    "e": number(public.exponent().big_endian_without_leading_zero()),
                })
            }
            Self::Ec(pair, curve) => {
                // An uncompressed point, SEC 1: 4, then x and y of the same length.
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": number(x), "y": number(y) })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)?;
                Ok(signature)
            }
            Self::Ec(pair, _) => Ok(pair.sign(&random, message)?.as_ref().to_vec()),
        }
    }
}

/// A server of issuers' documents with their key.
#[derive(Debug)]
pub struct CiIssuer {
    documents: DocumentServer,
    algorithm: CiAlgorithm,
    published: CiKey,
    stranger: CiKey,
}

impl CiIssuer {
    /// Starts the server with a certificate of the CA.
    ///
    /// # Errors
    /// The server or a key could not be made.
    pub async fn start(ca: &TestCa, algorithm: CiAlgorithm) -> Result<Self, TestError> {
        let key = || algorithm.generate().map_err(|_| "make a key");
        Ok(Self {
            documents: DocumentServer::start(ca).await?,
            algorithm,
            published: key()?,
            stranger: key()?,
        })
    }

    /// The server, for further documents.
    pub fn documents(&self) -> &DocumentServer {
        &self.documents
    }

    /// The algorithm of its keys.
    pub fn algorithm(&self) -> CiAlgorithm {
        self.algorithm
    }

    /// Publishes an issuer below a path, such as `/github`, or at the root of the server with an
    /// empty path. Returns its URL.
    pub fn publish(&self, path: &str) -> String {
        let issuer = format!("{}{path}", self.documents.url());
        let keys = format!("{path}/keys");
        let discovery =
            json!({ "issuer": issuer, "jwks_uri": format!("{}{keys}", self.documents.url()) });
        self.documents.put(
            &format!("{path}/.well-known/openid-configuration"),
            &discovery,
        );
        self.documents.put(&keys, &self.key_set());
        issuer
    }

    fn key_set(&self) -> Value {
        let mut key = self.published.public();
        key["kid"] = KID.into();
        key["use"] = "sig".into();
        key["alg"] = self.algorithm.name().into();
        json!({ "keys": [key] })
    }

    /// The token of a job, as the CI system signs it.
    ///
    /// # Errors
    /// It could not be signed.
    pub fn token(&self, claims: &Value) -> Result<String, TestError> {
        // GitHub writes a thumbprint into the header.
        let algorithm = self.algorithm.name();
        let header = json!({ "alg": algorithm, "kid": KID, "typ": "JWT", "x5t": "thumbprint" });
        self.signed(&header.to_string(), &claims.to_string(), SignedBy::Issuer)
    }

    /// A token of any header and claims.
    ///
    /// # Errors
    /// It could not be signed.
    pub fn signed(&self, header: &str, claims: &str, by: SignedBy) -> Result<String, TestError> {
        let key = match by {
            SignedBy::Issuer => &self.published,
            SignedBy::Stranger => &self.stranger,
        };
        let input = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = key.sign(input.as_bytes()).map_err(|_| "sign a token")?;
        Ok(format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
