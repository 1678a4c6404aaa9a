//! Checks whether one certificate can be a target's CA.

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_SIG_ED25519};
use x509_parser::parse_x509_certificate;
use x509_parser::public_key::PublicKey;
use x509_parser::signature_algorithm::SignatureAlgorithm;
use x509_parser::x509::X509Version;

use super::error::CaBundleError;
use crate::jwks::rsa::check_authority_key;

/// Checks a certificate and returns its `notAfter`.
pub(super) fn check_certificate(
    der: &[u8],
    position: usize,
    now: Timestamp,
) -> Result<Timestamp, CaBundleError> {
    let not_x509 = CaBundleError::NotX509(position);
    let Ok((rest, certificate)) = parse_x509_certificate(der) else {
        return Err(not_x509);
    };
    if !rest.is_empty() {
        return Err(not_x509);
    }
    let subject = printable_subject(&certificate.subject().to_string());
    let validity = certificate.validity();
    let (Ok(not_before), Ok(not_after)) = (
        Timestamp::from_second(validity.not_before.timestamp()),
        last_second(validity.not_after.timestamp()),
    ) else {
        return Err(not_x509);
    };
    let version = certificate.version();
    if version != X509Version::V3 {
        return Err(CaBundleError::OldVersion {
            position,
            subject,
            version: version.0.saturating_add(1),
        });
    }
    match certificate.basic_constraints() {
        Ok(Some(constraints)) if constraints.value.ca => {}
        Ok(_) => return Err(CaBundleError::NotAuthority { position, subject }),
        Err(_) => return Err(not_x509),
    }
    if now < not_before {
        return Err(CaBundleError::NotYetValid {
            position,
            subject,
            at: not_before,
        });
    }
    if now.as_second() > not_after.as_second() {
        return Err(CaBundleError::Expired {
            position,
            subject,
            at: not_after,
        });
    }
    check_key(&certificate, position, &subject)?;
    match weak_hash(&certificate) {
        Some(hash) => Err(CaBundleError::WeakSignature {
            position,
            subject,
            hash,
        }),
        None => Ok(not_after),
    }
}

/// Whether the certificate's key is one of RSA of 2048 bits or more, of ECDSA or of Ed25519.
pub(crate) fn has_strong_key(certificate: &X509Certificate<'_>) -> bool {
    check_key(certificate, 1, "").is_ok()
}

/// Caps an expiry at the last [`Timestamp`]. By RFC 5280 section 4.1.2.5, 99991231235959Z means no
/// expiry, and a [`Timestamp`] cannot represent it.
fn last_second(seconds: i64) -> Result<Timestamp, jiff::Error> {
    Timestamp::from_second(seconds.min(Timestamp::MAX.as_second()))
}

fn check_key(
    certificate: &X509Certificate<'_>,
    position: usize,
    subject: &str,
) -> Result<(), CaBundleError> {
    let unsupported = || CaBundleError::UnsupportedKey {
        position,
        subject: subject.to_owned(),
    };
    let spki = certificate.public_key();
    match spki.parsed() {
        Ok(PublicKey::RSA(key)) => {
            check_authority_key(key.modulus, key.exponent).map_err(|fault| CaBundleError::WeakKey {
                position,
                subject: subject.to_owned(),
                fault,
            })
        }
        Ok(PublicKey::EC(_)) => {
            let curve = spki
                .algorithm
                .parameters
                .as_ref()
                .and_then(|parameters| parameters.as_oid().ok())
                .ok_or_else(unsupported)?;
            let known = [OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521].contains(&curve);
            if known { Ok(()) } else { Err(unsupported()) }
        }
        Ok(PublicKey::Unknown(_)) if spki.algorithm.algorithm == OID_SIG_ED25519 => Ok(()),
        _ => Err(unsupported()),
    }
}

/// Returns the broken hash of the certificate's signature, if any. Verifiers do not check a root's
/// self-signature, so SHA-1 is allowed there. MD5 is refused even there: a root that old also has
/// keys of that age.
fn weak_hash(certificate: &X509Certificate<'_>) -> Option<&'static str> {
    let self_issued = certificate.issuer().as_raw() == certificate.subject().as_raw();
    let hash = match certificate
        .signature_algorithm
        .algorithm
        .to_id_string()
        .as_str()
    {
        "1.2.840.113549.1.1.2" | "1.2.840.113549.1.1.3" => "MD2 or MD4",
        "1.2.840.113549.1.1.4" => "MD5",
        "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" | "1.2.840.10040.4.3" | "1.3.14.3.2.29" => {
            "SHA-1"
        }
        "1.2.840.113549.1.1.10" if pss_hash_is_sha1(certificate) => "SHA-1",
        _ => return None,
    };
    if hash == "SHA-1" && self_issued {
        None
    } else {
        Some(hash)
    }
}

/// Whether the PSS hash is SHA-1, which absent parameters mean (RFC 4055 section 3.1).
fn pss_hash_is_sha1(certificate: &X509Certificate<'_>) -> bool {
    match SignatureAlgorithm::try_from(&certificate.signature_algorithm) {
        Ok(SignatureAlgorithm::RSASSA_PSS(parameters)) => {
            parameters.hash_algorithm_oid().to_id_string() == "1.3.14.3.2.26"
        }
        _ => true,
    }
}

fn printable_subject(subject: &str) -> String {
    let shown: String = subject
        .chars()
        .take(128)
        .map(|c| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '?'
            }
        })
        .collect();
    if shown.is_empty() {
        "no subject".to_owned()
    } else {
        shown
    }
}
