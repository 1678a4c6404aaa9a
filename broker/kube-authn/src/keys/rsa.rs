//! Verifies RSA signatures as Go does.
//!
//! aws-lc-rs verifies the common ones. Go also accepts two kinds that aws-lc-rs refuses: PSS with a
//! salt of any length, and moduli outside of 2048 to 8192 bits. Those are verified here; nothing in
//! them is secret.

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
};

use super::hash::Hash;
use super::modular;

/// A public RSA key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RsaKey {
    /// Big-endian, without leading zeros.
    pub(crate) modulus: Vec<u8>,
    /// The lowest 64 bits, as Go stores it in an int.
    pub(crate) exponent: i64,
}

/// The padding scheme of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaddingScheme {
    Pkcs1,
    Pss,
}

impl RsaKey {
    /// Creates a key from big-endian numbers.
    pub(crate) fn new(modulus: &[u8], exponent: &[u8]) -> Self {
        let low = exponent
            .iter()
            .rev()
            .take(8)
            .rev()
            .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        Self {
            modulus: modulus
                .iter()
                .copied()
                .skip_while(|byte| *byte == 0)
                .collect(),
            exponent: low.cast_signed(),
        }
    }

    /// Returns the exponent, big-endian, without leading zeros.
    pub(crate) fn exponent_bytes(&self) -> Vec<u8> {
        self.exponent
            .to_be_bytes()
            .into_iter()
            .skip_while(|byte| *byte == 0)
            .collect()
    }

    fn bits(&self) -> usize {
        self.modulus.first().map_or(0, |byte| {
            self.modulus.len() * 8 - byte.leading_zeros() as usize
        })
    }

    /// Whether Go accepts the key, and the signature is valid for it.
    pub(crate) fn verifies(
        &self,
        hash: Hash,
        padding: PaddingScheme,
        input: &[u8],
        signature: &[u8],
    ) -> bool {
        let odd = self.modulus.last().is_some_and(|byte| byte % 2 == 1);
        let exponent_fits =
            (2..=i64::from(i32::MAX)).contains(&self.exponent) && self.exponent % 2 == 1;
        if !odd || !exponent_fits || self.bits() < 1024 || signature.len() != self.modulus.len() {
            return false;
        }
        if (2048..=8192).contains(&self.bits()) {
            let exponent = self.exponent_bytes();
            let components = PublicKeyComponents {
                n: self.modulus.as_slice(),
                e: exponent.as_slice(),
            };
            if components
                .verify(verification_parameters(hash, padding), input, signature)
                .is_ok()
            {
                return true;
            }
            if padding == PaddingScheme::Pkcs1 {
                return false;
            }
        }
        let Some(encoded) =
            modular::modular_power(signature, self.exponent.unsigned_abs(), &self.modulus)
        else {
            return false;
        };
        let digest = digest::digest(hash.algorithm(), input);
        match padding {
            PaddingScheme::Pkcs1 => pkcs1_holds(&encoded, hash, &digest),
            PaddingScheme::Pss => pss_holds(&encoded, self.bits() - 1, hash, &digest),
        }
    }
}

fn verification_parameters(hash: Hash, padding: PaddingScheme) -> &'static RsaParameters {
    match (hash, padding) {
        (Hash::Sha256, PaddingScheme::Pkcs1) => &RSA_PKCS1_2048_8192_SHA256,
        (Hash::Sha384, PaddingScheme::Pkcs1) => &RSA_PKCS1_2048_8192_SHA384,
        (Hash::Sha512, PaddingScheme::Pkcs1) => &RSA_PKCS1_2048_8192_SHA512,
        (Hash::Sha256, PaddingScheme::Pss) => &RSA_PSS_2048_8192_SHA256,
        (Hash::Sha384, PaddingScheme::Pss) => &RSA_PSS_2048_8192_SHA384,
        (Hash::Sha512, PaddingScheme::Pss) => &RSA_PSS_2048_8192_SHA512,
    }
}

/// Whether the encoding is valid for the digest (RFC 8017, section 9.2).
fn pkcs1_holds(encoded: &[u8], hash: Hash, digest: &Digest) -> bool {
    let tail: Vec<u8> = hash
        .digest_info()
        .iter()
        .chain(digest.as_ref())
        .copied()
        .collect();
    let Some(filler) = encoded
        .len()
        .checked_sub(tail.len() + 3)
        .filter(|filler| *filler >= 8)
    else {
        return false;
    };
    let expected: Vec<u8> = [0, 1]
        .into_iter()
        .chain(std::iter::repeat_n(0xff, filler))
        .chain([0])
        .chain(tail)
        .collect();
    encoded == expected
}

/// Whether the encoding is valid for the digest (RFC 8017, section 9.1.2), with a salt of any
/// length.
fn pss_holds(encoded: &[u8], bits: usize, hash: Hash, digest: &Digest) -> bool {
    let length = bits.div_ceil(8);
    let (zeros, encoded) = encoded.split_at(encoded.len().saturating_sub(length));
    let digest_length = digest.as_ref().len();
    let Some(masked_length) = length
        .checked_sub(digest_length + 1)
        .filter(|_| length > digest_length + 1)
    else {
        return false;
    };
    if zeros.iter().any(|byte| *byte != 0) || encoded.last() != Some(&0xbc) {
        return false;
    }
    let (masked, rest) = encoded.split_at(masked_length);
    let Some(seed) = rest.get(..digest_length) else {
        return false;
    };
    let mask = 0xff_u8 >> (8 * length - bits);
    if masked.first().is_some_and(|byte| byte & !mask != 0) {
        return false;
    }
    let mut data_block: Vec<u8> = masked
        .iter()
        .zip(mask_generation(seed, masked_length, hash))
        .map(|(byte, mask)| byte ^ mask)
        .collect();
    if let Some(first) = data_block.first_mut() {
        *first &= mask;
    }
    let Some(one) = data_block.iter().position(|byte| *byte != 0) else {
        return false;
    };
    if data_block.get(one) != Some(&1) {
        return false;
    }
    let mut context = digest::Context::new(hash.algorithm());
    context.update(&[0; 8]);
    context.update(digest.as_ref());
    context.update(data_block.get(one + 1..).unwrap_or_default());
    context.finish().as_ref() == seed
}

/// Computes MGF1 (RFC 8017, appendix B.2.1).
fn mask_generation(seed: &[u8], length: usize, hash: Hash) -> Vec<u8> {
    let mut mask = Vec::with_capacity(length + 64);
    let mut counter = 0_u32;
    while mask.len() < length {
        let mut context = digest::Context::new(hash.algorithm());
        context.update(seed);
        context.update(&counter.to_be_bytes());
        mask.extend_from_slice(context.finish().as_ref());
        counter += 1;
    }
    mask.truncate(length);
    mask
}
