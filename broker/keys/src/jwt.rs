//! Parses JWTs without verifying them.
//!
//! Applies the strict checks that the verifying library lacks. It accepts only JWS compact
//! serialisation (RFC 7515 section 3.1) of bounded size, base64url with only one spelling, and a
//! header without members that could choose a key or change the meaning.

use std::fmt;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::json::{JsonError, JsonLimits, MAX_JSON_DEPTH, read_object};

pub use algorithm::SigningAlgorithm;

mod algorithm;

/// The longest token that is parsed, in bytes. kube-apiserver's own are about 1 KiB.
pub const MAX_JWT_BYTES: usize = 8192;

/// The longest accepted `kid`, in bytes: the longest that Kubernetes lets an external signer use.
pub const MAX_KID_BYTES: usize = 1024;

/// Header members that choose a key, change what is signed, or say that the token is something else
/// (RFC 7515 section 4.1, RFC 7516 section 4.1, RFC 7797). Kubernetes writes none of them.
pub const REFUSED_HEADER_MEMBERS: [&str; 11] = [
    "crit", "b64", "zip", "enc", "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256", "cty",
];

/// As [`REFUSED_HEADER_MEMBERS`], without the thumbprints of RFC 7515 section 4.1.7.
const REFUSED_ID_TOKEN_HEADER_MEMBERS: [&str; 9] = [
    "crit", "b64", "zip", "enc", "jwk", "jku", "x5u", "x5c", "cty",
];

/// Why a token cannot be parsed. No part of the token is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// The token is empty.
    #[error("token is empty")]
    Empty,
    /// Longer than [`MAX_JWT_BYTES`].
    #[error("token is {0} bytes, more than the 8192 allowed")]
    TooLong(usize),
    /// Not `header.claims.signature`: an encrypted token (RFC 7516) has four dots.
    #[error("token has {0} dots where a signed one has two")]
    DotCount(usize),
    /// The header is not canonical unpadded base64url.
    #[error("token header is not canonical unpadded base64url")]
    HeaderEncoding,
    /// The claims are not canonical unpadded base64url.
    #[error("token claims are not canonical unpadded base64url")]
    ClaimsEncoding,
    /// The signature is not canonical unpadded base64url.
    #[error("token signature is not canonical unpadded base64url")]
    SignatureEncoding,
    /// There is no signature.
    #[error("token has no signature")]
    SignatureMissing,
    /// The header is not a strict JSON object.
    #[error("token header cannot be read")]
    Header(#[source] JsonError),
    /// The claims are not a strict JSON object.
    #[error("token claims cannot be read")]
    Claims(#[source] JsonError),
    /// `alg` is absent.
    #[error("token header has no alg")]
    AlgorithmMissing,
    /// `alg` is not a string, or none of RS256 to RS512, PS256 to PS512 and ES256 to ES512.
    #[error("token header has an alg that kube-apiserver does not accept")]
    AlgorithmRefused,
    /// `kid` is present and not a string.
    #[error("token header has a kid that is no text")]
    KidNotText,
    /// `kid` is empty.
    #[error("token header has an empty kid")]
    KidEmpty,
    /// `kid` is longer than [`MAX_KID_BYTES`].
    #[error("token header has a kid longer than 1024 bytes")]
    KidTooLong,
    /// `typ` is present and not `JWT`: a token for another purpose (RFC 8725 section 3.11).
    #[error("token header has a typ other than JWT")]
    TypeRefused,
    /// One of [`REFUSED_HEADER_MEMBERS`].
    #[error("token header has the member {0}, which is never accepted")]
    HeaderMemberRefused(&'static str),
}

/// A parsed JWT of which nothing is verified yet.
pub struct UnverifiedJwt {
    compact: Zeroizing<String>,
    claims_end: usize,
    algorithm: SigningAlgorithm,
    kid: Option<String>,
    claims: Map<String, Value>,
}

impl UnverifiedJwt {
    /// Parses a token in compact serialisation. Nothing around it is trimmed.
    ///
    /// # Errors
    /// [`JwtError`] names the first rule that it breaks.
    pub fn parse(compact: &str) -> Result<Self, JwtError> {
        Self::parse_refusing(compact, &REFUSED_HEADER_MEMBERS)
    }

    /// Parses an id-token of an issuer other than a hub, by the same rules with one exception.
    /// GitHub writes the thumbprint of a certificate into each header; it is ignored, and chooses
    /// no key.
    ///
    /// # Errors
    /// [`JwtError`] names the first rule that it breaks.
    pub fn parse_id_token(compact: &str) -> Result<Self, JwtError> {
        Self::parse_refusing(compact, &REFUSED_ID_TOKEN_HEADER_MEMBERS)
    }

    fn parse_refusing(compact: &str, refused: &[&'static str]) -> Result<Self, JwtError> {
        if compact.len() > MAX_JWT_BYTES {
            return Err(JwtError::TooLong(compact.len()));
        }
        if compact.is_empty() {
            return Err(JwtError::Empty);
        }
        let dots = compact.bytes().filter(|byte| *byte == b'.').count();
        let (signing_input, signature) =
            compact.rsplit_once('.').ok_or(JwtError::DotCount(dots))?;
        let (header, claims) = match signing_input.split_once('.') {
            Some(parts) if dots == 2 => parts,
            _ => return Err(JwtError::DotCount(dots)),
        };
        let header = decode_segment(header).ok_or(JwtError::HeaderEncoding)?;
        let header = read_object(&header, SEGMENT_LIMITS).map_err(JwtError::Header)?;
        let algorithm = algorithm_of(&header)?;
        let kid = kid_of(&header)?;
        check_meaning(&header, refused)?;
        let claims = decode_segment(claims).ok_or(JwtError::ClaimsEncoding)?;
        let claims = read_object(&claims, SEGMENT_LIMITS).map_err(JwtError::Claims)?;
        let signature = decode_segment(signature).ok_or(JwtError::SignatureEncoding)?;
        if signature.is_empty() {
            return Err(JwtError::SignatureMissing);
        }
        let claims_end = signing_input.len();
        Ok(Self {
            compact: Zeroizing::new(compact.to_owned()),
            claims_end,
            algorithm,
            kid,
            claims,
        })
    }

    /// The header's `alg`.
    pub fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// The header's `kid`, never empty.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The claims, not yet verified.
    pub fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// The bytes that the signature covers: header, dot, claims, still encoded (RFC 7515 section
    /// 5.2).
    pub(crate) fn signing_input(&self) -> &[u8] {
        self.compact
            .as_bytes()
            .get(..self.claims_end)
            .unwrap_or_default()
    }

    /// The signature, still encoded.
    pub(crate) fn encoded_signature(&self) -> &str {
        self.compact.get(self.claims_end + 1..).unwrap_or_default()
    }
}

impl fmt::Debug for UnverifiedJwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnverifiedJwt")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

const SEGMENT_LIMITS: JsonLimits = JsonLimits {
    bytes: MAX_JWT_BYTES,
    depth: MAX_JSON_DEPTH,
};

/// RFC 7515 section 2: no padding, no other characters. The unused bits of the last character must
/// be zero, else one token would have several spellings.
pub(crate) const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(false),
);

fn decode_segment(segment: &str) -> Option<Zeroizing<Vec<u8>>> {
    BASE64URL.decode(segment).ok().map(Zeroizing::new)
}

fn algorithm_of(header: &Map<String, Value>) -> Result<SigningAlgorithm, JwtError> {
    match header.get("alg") {
        None => Err(JwtError::AlgorithmMissing),
        Some(alg) => alg
            .as_str()
            .and_then(SigningAlgorithm::from_name)
            .ok_or(JwtError::AlgorithmRefused),
    }
}

fn kid_of(header: &Map<String, Value>) -> Result<Option<String>, JwtError> {
    match header.get("kid") {
        None => Ok(None),
        Some(Value::String(kid)) if kid.is_empty() => Err(JwtError::KidEmpty),
        Some(Value::String(kid)) if kid.len() > MAX_KID_BYTES => Err(JwtError::KidTooLong),
        Some(Value::String(kid)) => Ok(Some(kid.clone())),
        Some(_) => Err(JwtError::KidNotText),
    }
}

fn check_meaning(header: &Map<String, Value>, refused: &[&'static str]) -> Result<(), JwtError> {
    for member in refused.iter().copied() {
        if header.contains_key(member) {
            return Err(JwtError::HeaderMemberRefused(member));
        }
    }
    match header.get("typ") {
        None => Ok(()),
        Some(Value::String(typ)) if typ.eq_ignore_ascii_case("JWT") => Ok(()),
        Some(_) => Err(JwtError::TypeRefused),
    }
}

#[cfg(test)]
mod tests;
