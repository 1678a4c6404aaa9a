//! The header and claims of a token, in the form that kube-apiserver uses.

use std::time::Duration;

use base64::Engine;
use jiff::Timestamp;
use keyferry_api::service_account::ServiceAccountIdentity;
use serde_json::json;

use super::key_set::Binding;
use crate::jwt::BASE64URL;

/// The claims of one token. Its issuer and audience come from the binding of the key set.
#[derive(Clone, Copy, Debug)]
pub struct ClaimsOfToken<'a> {
    /// The ServiceAccount that the token is for.
    pub identity: &'a ServiceAccountIdentity,
    /// When the token is issued and becomes valid (`iat` and `nbf`).
    pub issued_at: Timestamp,
    /// How long the token is valid, in whole seconds.
    pub lifetime: Duration,
    /// 16 random bytes, which become its `jti`.
    pub id: [u8; 16],
}

/// The encoded header and claims, joined: the input of the signature (RFC 7515 section 5.1). The
/// issuer and the only audience are the binding's.
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
        "jti": format_uuid(token.id),
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

/// Formats the bytes as a UUID of version 4 (RFC 9562).
fn format_uuid(mut bytes: [u8; 16]) -> String {
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
