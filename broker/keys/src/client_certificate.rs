//! Client certificates for the hub's apiserver: the key, the request, and the check of what was
//! issued.
//!
//! Any party with the right to approve or to sign can answer a request. So the issued certificate
//! counts only if [`CertificateRequest::check_issued`] finds it to be the requested one.

mod received_request;

use std::fmt::Write as _;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use secrecy::SecretString;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::parse_x509_certificate;
use x509_parser::x509::X509Name;
use zeroize::{Zeroize, Zeroizing};

use crate::hexadecimal::to_hexadecimal;

pub use received_request::{ReceivedCertificateRequest, UnexpectedRequest};

/// How much earlier than now Kubernetes' signer lets a certificate begin (kubernetes
/// pkg/controller/certificates/authority/policies.go). It is also the difference between clocks
/// that is accepted.
pub const BACKDATE: Duration = Duration::from_secs(300);
/// The least remaining life of a certificate that is written.
const LEAST_USE: Duration = Duration::from_secs(60);
/// The longest chain that is read. One certificate has about 1 KiB.
const MAX_CHAIN_BYTES: usize = 64 * 1024;

/// A private key, ECDSA on P-256. It cannot be printed, and is wiped on drop.
pub struct ClientKey(Zeroizing<Vec<u8>>);

impl ClientKey {
    /// Takes a key in PKCS #8.
    pub fn from_pkcs8(der: Zeroizing<Vec<u8>>) -> Self {
        Self(der)
    }

    /// The key as PEM, for `tls.key`.
    pub fn to_pem(&self) -> SecretString {
        let encoded = Zeroizing::new(STANDARD.encode(&*self.0));
        let mut text = write_pem("PRIVATE KEY", &encoded);
        let secret = SecretString::from(text.as_str());
        text.zeroize();
        secret
    }
}

/// A certificate request could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("making the certificate request")]
pub struct RequestError;

/// A request for a client certificate, signed with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    pem: String,
    public_key: Vec<u8>,
    common_name: String,
    lifetime: Duration,
}

impl CertificateRequest {
    /// Makes the request: a common name, no organization, no alternative names, no attributes.
    ///
    /// # Errors
    /// [`RequestError`] if the key is not one on P-256.
    pub fn sign(
        key: &ClientKey,
        common_name: &str,
        lifetime: Duration,
    ) -> Result<Self, RequestError> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.0.as_slice()));
        let mut pair = KeyPair::from_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)
            .map_err(|_| RequestError)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let request = params.serialize_request(&pair).map_err(|_| RequestError);
        let public_key = pair.subject_public_key_info();
        // Its copy of the key is not wiped by itself.
        pair.zeroize();
        Ok(Self {
            pem: write_pem("CERTIFICATE REQUEST", &STANDARD.encode(request?.der())),
            public_key,
            common_name: common_name.to_owned(),
            lifetime,
        })
    }

    /// The request as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The user that the certificate is for.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// The requested lifetime.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// A unique name for the request: half of the public key's SHA-256, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        to_hexadecimal(
            digest(&SHA256, &self.public_key)
                .as_ref()
                .get(..16)
                .unwrap_or_default(),
        )
    }

    /// Checks that the certificate is the requested one and can be used now.
    ///
    /// # Errors
    /// [`CertificateMismatch`] says in what it differs.
    pub fn check_issued(
        &self,
        chain: &[u8],
        now: Timestamp,
    ) -> Result<IssuedCertificate, CertificateMismatch> {
        use CertificateMismatch as E;
        if chain.len() > MAX_CHAIN_BYTES {
            return Err(E::NotX509);
        }
        let blocks: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| E::NotX509)?;
        let leaf = parse_certificate(blocks.first().ok_or(E::NotX509)?)?;
        for other in blocks.iter().skip(1) {
            parse_certificate(other)?;
        }
        if leaf.public_key().raw != self.public_key {
            return Err(E::OtherKey);
        }
        if single_common_name(leaf.subject()) != Some(self.common_name.as_str()) {
            return Err(E::OtherSubject);
        }
        self.check_usage(&leaf)?;
        let (begin, end) = self.check_validity(&leaf, now)?;
        Ok(IssuedCertificate {
            pem: blocks
                .iter()
                .map(|der| write_pem("CERTIFICATE", &STANDARD.encode(der)))
                .collect(),
            serial: to_hexadecimal(leaf.raw_serial()),
            not_before: begin,
            not_after: end,
        })
    }

    fn check_usage(&self, leaf: &X509Certificate<'_>) -> Result<(), CertificateMismatch> {
        use CertificateMismatch as E;
        if leaf
            .subject_alternative_name()
            .map_err(|_| E::NotX509)?
            .is_some()
        {
            return Err(E::AlternativeNames);
        }
        let extended = leaf.extended_key_usage().map_err(|_| E::NotX509)?;
        let only_client = extended.is_some_and(|usage| {
            let usage = usage.value;
            usage.client_auth
                && !usage.any
                && !usage.server_auth
                && !usage.code_signing
                && !usage.email_protection
                && !usage.time_stamping
                && !usage.ocsp_signing
                && usage.other.is_empty()
        });
        let usage = leaf.key_usage().map_err(|_| E::NotX509)?;
        let signs_only = usage.is_some_and(|usage| usage.value.flags == 1);
        if !only_client || !signs_only || leaf.is_ca() {
            return Err(E::OtherUsage);
        }
        Ok(())
    }

    fn check_validity(
        &self,
        leaf: &X509Certificate<'_>,
        now: Timestamp,
    ) -> Result<(Timestamp, Timestamp), CertificateMismatch> {
        use CertificateMismatch as E;
        let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|_| E::NotX509);
        let validity = leaf.validity();
        let (begin, end) = (
            time(validity.not_before.timestamp())?,
            time(validity.not_after.timestamp())?,
        );
        if now.saturating_add(BACKDATE).unwrap_or(now) < begin {
            return Err(E::NotYetValid(begin));
        }
        if now.saturating_add(LEAST_USE).unwrap_or(now) >= end {
            return Err(E::Expired(end));
        }
        let longest = self.lifetime + BACKDATE;
        let too_long = |from: Timestamp| {
            Duration::try_from(end.duration_since(from)).is_ok_and(|life| life > longest)
        };
        // Counted from its beginning and from now, because a certificate that begins later also
        // ends later.
        if too_long(begin) || too_long(now) {
            return Err(E::TooLong(end));
        }
        Ok((begin, end))
    }
}

/// A certificate that is the requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    pem: String,
    serial: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl IssuedCertificate {
    /// The certificate and those after it as PEM, for `tls.crt`.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its serial number, in hexadecimal.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// When it expires.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// When it is due for renewal: after two thirds of its remaining life.
    pub fn renew_at(&self, now: Timestamp) -> Timestamp {
        let start = now.max(self.not_before);
        let left = Duration::try_from(self.not_after.duration_since(start)).unwrap_or_default();
        start
            .saturating_add(left.mul_f64(2.0 / 3.0))
            .unwrap_or(self.not_after)
            .min(self.not_after)
    }
}

/// In what an issued certificate differs from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateMismatch {
    /// It cannot be read.
    #[error("it is not an X.509 certificate in PEM")]
    NotX509,
    /// It has another public key.
    #[error("it has another public key")]
    OtherKey,
    /// Its subject is not the requested common name alone: another user, or with groups.
    #[error("its subject is not the requested common name alone")]
    OtherSubject,
    /// It has alternative names.
    #[error("it has subject alternative names")]
    AlternativeNames,
    /// Its usages are not exactly `client auth` and `digital signature`.
    #[error("its usages are not exactly client auth and digital signature")]
    OtherUsage,
    /// It begins in the future.
    #[error("it is not valid before {0}")]
    NotYetValid(Timestamp),
    /// It has expired, or is about to.
    #[error("it expires at {0}")]
    Expired(Timestamp),
    /// It lives longer than requested.
    #[error("it lives longer than requested, until {0}")]
    TooLong(Timestamp),
}

/// The one common name of the first certificate in a PEM text, if its subject has nothing else.
pub fn common_name_of(chain: &[u8]) -> Option<String> {
    let der = CertificateDer::pem_slice_iter(chain.get(..chain.len().min(MAX_CHAIN_BYTES))?)
        .next()?
        .ok()?;
    let leaf = parse_certificate(&der).ok()?;
    single_common_name(leaf.subject()).map(str::to_owned)
}

fn parse_certificate(der: &[u8]) -> Result<X509Certificate<'_>, CertificateMismatch> {
    match parse_x509_certificate(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(CertificateMismatch::NotX509),
    }
}

/// The common name of a subject that has one attribute and no other.
fn single_common_name<'a>(subject: &'a X509Name<'_>) -> Option<&'a str> {
    let mut attributes = subject.iter_attributes();
    let (only, more) = (attributes.next()?, attributes.next());
    if more.is_some() || *only.attr_type() != OID_X509_COMMON_NAME {
        return None;
    }
    only.as_str().ok()
}

/// Writes a PEM block (RFC 7468) from base64.
fn write_pem(label: &str, encoded: &str) -> String {
    // Allocated once, so that no copy of a key is left behind by growth.
    let mut text = String::with_capacity(encoded.len() + encoded.len() / 64 + 2 * label.len() + 64);
    let _ = writeln!(text, "-----BEGIN {label}-----");
    let mut rest = encoded;
    while !rest.is_empty() {
        let (line, next) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = next;
    }
    let _ = writeln!(text, "-----END {label}-----");
    text
}

#[cfg(test)]
mod tests;
