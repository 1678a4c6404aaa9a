//! Whether Go's `x509.ParseCertificate` accepts a certificate, and the public key in it.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ParsedPublicKey,
    VerificationAlgorithm,
};
use x509_parser::asn1_rs::Tag;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate, X509Extension, X509Version};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// What Go's `x509.ParseCertificate` makes of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Go accepts it. The key is present if Go supports its kind.
    Taken(Option<CertificateKey>),
    /// Go refuses it.
    Refused,
    /// Libraries, or releases of Go, disagree about it.
    Unsure,
}

/// The public key of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertificateKey {
    /// RSA: modulus and exponent, without leading zeros.
    Rsa(Vec<u8>, Vec<u8>),
    /// EC: an uncompressed point.
    Ec(Vec<u8>),
    /// The 32 bytes of an Ed25519 key.
    Edwards(Vec<u8>),
    /// A key of a kind that an issuer's key set cannot contain.
    Other,
}

/// Judges a DER-encoded certificate.
pub(crate) fn judge(der: &[u8]) -> Certificate {
    let Ok((rest, certificate)) = X509Certificate::from_der(der) else {
        return Certificate::Refused;
    };
    if !rest.is_empty() {
        return Certificate::Refused;
    }
    let serial = certificate.raw_serial();
    // Go accepts a negative serial number before 1.23, and refuses it since.
    if serial.first().is_none_or(|byte| byte & 0x80 != 0) || serial.len() > 20 {
        return Certificate::Unsure;
    }
    if !matches!(
        certificate.version(),
        X509Version::V1 | X509Version::V2 | X509Version::V3
    ) {
        return Certificate::Refused;
    }
    // Only version 3 has extensions, and those that Go knows must be well formed.
    let odd = |extension: &X509Extension<'_>| {
        matches!(
            extension.parsed_extension(),
            ParsedExtension::ParseError { .. }
        )
    };
    let version_3 = certificate.version() == X509Version::V3;
    if certificate
        .extensions()
        .iter()
        .any(|extension| !version_3 || odd(extension))
    {
        return Certificate::Unsure;
    }
    key(certificate.public_key())
}

fn key(public: &SubjectPublicKeyInfo<'_>) -> Certificate {
    let bytes: &[u8] = &public.subject_public_key.data;
    let parameters = public.algorithm.parameters.as_ref();
    match public.algorithm.algorithm.to_id_string().as_str() {
        oid::RSA => match public.parsed() {
            _ if parameters.is_none_or(|any| any.tag() != Tag::Null) => Certificate::Refused,
            Ok(PublicKey::RSA(key)) => Certificate::Taken(Some(CertificateKey::Rsa(
                strip(key.modulus),
                strip(key.exponent),
            ))),
            _ => Certificate::Unsure,
        },
        oid::EC => {
            let curve: Option<&'static dyn VerificationAlgorithm> =
                match parameters.and_then(|any| any.as_oid().ok()) {
                    Some(curve) => match curve.to_id_string().as_str() {
                        oid::P256 => Some(&ECDSA_P256_SHA256_ASN1),
                        oid::P384 => Some(&ECDSA_P384_SHA384_ASN1),
                        oid::P521 => Some(&ECDSA_P521_SHA512_ASN1),
                        oid::P224 => return Certificate::Unsure,
                        _ => None,
                    },
                    None => None,
                };
            match curve {
                Some(curve)
                    if bytes.first() == Some(&4) && ParsedPublicKey::new(curve, bytes).is_ok() =>
                {
                    Certificate::Taken(Some(CertificateKey::Ec(bytes.to_vec())))
                }
                _ => Certificate::Refused,
            }
        }
        oid::ED25519 if parameters.is_none() && bytes.len() == 32 => {
            Certificate::Taken(Some(CertificateKey::Edwards(bytes.to_vec())))
        }
        oid::X25519 if parameters.is_none() && bytes.len() == 32 => {
            Certificate::Taken(Some(CertificateKey::Other))
        }
        oid::ED25519 | oid::X25519 => Certificate::Refused,
        oid::DSA => Certificate::Unsure,
        // Go accepts the certificate but not its kind of key.
        _ => Certificate::Taken(None),
    }
}

fn strip(number: &[u8]) -> Vec<u8> {
    number
        .iter()
        .copied()
        .skip_while(|byte| *byte == 0)
        .collect()
}

mod oid {
    pub(super) const RSA: &str = "1.2.840.113549.1.1.1";
    pub(super) const EC: &str = "1.2.840.10045.2.1";
    pub(super) const P224: &str = "1.3.132.0.33";
    pub(super) const P256: &str = "1.2.840.10045.3.1.7";
    pub(super) const P384: &str = "1.3.132.0.34";
    pub(super) const P521: &str = "1.3.132.0.35";
    pub(super) const ED25519: &str = "1.3.101.112";
    pub(super) const X25519: &str = "1.3.101.110";
    pub(super) const DSA: &str = "1.2.840.10040.4.1";
}
