//! Verifies a token: first its signature, then its claims.
//!
//! jsonwebtoken does the cryptography, except for ES512, which it does not support. Where the
//! library is lenient (header, encoding, claims, which key may do what), [`crate::jwt`],
//! [`crate::jwks`] and [`crate::claims`] decide instead.

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::Engine;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey};
use keyferry_api::audience::Audience;
use keyferry_api::issuer::Issuer;

use crate::claims::{ClaimsFormError, RegisteredClaims, ServiceAccountClaims};
use crate::id_token::IdTokenClaims;
use crate::jwks::{KeyMaterial, PublicKey, PublicKeySet};
use crate::jwt::{BASE64URL, SigningAlgorithm, UnverifiedJwt};

/// How far the issuer's clock may be ahead of ours for `nbf` and `iat`. `exp` gets no leeway.
pub const CLOCK_LEEWAY: SignedDuration = SignedDuration::from_secs(30);

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The header names no key. Kubernetes always names one, and trying every key could use a wrong
    /// one.
    #[error("token names no kid")]
    NoKid,
    /// No key of the set has that `kid`.
    #[error("token names a kid that is not in the key set")]
    UnknownKid,
    /// The token's `alg` is not the key's (RFC 8725 section 3.1).
    #[error("token is signed with another alg than its key's")]
    AlgorithmMismatch,
    /// The signature does not match this key and this token.
    #[error("token has a bad signature")]
    BadSignature,
}

/// Why well-formed claims are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// `iss` is another issuer.
    #[error("token is from another issuer")]
    WrongIssuer,
    /// `aud` does not contain the expected audience.
    #[error("token is for another audience")]
    WrongAudience,
    /// `aud` contains the expected audience and others, so the token works elsewhere too.
    #[error("token is for other audiences besides the expected one")]
    OtherAudiences,
    /// `exp` has been reached.
    #[error("token has expired")]
    Expired,
    /// `nbf` is more than [`CLOCK_LEEWAY`] ahead.
    #[error("token is not valid yet")]
    NotYetValid,
    /// `iat` is more than [`CLOCK_LEEWAY`] ahead.
    #[error("token was issued in the future")]
    IssuedInFuture,
    /// `exp` is not after `iat`.
    #[error("token expires before it was issued")]
    EndsBeforeItBegins,
    /// `exp` minus `iat` is more than the longest lifetime allowed.
    #[error("token lives longer than allowed")]
    LivesTooLong,
}

/// Proof that a key of the given set signed this token. Only [`verify_signature`] makes one.
#[derive(Debug)]
pub struct VerifiedSignature<'t> {
    jwt: &'t UnverifiedJwt,
    kid: &'t str,
}

impl<'t> VerifiedSignature<'t> {
    /// The `kid` of the key that signed.
    pub fn kid(&self) -> &'t str {
        self.kid
    }

    /// The token's claims, now known to be the signer's. [`check_claims`] decides whether they are
    /// acceptable.
    ///
    /// # Errors
    /// [`ClaimsFormError`] if it is not a bound ServiceAccount token.
    pub fn claims(&self) -> Result<ServiceAccountClaims, ClaimsFormError> {
        ServiceAccountClaims::read(self.jwt)
    }

    /// The claims of an id-token, likewise. [`check_registered`] decides on the registered ones.
    ///
    /// # Errors
    /// [`ClaimsFormError`] if it is not an id-token.
    pub fn id_token(&self) -> Result<IdTokenClaims, ClaimsFormError> {
        IdTokenClaims::read(self.jwt)
    }
}

/// The values that claims are checked against.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The only accepted `iss`.
    pub issuer: &'a Issuer,
    /// The only accepted entry of `aud`.
    pub audience: &'a Audience,
    /// The current time.
    pub now: Timestamp,
    /// The longest allowed `exp` minus `iat`, if there is a limit.
    pub longest_life: Option<SignedDuration>,
}

/// Checks a token's signature with the key that its `kid` names.
///
/// # Errors
/// [`VerifyError`] says why the signature is not accepted.
pub fn verify_signature<'t>(
    jwt: &'t UnverifiedJwt,
    keys: &PublicKeySet,
) -> Result<VerifiedSignature<'t>, VerifyError> {
    let kid = jwt.kid().ok_or(VerifyError::NoKid)?;
    let key = keys.get(kid).ok_or(VerifyError::UnknownKid)?;
    if key.algorithm() != jwt.algorithm() {
        return Err(VerifyError::AlgorithmMismatch);
    }
    if signature_holds(jwt.signing_input(), jwt.encoded_signature(), key) {
        Ok(VerifiedSignature { jwt, kid })
    } else {
        Err(VerifyError::BadSignature)
    }
}

/// Checks that claims are acceptable now. `exp` gets no leeway, because the target gives none
/// either.
///
/// # Errors
/// [`ClaimsError`] names the first claim that is not acceptable.
pub fn check_claims(
    claims: &ServiceAccountClaims,
    expected: &Expected<'_>,
) -> Result<(), ClaimsError> {
    check_registered(&claims.registered, expected)
}

/// Checks the registered claims of any token, as [`check_claims`] does for a ServiceAccount's.
///
/// # Errors
/// [`ClaimsError`] names the first claim that is not acceptable.
pub fn check_registered(
    claims: &RegisteredClaims,
    expected: &Expected<'_>,
) -> Result<(), ClaimsError> {
    if claims.issuer != expected.issuer.as_str() {
        return Err(ClaimsError::WrongIssuer);
    }
    if !claims
        .audiences
        .iter()
        .any(|audience| audience == expected.audience.as_str())
    {
        return Err(ClaimsError::WrongAudience);
    }
    if claims.audiences.len() != 1 {
        return Err(ClaimsError::OtherAudiences);
    }
    if claims.expires_at <= claims.issued_at {
        return Err(ClaimsError::EndsBeforeItBegins);
    }
    if expected.now >= claims.expires_at {
        return Err(ClaimsError::Expired);
    }
    if claims
        .not_before
        .is_some_and(|time| is_ahead(time, expected.now))
    {
        return Err(ClaimsError::NotYetValid);
    }
    if is_ahead(claims.issued_at, expected.now) {
        return Err(ClaimsError::IssuedInFuture);
    }
    let life = claims.expires_at.duration_since(claims.issued_at);
    if expected.longest_life.is_some_and(|longest| life > longest) {
        return Err(ClaimsError::LivesTooLong);
    }
    Ok(())
}

fn is_ahead(time: Timestamp, now: Timestamp) -> bool {
    time.duration_since(now) > CLOCK_LEEWAY
}

/// Whether the key signed the message; the signature is in base64url.
fn signature_holds(message: &[u8], signature: &str, key: &PublicKey) -> bool {
    let (algorithm, decoding_key) = match (key.algorithm(), key.material()) {
        (SigningAlgorithm::Es512, KeyMaterial::Ec { x, y, .. }) => {
            let key =
                UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, KeyMaterial::encode_point(x, y));
            let signature = BASE64URL.decode(signature);
            return signature.is_ok_and(|signature| key.verify(message, &signature).is_ok());
        }
        (algorithm, KeyMaterial::Rsa { n }) => (
            algorithm,
            DecodingKey::from_rsa_raw_components(n, &crate::jwks::rsa::EXPONENT_F4),
        ),
        (algorithm, KeyMaterial::Ec { x, y, .. }) => (
            algorithm,
            DecodingKey::from_ec_der(&KeyMaterial::encode_point(x, y)),
        ),
    };
    let Some(algorithm) = library_algorithm(algorithm) else {
        return false;
    };
    jsonwebtoken::crypto::verify(signature, message, &decoding_key, algorithm).unwrap_or(false)
}

fn library_algorithm(algorithm: SigningAlgorithm) -> Option<Algorithm> {
    match algorithm {
        SigningAlgorithm::Es256 => Some(Algorithm::ES256),
        SigningAlgorithm::Es384 => Some(Algorithm::ES384),
        SigningAlgorithm::Es512 => None,
        SigningAlgorithm::Ps256 => Some(Algorithm::PS256),
        SigningAlgorithm::Ps384 => Some(Algorithm::PS384),
        SigningAlgorithm::Ps512 => Some(Algorithm::PS512),
        SigningAlgorithm::Rs256 => Some(Algorithm::RS256),
        SigningAlgorithm::Rs384 => Some(Algorithm::RS384),
        SigningAlgorithm::Rs512 => Some(Algorithm::RS512),
    }
}

#[cfg(test)]
mod rfc_vectors;
#[cfg(test)]
mod second_implementation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wycheproof_vectors;
