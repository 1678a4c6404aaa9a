//! The token before its signature, as kube-apiserver writes its own.

use std::time::Duration;

use base64::Engine;
use jiff::Timestamp;
use serde_json::json;

use super::key_set::Binding;
use crate::jwt::BASE64URL;
use crate::service_account::ServiceAccountIdentity;

/// What a token says beside what its key set says.
#[derive(Clone, Copy, Debug)]
pub struct ClaimsOfToken<'a> {
    /// Whose it is.
    pub identity: &'a ServiceAccountIdentity,
    /// When it begins.
    pub issued_at: Timestamp,
    /// How long it lives, in whole seconds.
    pub lifetime: Duration,
    /// 16 random bytes, which become its `jti`.
    pub id: [u8; 16],
}

/// Header and claims, encoded and joined (RFC 7515 section 5.1): what is signed. The issuer and the
/// one audience are the binding's.
pub fn signing_input(binding: &Binding, kid: &str, token: &ClaimsOfToken<'_>) -> String {
    let issued_at = token.issued_at.as_second();
    let expires_at =
        issued_at.saturating_add(i64::try_from(token.lifetime.as_secs()).unwrap_or(i64::MAX));
    let account = &token.identity.account;
    let header = json!({ "alg": "ES256", "kid": kid });
    let claims = json!({
        "aud": [binding.audience.as_str()],
        "exp": expires_at,
        "iat": issued_at,
        "iss": binding.issuer.as_str(),
        "jti": uuid(token.id),
        "kubernetes.io": {
            "namespace": account.namespace.as_str(),
            "serviceaccount": { "name": account.name.as_str(), "uid": token.identity.uid.as_str() },
        },
        "nbf": issued_at,
        "sub": account.username(),
    });
    format!(
        "{}.{}",
        BASE64URL.encode(header.to_string()),
        BASE64URL.encode(claims.to_string())
    )
}

/// RFC 9562 version 4.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0..8),
        part(8..12),
        part(12..16),
        part(16..20),
        part(20..32)
    )
}
