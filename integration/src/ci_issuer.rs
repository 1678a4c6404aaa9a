//! A CI system's issuer: it publishes one key for several issuer URLs on one server, and signs
//! id-tokens with it, or with an unpublished key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::document_server::DocumentServer;
use crate::pki::TestCa;
use crate::runner::TestError;

/// The `kid` of the published key.
pub const KID: &str = "ci-key";

/// Which key signs a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedBy {
    /// The published key.
    Issuer,
    /// A key that nobody publishes.
    Stranger,
}

/// A server of issuers' documents with their key.
#[derive(Debug)]
pub struct CiIssuer {
    documents: DocumentServer,
    published: EcdsaKeyPair,
    stranger: EcdsaKeyPair,
}

impl CiIssuer {
    /// Starts the server with a certificate of the CA.
    ///
    /// # Errors
    /// The server or a key could not be made.
    pub async fn start(ca: &TestCa) -> Result<Self, TestError> {
        let key =
            || EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| "make a key");
        Ok(Self {
            documents: DocumentServer::start(ca).await?,
            published: key()?,
            stranger: key()?,
        })
    }

    /// The server, for further documents.
    pub fn documents(&self) -> &DocumentServer {
        &self.documents
    }

    /// Publishes an issuer below a path, such as `/github`, and returns its URL.
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
        // An uncompressed point, SEC 1: 4, then x and y of 32 bytes.
        let point = self.published.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(32);
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "kid": KID, "use": "sig", "alg": "ES256",
            "x": number(x), "y": number(y),
        }] })
    }

    /// The token of a job, as the CI system signs it.
    ///
    /// # Errors
    /// It could not be signed.
    pub fn token(&self, claims: &Value) -> Result<String, TestError> {
        // GitHub writes a thumbprint into the header.
        let header = json!({ "alg": "ES256", "kid": KID, "typ": "JWT", "x5t": "thumbprint" });
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
        let signature = key
            .sign(&SystemRandom::new(), input.as_bytes())
            .map_err(|_| "sign a token")?;
        Ok(format!(
            "{input}.{}",
            URL_SAFE_NO_PAD.encode(signature.as_ref())
        ))
    }
}
