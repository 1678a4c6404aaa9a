//! Checks whether a key signed an input, as go-jose does with Go's crypto: an RSA key verifies RS
//! and PS, an EC key any ES.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA384_ASN1,
    ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA512_ASN1, UnparsedPublicKey, VerificationAlgorithm,
};

use super::Key;
use super::hash::Hash;
use super::jwk::Curve;
use super::rsa::PaddingScheme;

/// A signature algorithm that an apiserver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    family: Family,
    hash: Hash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Rs,
    Ps,
    Es,
}

impl Algorithm {
    /// The accepted names, sorted, as the apiserver prints them.
    pub(crate) const NAMES: [&'static str; 9] = [
        "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
    ];

    /// Returns the algorithm of a name; names are case-sensitive.
    pub fn named(name: &str) -> Option<Self> {
        if !Self::NAMES.contains(&name) {
            return None;
        }
        let family = match name.get(..2)? {
            "RS" => Family::Rs,
            "PS" => Family::Ps,
            _ => Family::Es,
        };
        let hash = match name.get(2..)? {
            "256" => Hash::Sha256,
            "384" => Hash::Sha384,
            _ => Hash::Sha512,
        };
        Some(Self { family, hash })
    }
}

/// Whether the key signed the input with that algorithm.
pub(super) fn verifies(key: &Key, algorithm: Algorithm, input: &[u8], signature: &[u8]) -> bool {
    match (key, algorithm.family) {
        (Key::Rsa(key), Family::Rs) => {
            key.verifies(algorithm.hash, PaddingScheme::Pkcs1, input, signature)
        }
        (Key::Rsa(key), Family::Ps) => {
            key.verifies(algorithm.hash, PaddingScheme::Pss, input, signature)
        }
        (Key::Ec(curve, point), Family::Es) => {
            ec_verifies(*curve, point, algorithm.hash, input, signature)
        }
        _ => false,
    }
}

fn ec_verifies(curve: Curve, point: &[u8], hash: Hash, input: &[u8], signature: &[u8]) -> bool {
    let size = hash.coordinate();
    if signature.len() != 2 * size {
        return false;
    }
    let algorithm: &'static dyn VerificationAlgorithm = match (curve, hash) {
        (Curve::P256, Hash::Sha256) => &ECDSA_P256_SHA256_ASN1,
        (Curve::P256, Hash::Sha384) => &ECDSA_P256_SHA384_ASN1,
        (Curve::P256, Hash::Sha512) => &ECDSA_P256_SHA512_ASN1,
        (Curve::P384, Hash::Sha384) => &ECDSA_P384_SHA384_ASN1,
        (Curve::P384, Hash::Sha512) => &ECDSA_P384_SHA512_ASN1,
        (Curve::P521, Hash::Sha512) => &ECDSA_P521_SHA512_ASN1,
        // A longer key's signature fits the shorter form only with a chance below 2^-128.
        _ => return false,
    };
    let (r, s) = signature.split_at(size);
    UnparsedPublicKey::new(algorithm, point)
        .verify(input, &encode_signature(r, s))
        .is_ok()
}

/// Encodes two positive numbers as DER.
fn encode_signature(r: &[u8], s: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = [r, s].into_iter().flat_map(encode_integer).collect();
    let length = body.len();
    let mut out = vec![0x30];
    if length >= 0x80 {
        out.push(0x81);
    }
    out.push(u8::try_from(length).unwrap_or(u8::MAX));
    out.extend(body);
    out
}

fn encode_integer(number: &[u8]) -> Vec<u8> {
    let mut digits: Vec<u8> = number
        .iter()
        .copied()
        .skip_while(|byte| *byte == 0)
        .collect();
    if digits.first().is_none_or(|byte| byte & 0x80 != 0) {
        digits.insert(0, 0);
    }
    let length = u8::try_from(digits.len()).unwrap_or(u8::MAX);
    [2, length].into_iter().chain(digits).collect()
}
