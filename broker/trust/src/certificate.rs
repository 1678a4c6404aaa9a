//! Whether Go's `x509.ParseCertificate` takes a certificate, and the key in it.

use x509_parser::prelude::{FromDer, X509Certificate, X509Version};
use x509_parser::public_key::PublicKey;

/// What a certificate is to Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// One it takes, and its key where that is an RSA or EC one.
    Taken(Option<CertificateKey>),
    /// One it refuses.
    Refused,
    /// One that libraries disagree about.
    Unsure,
}

/// The public key of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertificateKey {
    /// Modulus and exponent, without leading zeros.
    Rsa(Vec<u8>, Vec<u8>),
    /// An uncompressed point.
    Ec(Vec<u8>),
}

/// Judges DER.
pub(crate) fn judge(der: &[u8]) -> Certificate {
    let Ok((rest, certificate)) = X509Certificate::from_der(der) else { return Certificate::Refused };
    if !rest.is_empty() {
        return Certificate::Refused;
    }
    let negative = certificate.raw_serial().first().is_some_and(|byte| byte & 0x80 != 0);
    if negative || certificate.version() != X509Version::V3 || certificate.raw_serial().len() > 20 {
        return Certificate::Unsure;
    }
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => Certificate::Taken(Some(CertificateKey::Rsa(strip(key.modulus), strip(key.exponent)))),
        Ok(PublicKey::EC(point)) => Certificate::Taken(Some(CertificateKey::Ec(point.data().to_vec()))),
        Ok(_) => Certificate::Taken(None),
        Err(_) => Certificate::Unsure,
    }
}

fn strip(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}
