//! OpenID Connect discovery documents: reads a hub's and renders ours.
//!
//! A hub's `jwks_uri` is not kept. It names an address that its cluster can reach, and following it
//! would let the responding server choose where we send requests.

use std::time::Duration;

use keyferry_api::issuer::Issuer;
use serde_json::{Map, Value, json};
use url::Url;

use crate::json::{JsonError, JsonLimits, MAX_JSON_DEPTH, read_object};
use crate::jwks::PublicKeySet;
use crate::jwt::SigningAlgorithm;

/// The media type of the provider metadata.
pub const METADATA_TYPE: &str = "application/json";
/// The path of the key set.
pub const KEYS_PATH: &str = "/openid/v1/jwks";
/// The media type of the key set (RFC 7517 section 8.5.2).
pub const KEYS_TYPE: &str = "application/jwk-set+json";

/// The `Cache-Control` value of all documents. It is explicit, so that verifiers need not guess,
/// and the same in every response.
pub fn cache_control(max_age: Duration) -> String {
    format!("public, max-age={}", max_age.as_secs())
}

/// The longest upstream document that is read, in bytes.
pub const MAX_DISCOVERY_BYTES: usize = 64 * 1024;

/// A placeholder for the authorization endpoint that OpenID Connect Discovery 1.0 section 3
/// requires. There is none: tokens come from TokenRequest. kube-apiserver neither writes nor reads
/// the member, but strict clients refuse a document without it, and a URN cannot be visited.
pub const NO_AUTHORIZATION_ENDPOINT: &str = "urn:keyferry:no-authorization-endpoint";

/// Why an upstream's document is refused. The error repeats no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// The document is not a strict JSON object.
    #[error("discovery document cannot be read")]
    Json(#[source] JsonError),
    /// A member is absent, of another type or empty.
    #[error("discovery document has no usable {0}")]
    Member(&'static str),
    /// `issuer` is not the expected one, byte for byte (OpenID Connect Discovery 1.0 section 4.3).
    #[error("discovery document names another issuer than the expected one")]
    IssuerMismatch,
}

/// The part of an upstream's document that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderMetadata {
    issuer: String,
    signing_algorithms: Vec<SigningAlgorithm>,
}

impl ProviderMetadata {
    /// Reads an upstream's document. Members that are not kept here are ignored, whatever their
    /// value.
    ///
    /// # Errors
    /// [`DiscoveryError`] says why the document is refused.
    pub fn from_upstream(bytes: &[u8], expected_issuer: &str) -> Result<Self, DiscoveryError> {
        let limits = JsonLimits {
            bytes: MAX_DISCOVERY_BYTES,
            depth: MAX_JSON_DEPTH,
        };
        let document = read_object(bytes, limits).map_err(DiscoveryError::Json)?;
        let issuer = document
            .get("issuer")
            .and_then(Value::as_str)
            .ok_or(DiscoveryError::Member("issuer"))?;
        if issuer != expected_issuer {
            return Err(DiscoveryError::IssuerMismatch);
        }
        Ok(Self {
            issuer: issuer.to_owned(),
            signing_algorithms: signing_algorithms(&document)?,
        })
    }

    /// The issuer, equal to the expected one.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// `id_token_signing_alg_values_supported`, sorted, without those that no target verifies with.
    /// May be empty.
    pub fn signing_algorithms(&self) -> &[SigningAlgorithm] {
        &self.signing_algorithms
    }
}

/// Returns the URL of the key set of an external issuer, from its discovery document.
///
/// It must be on the issuer's own origin. Otherwise a party that can change the document could
/// choose where the server sends requests. GitHub and GitLab serve both from one origin.
///
/// # Errors
/// [`DiscoveryError`] says why the document is refused.
pub fn external_keys_url(bytes: &[u8], issuer: &Issuer) -> Result<Url, DiscoveryError> {
    const MEMBER: &str = "jwks_uri";
    ProviderMetadata::from_upstream(bytes, issuer.as_str())?;
    let limits = JsonLimits {
        bytes: MAX_DISCOVERY_BYTES,
        depth: MAX_JSON_DEPTH,
    };
    let document = read_object(bytes, limits).map_err(DiscoveryError::Json)?;
    let own = Url::parse(issuer.as_str()).map_err(|_| DiscoveryError::IssuerMismatch)?;
    document
        .get(MEMBER)
        .and_then(Value::as_str)
        .and_then(|text| Url::parse(text).ok())
        .filter(|url| {
            url.origin() == own.origin()
                && url.username().is_empty()
                && url.password().is_none()
                && url.fragment().is_none()
        })
        .ok_or(DiscoveryError::Member(MEMBER))
}

/// Renders our document: the same bytes for the same issuer, address and keys.
///
/// The algorithms are exactly those of `keys`, as kube-apiserver writes them. The specification
/// requires RS256, but to list it for a set without an RSA key would announce tokens that cannot be
/// signed.
pub fn render_metadata(issuer: &str, jwks_uri: &str, keys: &PublicKeySet) -> Vec<u8> {
    let algorithms: Vec<&str> = keys
        .algorithms()
        .into_iter()
        .map(SigningAlgorithm::as_str)
        .collect();
    let members = [
        ("issuer", json!(issuer)),
        ("authorization_endpoint", json!(NO_AUTHORIZATION_ENDPOINT)),
        ("jwks_uri", json!(jwks_uri)),
        ("response_types_supported", json!(["id_token"])),
        ("subject_types_supported", json!(["public"])),
        ("id_token_signing_alg_values_supported", json!(algorithms)),
        (
            "claims_supported",
            json!([
                "aud",
                "exp",
                "iat",
                "iss",
                "jti",
                "kubernetes.io",
                "nbf",
                "sub"
            ]),
        ),
    ];
    // Written member by member, because the order of serde_json's own map depends on features that
    // other crates enable.
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(",")).into_bytes()
}

fn signing_algorithms(
    document: &Map<String, Value>,
) -> Result<Vec<SigningAlgorithm>, DiscoveryError> {
    const MEMBER: &str = "id_token_signing_alg_values_supported";
    let Some(listed) = document.get(MEMBER) else {
        return Ok(Vec::new());
    };
    let listed = listed.as_array().ok_or(DiscoveryError::Member(MEMBER))?;
    let mut known = Vec::new();
    for name in listed {
        let name = name.as_str().ok_or(DiscoveryError::Member(MEMBER))?;
        known.extend(SigningAlgorithm::from_name(name));
    }
    known.sort_unstable();
    known.dedup();
    Ok(known)
}

#[cfg(test)]
mod tests;
