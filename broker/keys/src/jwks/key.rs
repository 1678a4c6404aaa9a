//! One public key, read strictly and written in one canonical form.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    EcdsaVerificationAlgorithm, ParsedPublicKey,
};
use base64::Engine;
use serde_json::{Map, Value};

use super::rejection::RejectReason;
use super::rsa::{EXPONENT_F4, check_signing_key};
use crate::jwt::{BASE64URL, MAX_KID_BYTES, SigningAlgorithm};

/// The private members of RFC 7518 section 6 and of RFC 9964 (`priv`).
const PRIVATE_MEMBERS: [&str; 9] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

/// Whether a JWK has a private member, so that it must not be published.
pub(super) fn holds_private_member(entry: &Value) -> bool {
    PRIVATE_MEMBERS
        .iter()
        .any(|member| entry.get(member).is_some())
}

/// A key that a target can verify with. Equal keys have equal `kid`, `alg` and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kid: String,
    algorithm: SigningAlgorithm,
    material: KeyMaterial,
}

/// The numbers of a public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyMaterial {
    /// RSA with the exponent 65537.
    Rsa {
        /// The modulus, big-endian, no leading zero.
        n: Vec<u8>,
    },
    /// A point on its curve.
    Ec {
        /// The curve.
        curve: Curve,
        /// The first coordinate, big-endian, as wide as the curve.
        x: Vec<u8>,
        /// The second coordinate, likewise.
        y: Vec<u8>,
    },
}

/// A curve of RFC 7518 section 6.2.1.1. Each signs with one algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// NIST P-256, ES256.
    P256,
    /// NIST P-384, ES384.
    P384,
    /// NIST P-521, ES512.
    P521,
}

impl PublicKey {
    /// Reads one entry of `keys` that has no private member.
    pub(super) fn from_entry(entry: &Value) -> Result<Self, RejectReason> {
        let members = entry.as_object().ok_or(RejectReason::NotAnObject)?;
        let kid = members
            .get("kid")
            .and_then(Value::as_str)
            .filter(|kid| (1..=MAX_KID_BYTES).contains(&kid.len()));
        let kid = kid.ok_or(RejectReason::Kid)?.to_owned();
        let kty = members.get("kty").and_then(Value::as_str);
        let read: fn(&Map<String, Value>) -> Result<KeyMaterial, RejectReason> = match kty {
            Some("RSA") => parse_rsa,
            Some("EC") => parse_ec,
            _ => return Err(RejectReason::KeyType),
        };
        check_purpose(members)?;
        let material = read(members)?;
        let algorithm = key_algorithm(members, &material)?;
        Ok(Self {
            kid,
            algorithm,
            material,
        })
    }

    /// Reads one key that [`PublicKey::to_value`] wrote, as strictly as an upstream's.
    pub(crate) fn from_value(value: &Value) -> Result<Self, RejectReason> {
        if holds_private_member(value) {
            return Err(RejectReason::NotAnObject);
        }
        Self::from_entry(value)
    }

    /// The key as a JSON value.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::from_str(&self.to_json()).unwrap_or_default()
    }

    /// The ES256 key of an uncompressed point of P-256 (SEC 1 section 2.3.3); `None` if the bytes
    /// are not a point of the curve.
    ///
    /// Its `kid` is the one that kube-apiserver would give it: base64url of the SHA-256 of its
    /// SubjectPublicKeyInfo.
    pub fn of_es256_point(point: &[u8]) -> Option<Self> {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).ok()?;
        let (x, y) = point
            .strip_prefix(&[4])?
            .split_at_checked(Curve::P256.coordinate_bytes())?;
        let kid = encode_base64url(digest(&SHA256, &[&P256_SPKI_HEAD, point].concat()).as_ref());
        let material = KeyMaterial::Ec {
            curve: Curve::P256,
            x: x.to_vec(),
            y: y.to_vec(),
        };
        Some(Self {
            kid,
            algorithm: SigningAlgorithm::Es256,
            material,
        })
    }

    /// Its uncompressed point; empty for RSA.
    pub fn point(&self) -> Vec<u8> {
        match &self.material {
            KeyMaterial::Rsa { .. } => Vec::new(),
            KeyMaterial::Ec { x, y, .. } => KeyMaterial::encode_point(x, y),
        }
    }

    /// Its `kid`, 1 to 1024 bytes.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The only algorithm that the key verifies: the upstream's `alg`, or else RS256 for RSA and
    /// the curve's own for EC.
    pub fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// The numbers of the key.
    pub fn material(&self) -> &KeyMaterial {
        &self.material
    }

    /// The RFC 7638 thumbprint with SHA-256, in base64url. It identifies the numbers whatever their
    /// `kid`.
    pub fn thumbprint(&self) -> String {
        let members = match &self.material {
            KeyMaterial::Rsa { n } => format!(
                r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#,
                encode_base64url(&EXPONENT_F4),
                encode_base64url(n)
            ),
            KeyMaterial::Ec { curve, x, y } => {
                format!(
                    r#"{{"crv":"{}","kty":"EC","x":"{}","y":"{}"}}"#,
                    curve.as_str(),
                    encode_base64url(x),
                    encode_base64url(y)
                )
            }
        };
        encode_base64url(digest(&SHA256, members.as_bytes()).as_ref())
    }

    /// The key as JSON: `kty`, `use`, `alg`, `kid`, then its numbers, always in this order.
    pub(super) fn to_json(&self) -> String {
        let (kty, numbers) = match &self.material {
            KeyMaterial::Rsa { n } => (
                "RSA",
                format!(
                    r#""n":"{}","e":"{}""#,
                    encode_base64url(n),
                    encode_base64url(&EXPONENT_F4)
                ),
            ),
            KeyMaterial::Ec { curve, x, y } => (
                "EC",
                format!(
                    r#""crv":"{}","x":"{}","y":"{}""#,
                    curve.as_str(),
                    encode_base64url(x),
                    encode_base64url(y)
                ),
            ),
        };
        let kid = Value::from(self.kid.as_str());
        format!(
            r#"{{"kty":"{kty}","use":"sig","alg":"{}","kid":{kid},{numbers}}}"#,
            self.algorithm
        )
    }
}

/// The bytes before the 65-byte point in a SubjectPublicKeyInfo of id-ecPublicKey on secp256r1 (RFC
/// 5480 section 2).
const P256_SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl KeyMaterial {
    /// Encodes an uncompressed point (SEC 1 section 2.3.3): 4, x, y.
    pub(crate) fn encode_point(x: &[u8], y: &[u8]) -> Vec<u8> {
        [&[4], x, y].concat()
    }
}

impl Curve {
    /// Its name in `crv`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    /// The algorithm that RFC 7518 section 3.4 pairs with it.
    pub fn algorithm(self) -> SigningAlgorithm {
        match self {
            Self::P256 => SigningAlgorithm::Es256,
            Self::P384 => SigningAlgorithm::Es384,
            Self::P521 => SigningAlgorithm::Es512,
        }
    }

    fn coordinate_bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn verifier(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_FIXED,
            Self::P384 => &ECDSA_P384_SHA384_FIXED,
            Self::P521 => &ECDSA_P521_SHA512_FIXED,
        }
    }
}

/// Checks `use` and `key_ops` (RFC 7517 sections 4.2 and 4.3). If both are absent, any purpose is
/// allowed, as verifiers assume too.
fn check_purpose(members: &Map<String, Value>) -> Result<(), RejectReason> {
    if members.get("use").is_some_and(|value| value != "sig") {
        return Err(RejectReason::Use);
    }
    let Some(operations) = members.get("key_ops") else {
        return Ok(());
    };
    let operations = operations.as_array().ok_or(RejectReason::Operations)?;
    let verifies = operations.iter().all(Value::is_string)
        && operations.iter().any(|operation| operation == "verify");
    if verifies {
        Ok(())
    } else {
        Err(RejectReason::Operations)
    }
}

fn parse_rsa(members: &Map<String, Value>) -> Result<KeyMaterial, RejectReason> {
    let n = parse_number(members, "n")?;
    let e = parse_number(members, "e")?;
    check_signing_key(&n, &e).map_err(RejectReason::Rsa)?;
    Ok(KeyMaterial::Rsa { n })
}

fn parse_ec(members: &Map<String, Value>) -> Result<KeyMaterial, RejectReason> {
    let curve = match members.get("crv").and_then(Value::as_str) {
        Some("P-256") => Curve::P256,
        Some("P-384") => Curve::P384,
        Some("P-521") => Curve::P521,
        _ => return Err(RejectReason::Curve),
    };
    let x = parse_coordinate(members, "x", curve)?;
    let y = parse_coordinate(members, "y", curve)?;
    ParsedPublicKey::new(curve.verifier(), KeyMaterial::encode_point(&x, &y))
        .map_err(|_| RejectReason::Point)?;
    Ok(KeyMaterial::Ec { curve, x, y })
}

fn key_algorithm(
    members: &Map<String, Value>,
    material: &KeyMaterial,
) -> Result<SigningAlgorithm, RejectReason> {
    use SigningAlgorithm::{Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
    let stated = match members.get("alg") {
        None => None,
        Some(alg) => Some(
            alg.as_str()
                .and_then(SigningAlgorithm::from_name)
                .ok_or(RejectReason::Algorithm)?,
        ),
    };
    match (material, stated) {
        (KeyMaterial::Rsa { .. }, None) => Ok(Rs256),
        (
            KeyMaterial::Rsa { .. },
            Some(stated @ (Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512)),
        ) => Ok(stated),
        (KeyMaterial::Ec { curve, .. }, None) => Ok(curve.algorithm()),
        (KeyMaterial::Ec { curve, .. }, Some(stated)) if stated == curve.algorithm() => Ok(stated),
        _ => Err(RejectReason::Algorithm),
    }
}

/// Reads a Base64urlUInt (RFC 7518 section 2): as few bytes as the number needs.
fn parse_number(
    members: &Map<String, Value>,
    member: &'static str,
) -> Result<Vec<u8>, RejectReason> {
    let bytes = decode_member(members, member)?;
    if bytes.first().is_some_and(|byte| *byte != 0) {
        Ok(bytes)
    } else {
        Err(RejectReason::Encoding(member))
    }
}

fn parse_coordinate(
    members: &Map<String, Value>,
    member: &'static str,
    curve: Curve,
) -> Result<Vec<u8>, RejectReason> {
    let bytes = decode_member(members, member)?;
    if bytes.len() == curve.coordinate_bytes() {
        Ok(bytes)
    } else {
        Err(RejectReason::Encoding(member))
    }
}

fn decode_member(
    members: &Map<String, Value>,
    member: &'static str,
) -> Result<Vec<u8>, RejectReason> {
    let text = members
        .get(member)
        .and_then(Value::as_str)
        .ok_or(RejectReason::Member(member))?;
    BASE64URL
        .decode(text)
        .map_err(|_| RejectReason::Encoding(member))
}

fn encode_base64url(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}
