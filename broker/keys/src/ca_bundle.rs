//! The CA certificates of a target, read from a Secret's `ca.crt`.
//!
//! A Secret's author may have put more into it than certificates, such as a private key. Only
//! `CERTIFICATE` blocks are read, and the output is re-encoded from them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

pub use error::CaBundleError;

pub(crate) mod certificate;
mod error;
mod pem;

/// The largest `ca.crt` that is read, in bytes: about 200 certificates with comments.
pub const MAX_CA_BUNDLE_BYTES: usize = 330_000;

/// The most `BEGIN` and `END` lines that are read.
pub const MAX_PEM_MARKERS: usize = 1000;

/// The most certificates in one bundle.
pub const MAX_CERTIFICATES: usize = 100;

/// One to 100 CA certificates, in their original order, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaBundle {
    certificates: Vec<CertificateDer<'static>>,
    earliest_expiry: Timestamp,
    ignored_blocks: usize,
}

impl CaBundle {
    /// Reads the PEM text (RFC 7468) of a `ca.crt`. One invalid certificate makes the whole bundle
    /// invalid.
    ///
    /// # Errors
    /// [`CaBundleError`] names the certificate, and its `fix` says what to do.
    pub fn from_pem(bytes: &[u8], now: Timestamp) -> Result<Self, CaBundleError> {
        if bytes.len() > MAX_CA_BUNDLE_BYTES {
            return Err(CaBundleError::TooLarge(bytes.len()));
        }
        if bytes.trim_ascii().is_empty() {
            return Err(CaBundleError::Empty);
        }
        let blocks = pem::read_blocks(bytes)?;
        if blocks.certificates.is_empty() {
            return Err(without_certificate(bytes, blocks.ignored));
        }
        if blocks.certificates.len() > MAX_CERTIFICATES {
            return Err(CaBundleError::TooManyCertificates(
                blocks.certificates.len(),
            ));
        }
        let mut bundle = Self {
            certificates: Vec::new(),
            earliest_expiry: Timestamp::MAX,
            ignored_blocks: blocks.ignored,
        };
        for (index, der) in blocks.certificates.into_iter().enumerate() {
            let expiry = certificate::check_certificate(&der, index + 1, now)?;
            bundle.earliest_expiry = bundle.earliest_expiry.min(expiry);
            let der = CertificateDer::from(der);
            if !bundle.certificates.contains(&der) {
                bundle.certificates.push(der);
            }
        }
        Ok(bundle)
    }

    /// Encodes the certificates as PEM: LF line ends, 64 characters a line, nothing between them.
    pub fn to_pem(&self) -> String {
        let mut pem = String::new();
        for certificate in &self.certificates {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            for (index, character) in STANDARD.encode(certificate).chars().enumerate() {
                if index > 0 && index % 64 == 0 {
                    pem.push('\n');
                }
                pem.push(character);
            }
            pem.push_str("\n-----END CERTIFICATE-----\n");
        }
        pem
    }

    /// The certificates as DER, at least one.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// When the first certificate expires.
    pub fn earliest_expiry(&self) -> Timestamp {
        self.earliest_expiry
    }

    /// Whether the first certificate has this public key (SubjectPublicKeyInfo, DER).
    pub fn first_has_key(&self, public_key: &[u8]) -> bool {
        let first = self.certificates.first();
        let first = first.and_then(|der| parse_x509_certificate(der).ok());
        first.is_some_and(|(_, certificate)| certificate.public_key().raw == public_key)
    }

    /// The number of PEM blocks that are not certificates, such as a private key. They were skipped
    /// and not kept.
    pub fn ignored_blocks(&self) -> usize {
        self.ignored_blocks
    }
}

fn without_certificate(bytes: &[u8], ignored: usize) -> CaBundleError {
    match bytes {
        // An ASN.1 SEQUENCE with a length of two bytes: how every DER certificate begins.
        [0x30, 0x82, ..] => CaBundleError::Der,
        _ if ignored == 0 => CaBundleError::NotPem,
        _ => CaBundleError::NoCertificate(ignored),
    }
}

#[cfg(test)]
mod tests;
