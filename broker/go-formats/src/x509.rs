//! Reads a certificate as Go's `x509.ParseCertificate` does, with its errors.
//!
//! Go checks less than the standard asks for in some places, and more in others. A kube-apiserver
//! does not start with a CA that its Go refuses, and accepts no token of an issuer whose key set has
//! such a certificate. Nothing here decides whether a certificate is trusted.

mod curve;
mod der;
mod domain;
mod extension;
mod name;
mod name_constraints;
mod public_key;
mod validity;

use std::cell::OnceCell;

use crate::GoRelease;
use der::{Reader, is_negative, tag};
use public_key::AlgorithmIdentifier;

/// A certificate that Go accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The public key; `None` if Go does not know its kind.
    pub key: Option<PublicKey>,
}

/// The public key of a certificate. Numbers are big-endian, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// An RSA key.
    Rsa {
        /// The modulus.
        modulus: Vec<u8>,
        /// The public exponent.
        exponent: Vec<u8>,
    },
    /// An uncompressed point of the curve P-224, P-256, P-384 or P-521.
    Ec(Vec<u8>),
    /// The 32 bytes of an Ed25519 key.
    Ed25519(Vec<u8>),
    /// A DSA key.
    Dsa,
}

/// Why a certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Go refuses it.
    #[error("{text}")]
    Refused {
        /// Go's error message.
        text: String,
        /// Whether the message is exactly Go's.
        exact: bool,
    },
    /// The result depends on the patch release of Go.
    #[error("{0}")]
    Undetermined(&'static str),
}

impl Fault {
    fn new(text: impl Into<String>) -> Self {
        Self::Refused {
            text: text.into(),
            exact: true,
        }
    }

    fn unless(holds: bool, text: &'static str) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(text)) }
    }
}

/// Whether the key's point lies on its curve, once that was computed.
type PointCheck = OnceCell<Result<(), curve::PointFault>>;

/// Parses a certificate in DER as each of these releases of Go does.
///
/// ```
/// use keyferry_go_formats::GoRelease;
/// use keyferry_go_formats::x509;
///
/// let results = x509::parse(&[0x30, 0], &GoRelease::ALL);
/// for result in results {
///     assert_eq!(result.unwrap_err().to_string(), "x509: malformed tbs certificate");
/// }
/// ```
#[must_use]
pub fn parse(der: &[u8], releases: &[GoRelease]) -> Vec<Result<Certificate, Fault>> {
    let point = PointCheck::new();
    releases
        .iter()
        .map(|go| parse_as(der, *go, &point))
        .collect()
}

fn parse_as(der: &[u8], go: GoRelease, point: &PointCheck) -> Result<Certificate, Fault> {
    let mut input = Reader::new(der);
    let mut outer = input
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed certificate"))?;
    let mut body = outer
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed tbs certificate"))?;
    let version = read_version(&mut body)?;
    check_serial(&mut body, go)?;
    check_signature_algorithms(&mut body, &mut outer)?;
    check_name(&mut body, go)?;
    let validity = body
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed validity"))?;
    validity::check_validity(validity, go)?;
    check_name(&mut body, go)?;
    let key = read_key(&mut body, go, point)?;
    if version > 1 {
        check_unique_ids(&mut body)?;
    }
    if version == 3 {
        extension::check_extensions(&mut body, go)?;
    }
    outer
        .bit_string()
        .ok_or_else(|| Fault::new("x509: malformed signature"))?;
    Fault::unless(input.is_empty(), "x509: trailing data")?;
    Ok(Certificate { key })
}

/// Returns the version as people count it, from 1.
fn read_version(body: &mut Reader<'_>) -> Result<i64, Fault> {
    let malformed = || Fault::new("x509: malformed version");
    let version = match body
        .enter_optional(tag::context_constructed(0))
        .ok_or_else(malformed)?
    {
        None => 0,
        Some(mut content) => {
            let version = content.integer_of_64_bits().ok_or_else(malformed)?;
            if version < 0 || !content.is_empty() {
                return Err(malformed());
            }
            version
        }
    };
    // Go's addition wraps around, and the largest number passes as a version without extensions.
    let version = version.wrapping_add(1);
    Fault::unless(version <= 3, "x509: invalid version")?;
    Ok(version)
}

fn check_serial(body: &mut Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let serial = body
        .integer()
        .ok_or_else(|| Fault::new("x509: malformed serial number"))?;
    Fault::unless(
        go < GoRelease::V1_23 || !is_negative(serial),
        "x509: negative serial number",
    )
}

/// The signed algorithm must have the same bytes as the one beside the signature.
fn check_signature_algorithms(body: &mut Reader<'_>, outer: &mut Reader<'_>) -> Result<(), Fault> {
    let inside = body
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed signature algorithm identifier"))?;
    let outside = outer
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed algorithm identifier"))?;
    Fault::unless(
        inside.bytes() == outside.bytes(),
        "x509: inner and outer signature algorithm identifiers don't match",
    )?;
    AlgorithmIdentifier::read(inside).map(drop)
}

/// Checks the issuer or the subject; Go's text is the same for both.
fn check_name(body: &mut Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let name = body
        .element(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed issuer"))?;
    name::check_name(name.whole, go)
}

fn read_key(
    body: &mut Reader<'_>,
    go: GoRelease,
    point: &PointCheck,
) -> Result<Option<PublicKey>, Fault> {
    let mut info = body
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed spki"))?;
    let algorithm = info
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: malformed public key algorithm identifier"))?;
    let algorithm = AlgorithmIdentifier::read(algorithm)?;
    let key = info
        .bit_string()
        .ok_or_else(|| Fault::new("x509: malformed subjectPublicKey"))?;
    public_key::read(&algorithm, &key, go, point)
}

fn check_unique_ids(body: &mut Reader<'_>) -> Result<(), Fault> {
    body.enter_optional(tag::context(1))
        .ok_or_else(|| Fault::new("x509: malformed issuerUniqueID"))?;
    body.enter_optional(tag::context(2))
        .ok_or_else(|| Fault::new("x509: malformed subjectUniqueID"))?;
    Ok(())
}

#[cfg(test)]
mod tests;
