//! Reads the public key of a certificate.

use super::curve::{Curve, PointFault};
use super::der::{Element, ObjectIdentifier, Reader, is_negative, tag};
use super::{Fault, PointCheck, PublicKey};
use crate::GoRelease;

/// An algorithm with its parameters.
pub(super) struct AlgorithmIdentifier<'a> {
    algorithm: ObjectIdentifier,
    /// The whole element; empty if there is none.
    parameters: &'a [u8],
}

impl<'a> AlgorithmIdentifier<'a> {
    /// Reads the content of an AlgorithmIdentifier. Anything may follow the parameters.
    pub(super) fn read(mut content: Reader<'a>) -> Result<Self, Fault> {
        let algorithm = content
            .object_identifier()
            .ok_or_else(|| Fault::new("x509: malformed OID"))?;
        let parameters = match content {
            content if content.is_empty() => &[],
            mut content => {
                let parameters: Option<Element<'a>> = content.any();
                parameters
                    .ok_or_else(|| Fault::new("x509: malformed parameters"))?
                    .whole
            }
        };
        Ok(Self {
            algorithm,
            parameters,
        })
    }
}

/// Reads a key. `None` if Go does not know its kind.
pub(super) fn read(
    algorithm: &AlgorithmIdentifier<'_>,
    key: &[u8],
    go: GoRelease,
    point: &PointCheck,
) -> Result<Option<PublicKey>, Fault> {
    let parameters = algorithm.parameters;
    match algorithm.algorithm.0.as_slice() {
        [1, 2, 840, 113_549, 1, 1, 1] => read_rsa(parameters, key).map(Some),
        [1, 2, 840, 10_045, 2, 1] => read_ec(parameters, key, go, point).map(Some),
        [1, 2, 840, 10_040, 4, 1] => read_dsa(parameters, key).map(Some),
        [1, 3, 101, 112] => read_ed25519(parameters, key).map(Some),
        _ => Ok(None),
    }
}

fn is_positive(number: &[u8]) -> bool {
    !is_negative(number) && number.iter().any(|byte| *byte != 0)
}

fn without_zeros(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default().to_vec()
}

fn read_rsa(parameters: &[u8], key: &[u8]) -> Result<PublicKey, Fault> {
    Fault::unless(
        parameters == [5, 0],
        "x509: RSA key missing NULL parameters",
    )?;
    let mut key = Reader::new(key)
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: invalid RSA public key"))?;
    let modulus = key
        .integer()
        .ok_or_else(|| Fault::new("x509: invalid RSA modulus"))?;
    let exponent = key
        .integer_of_64_bits()
        .ok_or_else(|| Fault::new("x509: invalid RSA public exponent"))?;
    Fault::unless(
        is_positive(modulus),
        "x509: RSA modulus is not a positive number",
    )?;
    Fault::unless(
        exponent > 0,
        "x509: RSA public exponent is not a positive number",
    )?;
    Ok(PublicKey::Rsa {
        modulus: without_zeros(modulus),
        exponent: without_zeros(&exponent.to_be_bytes()),
    })
}

fn read_ec(
    parameters: &[u8],
    key: &[u8],
    go: GoRelease,
    point: &PointCheck,
) -> Result<PublicKey, Fault> {
    let curve = Reader::new(parameters)
        .object_identifier()
        .ok_or_else(|| Fault::new("x509: invalid ECDSA parameters"))?;
    let curve = Curve::from_object_identifier(&curve.0)
        .ok_or_else(|| Fault::new("x509: unsupported elliptic curve"))?;
    // The costly part does not depend on the release, so it is done once.
    match point.get_or_init(|| curve.check_point(key)) {
        Ok(()) => Ok(PublicKey::Ec(key.to_vec())),
        Err(_) if go < GoRelease::V1_26 => {
            Err(Fault::new("x509: failed to unmarshal elliptic curve point"))
        }
        Err(PointFault::NotUncompressed) => {
            Err(Fault::new("ecdsa: invalid uncompressed public key"))
        }
        Err(PointFault::Length) => Err(Fault::new(format!(
            "invalid {} point encoding",
            curve.name()
        ))),
        Err(PointFault::Coordinate) => Err(Fault::new(match curve {
            // The assembly of the common processors has a text of its own.
            Curve::P256 => "invalid P256 element encoding".to_owned(),
            _ => format!("invalid {}Element encoding", curve.name()),
        })),
        Err(PointFault::NotOnCurve) => {
            Err(Fault::new(format!("{} point not on curve", curve.name())))
        }
    }
}

fn read_ed25519(parameters: &[u8], key: &[u8]) -> Result<PublicKey, Fault> {
    Fault::unless(
        parameters.is_empty(),
        "x509: Ed25519 key encoded with illegal parameters",
    )?;
    Fault::unless(key.len() == 32, "x509: wrong Ed25519 public key size")?;
    Ok(PublicKey::Ed25519(key.to_vec()))
}

fn read_dsa(parameters: &[u8], key: &[u8]) -> Result<PublicKey, Fault> {
    let y = Reader::new(key)
        .integer()
        .ok_or_else(|| Fault::new("x509: invalid DSA public key"))?;
    let mut numbers = Reader::new(parameters).enter(tag::SEQUENCE);
    let mut next = || numbers.as_mut().and_then(Reader::integer);
    let (Some(p), Some(q), Some(g)) = (next(), next(), next()) else {
        return Err(Fault::new("x509: invalid DSA parameters"));
    };
    Fault::unless(
        [y, p, q, g].into_iter().all(is_positive),
        "x509: zero or negative DSA parameter",
    )?;
    Ok(PublicKey::Dsa)
}
