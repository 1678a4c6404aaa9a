//! Compact JWS (RFC 7515): parsing, and verifying against one JWK.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

/// A parsed token, not yet verified.
pub(super) struct Jws<'a> {
    pub(super) header: Map<String, Value>,
    pub(super) claims: Map<String, Value>,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> Jws<'a> {
    /// Parses three parts separated by dots, with a JSON object in each of the first two; else
    /// `None`.
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        Some(Self {
            header: object(header)?,
            claims: object(claims)?,
            signed,
            signature,
        })
    }

    /// The header's `alg`, empty when absent.
    pub(super) fn algorithm(&self) -> &str {
        text(&self.header, "alg").unwrap_or_default()
    }

    /// The header's `kid`.
    pub(super) fn kid(&self) -> Option<&str> {
        text(&self.header, "kid")
    }

    /// A claim, when it is a string.
    pub(super) fn claim(&self, name: &str) -> Option<&str> {
        text(&self.claims, name)
    }

    /// A numeric date in seconds (RFC 7519); fractions are cut off.
    pub(super) fn seconds(&self, name: &str) -> Option<i64> {
        let value = self.claims.get(name)?;
        value.as_i64().or_else(|| {
            let seconds = value.as_f64()?;
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a date beyond i64 saturates, which is as far in the future"
            )]
            Some(seconds as i64)
        })
    }

    /// The audiences, from a string or an array of strings; `None` when `aud` is neither.
    pub(super) fn audiences(&self) -> Option<Vec<String>> {
        match self.claims.get("aud") {
            None => Some(Vec::new()),
            Some(Value::String(one)) => Some(vec![one.clone()]),
            Some(Value::Array(many)) => many
                .iter()
                .map(|entry| entry.as_str().map(str::to_owned))
                .collect(),
            Some(_) => None,
        }
    }

    /// Whether the signature is by `jwk`. A key is only used for algorithms of its own type, and a
    /// token with critical headers is refused (RFC 7515 4.1.11: none is understood here).
    pub(super) fn verified_by(&self, jwk: &Value) -> bool {
        if self.header.contains_key("crit") {
            return false;
        }
        let Some(algorithm) = algorithms_of(jwk)
            .iter()
            .find(|(name, _)| *name == self.algorithm())
            .map(|(_, algorithm)| *algorithm)
        else {
            return false;
        };
        let Ok(jwk) = serde_json::from_value::<Jwk>(jwk.clone()) else {
            return false;
        };
        let Ok(key) = DecodingKey::from_jwk(&jwk) else {
            return false;
        };
        jsonwebtoken::crypto::verify(self.signature, self.signed.as_bytes(), &key, algorithm)
            .unwrap_or(false)
    }
}

/// Signing algorithms that a target accepts, named as in its own error.
pub(super) const ACCEPTED: [&str; 8] = [
    "RS256", "ES256", "RS384", "ES384", "RS512", "PS256", "PS384", "PS512",
];

fn algorithms_of(jwk: &Value) -> &'static [(&'static str, Algorithm)] {
    let field = |name| jwk.get(name).and_then(Value::as_str).unwrap_or_default();
    match (field("kty"), field("crv")) {
        ("EC", "P-256") => &[("ES256", Algorithm::ES256)],
        ("EC", "P-384") => &[("ES384", Algorithm::ES384)],
        ("RSA", _) => &[
            ("RS256", Algorithm::RS256),
            ("RS384", Algorithm::RS384),
            ("RS512", Algorithm::RS512),
            ("PS256", Algorithm::PS256),
            ("PS384", Algorithm::PS384),
            ("PS512", Algorithm::PS512),
        ],
        _ => &[],
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(Value::as_str)
}
